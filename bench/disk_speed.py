#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast checkpoints are saved and exported, beside `dd bs=16M conv=fsync` of the same bytes into the same folder.

A job on one CPU rank trains a model of LAYERS layers (24 bytes a parameter in memory, 12 on the disk) and saves after each of
its steps; each of its checkpoints is exported in bf16 and in fp32. Files that dd reads are in the page cache. Medians over the
checkpoints, as a line of JSON. Usage, with the tests' Python (scripts/setup.sh --tests):
bench/disk_speed.py FOLDER_OF_BINARIES FOLDER [--layers N]      (FOLDER is made and removed)
"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
from cluster import Cluster, tiny_job  # noqa: E402

SAVES = 4  # the first one, which makes the folder, is left out


def written_by_dd(files, target):
    """Seconds in which dd writes the same bytes into `target`, one file after the other."""
    subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)
    seconds = 0.0
    for file in files:
        begin = time.perf_counter()
        subprocess.run(["dd", f"if={file}", f"of={target}", "bs=16M", "conv=fsync", "status=none"], check=True)
        seconds += time.perf_counter() - begin
        target.unlink()
    return seconds


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def size_of(folder):
    return sum(path.stat().st_size for path in files_of(folder))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=16)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir()
    (folder / "cluster").mkdir()
    cluster = Cluster(arguments.binaries.resolve(), folder / "cluster", workers=1)
    try:
        spec = tiny_job("saves", ranks=1, steps=SAVES, directory=folder / "run", every_steps=1, sequence_length=16, micro_batch_size=1,
                        global_batch_size=1)
        spec["model"].update(hidden_size=1024, intermediate_size=2816, num_hidden_layers=arguments.layers, num_attention_heads=16,
                             num_key_value_heads=16, head_dim=64, vocab_size=32000)
        spec["checkpoint"]["keep"] = SAVES
        cluster.submit(spec)
        cluster.wait_state("saves", "SUCCEEDED", seconds=3600)
        saves = {event["checkpoint"]["step"]: event["checkpoint"] for event in cluster.events("saves") if "checkpoint" in event}
        ratios = {"save": [], "bf16": [], "fp32": []}
        rates = {"save": [], "bf16": [], "fp32": []}
        for step in sorted(saves, key=int)[1:]:
            there = pathlib.Path(saves[step]["path"])
            done = written_by_dd(files_of(there), folder / "dd")
            ratios["save"].append(done / saves[step]["seconds"])
            rates["save"].append(size_of(there) / saves[step]["seconds"])
            for dtype in ("bf16", "fp32"):
                out = folder / f"out-{dtype}"
                begin = time.perf_counter()
                cluster.cli("export", there, "--to", out, "--dtype", dtype, timeout=3600)
                seconds = time.perf_counter() - begin
                ratios[dtype].append(written_by_dd(files_of(out), folder / "dd") / seconds)
                rates[dtype].append(size_of(out) / seconds)
                shutil.rmtree(out)
        print(json.dumps({"bench": "disk", "bytes_of_a_save": size_of(there),
                          **{f"{what}_bytes_per_second": statistics.median(each) for what, each in rates.items()},
                          **{f"{what}_of_dd": statistics.median(each) for what, each in ratios.items()}}))
    finally:
        cluster.close()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
