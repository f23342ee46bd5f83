# SPDX-License-Identifier: Apache-2.0
"""The wall clock of every machine is set back while a cluster waits, as after a wrong time server was put right."""
import time

from faulty_libc import compile_into
from hostile_cluster import HostileCluster

AHEAD = 30 * 86400.0
# Longer than any timer of gRPC that is waited for here: that of its backup poller, 5 s.
LONGER_THAN_A_TIMER = 6.0


def test_workers_return_at_once_to_a_controller_that_starts_again_after_the_clock_was_set_back(bin_dir, tmp_path):
    cluster = HostileCluster(bin_dir, tmp_path, compile_into(tmp_path))
    try:
        for faults in cluster.faults.values():
            faults.set(clock=AHEAD)
        time.sleep(LONGER_THAN_A_TIMER)  # what waits now waits for a time that is a month away
        for faults in cluster.faults.values():
            faults.set()
        time.sleep(LONGER_THAN_A_TIMER)
        cluster.kill_controller()
        time.sleep(1)  # they are in the midst of dialling again
        begin = time.monotonic()
        cluster.start_controller()
        cluster.wait_workers()
        took = time.monotonic() - begin
        assert took < 5, f"the last worker was back after {took:.1f} s"
    finally:
        cluster.close()
