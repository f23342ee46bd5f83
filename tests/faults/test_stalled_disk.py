# SPDX-License-Identifier: Apache-2.0
"""The controller's disk stands still for longer than a worker may be away. Nothing else is wrong."""
import time

from cluster import tiny_job, wait_for
from faulty_libc import compile_into
from hostile_cluster import WORKER_TIMEOUT, HostileCluster


def test_running_jobs_outlive_a_disk_that_stands_still(bin_dir, tmp_path):
    cluster = HostileCluster(bin_dir, tmp_path, compile_into(tmp_path))
    try:
        spec = tiny_job("runs", ranks=2, steps=1_000_000)
        spec["resources"] = {"ranks_per_worker": 1}
        cluster.submit(spec)
        cluster.wait_state("runs", "RUNNING")
        stall = 4 * WORKER_TIMEOUT
        with cluster.faults["controller"].with_faults(sync=stall):
            later = cluster.start_cli("submit", "-f", cluster.write(tiny_job("later", ranks=1, steps=5)))
            time.sleep(1)  # its commit has begun
        begin = time.monotonic()
        while time.monotonic() - begin < stall - 2:  # users who look do not make it worse
            cluster.cli("get", "jobs", check=False, timeout=3 * stall)
        assert later.wait(timeout=120) in (0, 7)  # 7: not answered in time, and the job is there all the same
        wait_for("the store answers again", lambda: cluster.cli("get", "jobs", check=False).returncode == 0)
        cluster.check_steps("runs")
        cluster.wait_state("later", "SUCCEEDED")
        log = (tmp_path / "controller.log").read_text()
        assert log.count("worker connected") == len(cluster.workers), "no worker lost its connection"
    finally:
        cluster.close()
