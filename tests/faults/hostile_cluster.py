# SPDX-License-Identifier: Apache-2.0
"""A cluster whose links, clocks and disks a test can spoil, and the questions to ask of it afterwards."""
import json
import pathlib
import subprocess
import os
import time

from cluster import Cluster, alive, children, tiny_job, wait_for
from faulty_libc import Faults
from relay import Relay

WORKERS = 3
SLOTS = 2
WORKER_TIMEOUT = 5.0  # longer than the longest pause between two dials of a worker


class HostileCluster(Cluster):
    """Every worker reaches the controller, at an address for workers, through a relay of its own; every daemon has faults of its own."""

    def __init__(self, bin_dir, folder, library):
        self.library = library
        self.faults, self.relays, self.stopped = {}, {}, []
        super().__init__(bin_dir, folder, workers=0, slots=SLOTS, metrics="127.0.0.1:0")
        with self.closing_on_error():
            for index in range(WORKERS):
                self.start_worker(f"w{index}")
            self.wait_workers()

    def _spawn(self, name, *args):
        faults = self.faults.setdefault(name, Faults(self.library, self.folder / f"{name}.faults"))
        with open(self.folder / f"{name}.log", "ab") as log:
            return subprocess.Popen([self.bin / args[0], *map(str, args[1:])], stdin=subprocess.DEVNULL, stdout=log,
                                    stderr=log, start_new_session=True, env={**os.environ, **faults.environment})

    def start_controller(self):
        self.controller = self._spawn("controller", "tandem-controller", "--state", self.folder / "controller",
                                      "--listen", self.address, "--worker-listen",
                                      f"unix:{self.socket_folder}/w", "--metrics-listen", self.metrics,
                                      "--worker-timeout", f"{WORKER_TIMEOUT}s")
        wait_for("the controller answers", lambda: self.controller.poll() is not None
                 or self.cli("get", "workers", "-o", "json", check=False).returncode == 0)
        assert self.controller.poll() is None, (self.folder / "controller.log").read_text()

    def start_worker(self, name):
        if name not in self.relays:
            self.relays[name] = Relay(f"{self.socket_folder}/{name}", f"{self.socket_folder}/w")
        address, self.address = self.address, f"unix:{self.socket_folder}/{name}"
        try:
            super().start_worker(name)
        finally:
            self.address = address

    def close(self):
        super().close()
        for relay in self.relays.values():
            relay.close()

    # What holds whatever was done.

    def connected(self):
        workers = json.loads(self.cli("get", "workers", "-o", "json").stdout)
        return sorted(worker["id"] for worker in workers if worker.get("connected"))

    def wait_workers(self):
        wait_for("every worker is connected", lambda: set(self.workers) <= set(self.connected()))

    def check_serves(self, seconds=30.0):
        """The controller runs and answers in time."""
        assert self.controller.poll() is None, f"the controller ended with {self.controller.returncode}"
        begin = time.monotonic()
        self.cli("get", "jobs", "-o", "json", timeout=seconds * 4)
        took = time.monotonic() - begin
        assert took < seconds, f"`get jobs` took {took:.1f} s"
        for name, worker in self.workers.items():
            assert worker.poll() is None, f"worker {name} ended with {worker.returncode}"

    def check_steps(self, name, steps=3, seconds=60.0):
        """The job trains on, in its first attempt, and nothing says otherwise."""
        before = self.step(name)
        wait_for(f"{name} makes {steps} steps more", lambda: self.step(name) >= before + steps, seconds)
        job = self.job(name)
        assert (job["state"], job["attempt"]) == ("RUNNING", 1), job

    def check_new_job(self, name, seconds=120.0, ranks=WORKERS):
        """A new job takes a slot of each worker, trains and succeeds."""
        spec = tiny_job(name, ranks=ranks, steps=5)
        spec["resources"] = {"ranks_per_worker": 1}
        self.submit(spec)
        wait_for(f"{name} ends", lambda: self.state(name) in ("SUCCEEDED", "FAILED", "CANCELLED"), seconds)
        job = self.job(name)
        assert job["state"] == "SUCCEEDED", job.get("message")

    def check_reports(self, name):
        """No report of a job that has ended is lost, or there twice."""
        steps = [report["step"] for report in self.reports(name)]
        assert steps == list(range(1, len(steps) + 1)), f"reports of {name} have gaps: {steps[:5]}...{steps[-5:]}"

    def check_no_rank_left(self, pids):
        wait_for("no trainer is left", lambda: not any(alive(pid) for pid in pids))

    def all_ranks(self):
        return [pid for worker in self.workers.values() for pid in children(worker.pid)]

    def resident_kb(self):
        status = pathlib.Path(f"/proc/{self.controller.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))
