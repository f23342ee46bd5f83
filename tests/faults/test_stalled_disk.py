# SPDX-License-Identifier: Apache-2.0
"""The controller's disk stands still for longer than a worker may be away. Nothing else is wrong."""
import contextlib
import time

from cluster import tiny_job, wait_for
from faulty_libc import compile_into
from hostile_cluster import WORKER_TIMEOUT, HostileCluster


def commit_that_stands_still(cluster):
    """A submit whose commit has begun, and no earlier than when."""
    faults, begin = cluster.faults["controller"], time.monotonic()
    before = faults.slow_syncs
    submit = cluster.start_cli("submit", "-f", cluster.write(tiny_job("later", ranks=1, steps=5)))

    def has_begun():
        nonlocal begin
        if faults.slow_syncs > before:
            return True
        begin = time.monotonic()
        return False
    wait_for("the store's disk stands still", has_begun)
    return submit, begin


def test_readers_do_not_wait_for_a_stalled_disk(bin_dir, tmp_path):
    with contextlib.closing(HostileCluster(bin_dir, tmp_path, compile_into(tmp_path))) as cluster:
        cluster.submit(tiny_job("runs", ranks=1, steps=1_000_000))
        cluster.wait_state("runs", "RUNNING")
        wait_for("steps are reported", lambda: cluster.step("runs") > 0)
        stall = 20
        with cluster.faults["controller"].with_faults(sync=stall):
            later, begin = commit_that_stands_still(cluster)
        rounds = 0
        while time.monotonic() - begin < stall - 2:
            for question in (["describe", "runs", "-o", "json"], ["get", "jobs"], ["events", "runs"],
                             ["metrics", "runs"]):
                cluster.cli(*question, timeout=3 * stall)
            rounds += 1
        assert rounds > 0, "no question was asked while the disk stood still"
        assert later.wait(timeout=120) in (0, 7)


def test_running_jobs_outlive_a_disk_that_stands_still(bin_dir, tmp_path):
    with contextlib.closing(HostileCluster(bin_dir, tmp_path, compile_into(tmp_path))) as cluster:
        spec = tiny_job("runs", ranks=2, steps=1_000_000)
        spec["resources"] = {"ranks_per_worker": 1}
        cluster.submit(spec)
        cluster.wait_state("runs", "RUNNING")
        stall = 4 * WORKER_TIMEOUT
        with cluster.faults["controller"].with_faults(sync=stall):
            later, begin = commit_that_stands_still(cluster)
        while time.monotonic() - begin < stall - 2:  # users who look do not make it worse
            cluster.cli("get", "jobs", timeout=3 * stall)
        assert later.wait(timeout=120) in (0, 7)  # 7: not answered in time, and the job is there all the same
        wait_for("the store takes the job", lambda: cluster.cli("describe", "later", check=False).returncode == 0)
        cluster.check_steps("runs")
        cluster.wait_state("later", "SUCCEEDED")
        log = (tmp_path / "controller.log").read_text()
        assert log.count("worker connected") == len(cluster.workers), "no worker lost its connection"
