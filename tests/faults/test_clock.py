# SPDX-License-Identifier: Apache-2.0
"""The wall clock of every machine is set back while a cluster waits, as after a wrong time server was put right."""
import contextlib
import os
import signal
import subprocess
import time

import pytest
from cluster import Cluster, catches, tiny_job, wait_for
from faulty_libc import Faults, compile_into
from hostile_cluster import HostileCluster

AHEAD = 30 * 86400.0
# Longer than any timer of gRPC that is waited for here: that of its backup poller, 5 s.
LONGER_THAN_A_TIMER = 6.0


def test_workers_return_after_the_clock_is_set_back(bin_dir, tmp_path):
    with contextlib.closing(HostileCluster(bin_dir, tmp_path, compile_into(tmp_path))) as cluster:
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
        assert took < 45, f"the last worker was back after {took:.1f} s"


class Commands:
    """Runs of `tandem` against a controller without workers, each with a wall clock of its own."""

    def __init__(self, bin_dir, folder):
        self.folder = folder
        self.library = compile_into(folder)
        self.cluster = Cluster(bin_dir, folder, workers=0)
        self.running = []  # (arguments, process, its faults)

    def start(self, *args):
        faults = Faults(self.library, self.folder / f"command{len(self.running)}.faults")
        faults.set(clock=AHEAD)
        process = subprocess.Popen([self.cluster.bin / "tandem", *args], stdin=subprocess.DEVNULL, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   env={**os.environ, **faults.environment, "TANDEM_ADDR": self.cluster.address})
        self.running.append((args, process, faults))

    def set_clocks_back(self):
        for _, _, faults in self.running:
            faults.set()

    def exit_codes(self, seconds):
        """Of all that run, in the order of their starts; those that are still there after `seconds` have None."""
        deadline = time.monotonic() + seconds
        for _, process, _ in self.running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
        codes = [(" ".join(args[:2]), process.poll()) for args, process, _ in self.running]
        self.close_commands()
        return codes

    def close_commands(self):
        for _, process, _ in self.running:
            process.kill()
        self.running = []

    def close(self):
        self.close_commands()
        self.cluster.close()


@pytest.fixture
def commands(bin_dir, tmp_path):
    commands = Commands(bin_dir, tmp_path)
    yield commands
    commands.close()


def test_commands_keep_limits_though_clocks_are_set_back(commands, tmp_path):
    commands.cluster.submit(tiny_job("waits"))
    os.kill(commands.cluster.controller.pid, signal.SIGSTOP)
    try:
        for args in (["get", "jobs"], ["describe", "waits"], ["submit", "-f", str(tmp_path / "waits.json"), "--name", "b"],
                     ["wait", "waits", "--timeout", "5s"], ["watch", "waits"]):
            commands.start(*args)
        time.sleep(2)
        commands.set_clocks_back()
        time.sleep(1)
        watch = commands.running[-1][1]
        wait_for("the watch catches the signal", lambda: catches(watch.pid, signal.SIGINT))
        watch.send_signal(signal.SIGINT)  # a watch has no limit
        # A call has 10 s.
        assert commands.exit_codes(60) == [("get jobs", 7), ("describe waits", 7), ("submit -f", 7), ("wait waits", 7),
                                           ("watch waits", 130)]
    finally:
        os.kill(commands.cluster.controller.pid, signal.SIGCONT)


def test_missing_controllers_are_reported_by_any_clock(commands):
    commands.cluster.controller.kill()
    commands.cluster.controller.wait()
    for args in (["get", "jobs"], ["watch", "waits"]):
        for pause in (0.0, 0.05, 0.1, 0.2):  # wherever they are then
            commands.start(*args)
            time.sleep(pause)
            commands.set_clocks_back()
    assert {code for _, code in commands.exit_codes(60)} == {6}


@pytest.mark.parametrize("when", ["before", "while it is away"])
def test_a_watch_returns_after_clocks_are_set_back(commands, when):
    commands.cluster.submit(tiny_job("waits"))
    commands.start("watch", "waits")
    time.sleep(LONGER_THAN_A_TIMER)
    if when == "before":
        commands.set_clocks_back()
        time.sleep(LONGER_THAN_A_TIMER)
    commands.cluster.controller.kill()
    commands.cluster.controller.wait()
    time.sleep(2)  # it dials again
    commands.set_clocks_back()
    commands.cluster.start_controller()
    commands.cluster.cli("cancel", "waits")
    assert commands.exit_codes(60) == [("watch waits", 130)]
