# SPDX-License-Identifier: Apache-2.0
"""scripts/same_bits.sh: what its jobs cover, what it calls different, and a job of both builds."""
import json
import pathlib
import struct
import subprocess
import sys

import job_files
import outcomes
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def bin_dir(request):
    return pathlib.Path(request.config.getoption("--bin-dir")).resolve()


def test_every_compatible_pair_of_values_has_a_job():
    rows, missing = job_files.choose()
    assert len(rows) == job_files.JOBS and not missing


def test_every_job_file_is_accepted(bin_dir, tmp_path):
    for index, row in enumerate(job_files.choose()[0]):
        for device in ("cpu", "cuda"):
            path = tmp_path / "job.json"
            path.write_text(json.dumps(job_files.job(row, "job", ROOT / "README.md", tmp_path / "run", 3, device=device)))
            done = subprocess.run([bin_dir / "tandem", "validate", "-f", path], capture_output=True, text=True)
            assert done.returncode == 0, f"job {index}, {device}: {job_files.title(row)}\n{done.stdout}{done.stderr}"


def write_checkpoint(folder, first, second):
    """An array of six bytes, in two files."""
    folder.mkdir()
    pieces = []
    for index, data in enumerate((first, second)):
        header = json.dumps({"w": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}}).encode()
        (folder / f"{index}.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
        pieces.insert(0, {"file": index, "begin": 3 * index, "elements": 3})
    (folder / "manifest.json").write_text(json.dumps({
        "files": [{"name": f"{index}.safetensors"} for index in (0, 1)],
        "arrays": [{"name": "w", "dtype": "U8", "elements": 6, "pieces": pieces}]}))
    return outcomes.arrays(folder)


def test_one_byte_or_one_digit_is_a_difference(tmp_path):
    old = write_checkpoint(tmp_path / "old", b"abc", b"def")
    assert old == {"w (U8)": b"abcdef"}
    assert outcomes.differences(old, old) == []
    new = write_checkpoint(tmp_path / "new", b"abc", b"dxf")
    assert outcomes.differences(old, new) == ["w (U8): other bytes from byte 4 of 6 on"]
    assert outcomes.differences({"norm": "1.0"}, {"norm": "1.0000000000000002", "loss": "1"}) == [
        "norm: 1.0, and 1.0000000000000002 in the new build", "loss: only in the new build"]


def test_slices_join_to_the_older_manifests_array(tmp_path):
    old = write_checkpoint(tmp_path / "old", b"abc", b"def")
    new = tmp_path / "new"
    new.mkdir()  # [[a, b, c], [d, e, f]]: two columns, and one
    pieces = [{"file": 1, "slice": [[0, 2], [2, 3]], "begin": 0, "elements": 2},
              {"file": 0, "slice": [[0, 2], [0, 2]], "begin": 0, "elements": 4}]
    for index, data in enumerate((b"abde", b"cf")):
        header = json.dumps({"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
        (new / f"{index}.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    (new / "manifest.json").write_text(json.dumps({
        "version": 3, "files": [{"name": f"{index}.safetensors"} for index in (0, 1)],
        "arrays": [{"name": "w", "kind": "weight", "dtype": "U8", "shape": [2, 3], "pieces": pieces}]}))
    assert outcomes.differences(old, outcomes.arrays(new)) == []


def test_a_build_has_its_own_bits(bin_dir):
    done = subprocess.run([sys.executable, ROOT / "tests/same_bits/same_bits.py", bin_dir, bin_dir, "--sample", "1"],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "1 of 1 jobs have the same bits" in done.stdout, done.stdout + done.stderr
