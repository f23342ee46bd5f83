# SPDX-License-Identifier: Apache-2.0
"""A worker whose control group has a limit of memory, as that of a container or of systemd has."""
import os
import pathlib
import subprocess

import pytest

from cluster import Cluster, tiny_job, wait_for

LIMIT = 1 << 30
GROUPS = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max"))  # of version 1 and 2


@pytest.fixture
def group():
    """A control group with that limit."""
    for parent, limit in GROUPS:
        folder = pathlib.Path(parent) / f"tandem-{os.getpid()}"
        if not (pathlib.Path(parent) / "cgroup.procs").exists():
            continue
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / limit).write_text(str(LIMIT))
        except OSError:
            folder.rmdir()
            continue
        yield folder
        wait_for("its processes are gone", lambda: (folder / "cgroup.procs").read_text() == "")
        folder.rmdir()
        return
    pytest.skip("makes control groups with a limit of memory: needs root, and a hierarchy that may be written")


def test_rank_without_memory_ends_only_its_job(bin_dir, tmp_path, group):
    cluster = Cluster(bin_dir, tmp_path, workers=0, slots=2)
    try:
        with open(tmp_path / "w0.log", "ab") as log:
            cluster.workers["w0"] = subprocess.Popen(
                ["sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh", cluster.bin / "tandem-worker", "--controller",
                 cluster.address, "--id", "w0", "--state", tmp_path / "w0", "--slots", "2"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        cluster.submit(tiny_job("small", ranks=1, steps=1_000_000))
        wait_for("it trains", lambda: cluster.step("small") > 2)
        large = tiny_job("large", ranks=1)
        large["model"] |= {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 8, "num_attention_heads": 16,
                           "num_key_value_heads": 16, "head_dim": 128}  # some 9 GB with its optimizer
        cluster.submit(large)
        cause = cluster.wait_state("large", "FAILED")["cause"]
        assert (cause["class"], cause["reason"]) == ("OUT_OF_MEMORY", "OutOfMemory"), cause
        assert "rank 0 was killed by signal 9 (SIGKILL)" in cause["message"] and "of the 1.00 GiB" in cause["message"], cause
        before = cluster.step("small")
        wait_for("the other job goes on", lambda: cluster.step("small") > before + 2)
        cluster.cli("cancel", "small")
        cluster.wait_state("small", "CANCELLED")
    finally:
        cluster.close()
