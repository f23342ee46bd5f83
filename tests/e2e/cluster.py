# SPDX-License-Identifier: Apache-2.0
"""Real daemons on this machine, for the tests of a whole job: a controller, workers, their trainers, the CLI."""
import contextlib
import glob
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time


def wait_for(what, condition, seconds=120.0):
    """Polls until `condition()` is true; its value. Fails with `what` at the deadline, which is for what never comes:
    a machine that does other things too is slow."""
    deadline = time.monotonic() + seconds
    pause = 0.02
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(pause)
        pause = min(0.2, 1.25 * pause)  # most conditions start a command, which takes the processor from what is waited for


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or while it was read
        return False


def catches(pid, number):
    """Whether the process has a handler of that signal."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1], 16) for line in status if line.startswith("SigCgt")) & 1 << number - 1 != 0


def children(pid):
    """Pids of the direct children of a process, over all its threads."""
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            found += [int(child) for child in pathlib.Path(path).read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def free_port():
    """A port that nobody listens on, below those that the kernel hands out: it may give one of those to any program
    of this machine before the test's program listens there, or while that is away."""
    below = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(min(10_000, below - 1), below)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def corpus():
    """A folder with megabytes of real text that every machine which can build this has."""
    return sorted(glob.glob("/usr/include/c++/*"))[-1]


ENDED = {"SUCCEEDED", "FAILED", "CANCELLED"}


class Cluster:
    """One controller and some workers, each with `slots` slots, on a unix socket."""

    def __init__(self, bin_dir, folder, workers=2, slots=1, metrics="off"):
        self.bin = pathlib.Path(bin_dir)
        self.folder = pathlib.Path(folder)
        self.socket_folder = tempfile.mkdtemp(prefix="tandem-e2e-", dir="/tmp")  # a socket path holds 107 bytes
        self.address = f"unix:{self.socket_folder}/s"
        self.slots = slots
        self.metrics = metrics
        self.controller = None
        self.workers = {}
        with self.closing_on_error():
            self.start_controller()
            for index in range(workers):
                self.start_worker(f"w{index}")

    @contextlib.contextmanager
    def closing_on_error(self):
        """For constructors: who made it has nothing to close where that fails, and jobs would run on for ever."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _spawn(self, name, *args):
        with open(self.folder / f"{name}.log", "ab") as log:
            return subprocess.Popen([self.bin / args[0], *map(str, args[1:])], stdin=subprocess.DEVNULL, stdout=log,
                                    stderr=log, start_new_session=True)

    def start_controller(self, *more):
        self.controller = self._spawn("controller", "tandem-controller", "--state", self.folder / "controller",
                                      "--listen", self.address, "--metrics-listen", self.metrics,
                                      "--worker-timeout", "5s", *more)
        wait_for("the controller answers", lambda: self.controller.poll() is not None
                 or self.cli("get", "workers", "-o", "json", check=False).returncode == 0)
        assert self.controller.poll() is None, (self.folder / "controller.log").read_text()

    def start_worker(self, name, *more):
        self.workers[name] = self._spawn(name, "tandem-worker", "--controller", self.address, "--id", name, "--state",
                                         self.folder / name, "--slots", self.slots, *more)

    def cli(self, *args, check=True, timeout=120, **more):
        done = subprocess.run([self.bin / "tandem", *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=timeout, env={**os.environ, "TANDEM_ADDR": self.address}, **more)
        assert not check or done.returncode == 0, f"tandem {args}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def job(self, name):
        """What describe says; asked again if an overloaded machine keeps the controller from answering, as it asks for."""
        def described():
            done = self.cli("describe", name, "-o", "json", check=False)
            assert done.returncode == 0 or "disk has not answered" in done.stderr, (done.returncode, done.stderr)
            return done.stdout if done.returncode == 0 else None
        return json.loads(wait_for(f"{name} is described", described))

    def state(self, name):
        return self.job(name)["state"].removeprefix("JOB_STATE_")

    def events(self, name):
        return [json.loads(line) for line in self.cli("events", name, "-o", "json").stdout.splitlines()]

    def reports(self, name):
        return [json.loads(line) for line in self.cli("metrics", name, "-o", "json").stdout.splitlines()]

    def step(self, name):
        reports = self.reports(name)
        return reports[-1]["step"] if reports else 0

    def trainers(self):
        return [pid for worker in self.workers.values() if worker.poll() is None for pid in children(worker.pid)]

    def trainers_of(self, worker):
        return children(self.workers[worker].pid)

    def start_cli(self, *args):
        """A command that goes on beside the test."""
        return subprocess.Popen([self.bin / "tandem", *map(str, args)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, env={**os.environ, "TANDEM_ADDR": self.address})

    def write(self, spec):
        path = self.folder / f"{spec['name']}.json"
        path.write_text(json.dumps(spec))
        return path

    def submit(self, spec):
        self.cli("submit", "-f", self.write(spec))
        return spec["name"]

    def wait_state(self, name, state, seconds=120.0):
        def reached():
            now = self.state(name)
            # What the job says of it, or nobody learns why: the folder goes with the test.
            assert now == state or now not in ENDED, f"{name} is {now}, not {state}\n{self.why(name)}"
            return now == state

        deadline = time.monotonic() + seconds
        if state in ENDED:  # without polls, which take the processor from the job; its outcome is looked at below
            self.cli("wait", name, "--timeout", f"{seconds:.0f}s", check=False, timeout=seconds + 60)
        wait_for(f"{name} is {state}", reached, max(0, deadline - time.monotonic()))
        return self.job(name)

    def why(self, name):
        """All that is known of a job: its description with its events, and the logs of daemons and ranks."""
        logs = sorted([*self.folder.glob("*.log"), *self.folder.glob("*/logs/**/*.log")])
        return "\n".join([self.cli("describe", name, check=False).stdout,
                          *(f"== {log.relative_to(self.folder)}\n{log.read_text(errors='replace')[-4000:]}" for log in logs)])

    def kill_controller(self):
        self.controller.kill()
        self.controller.wait()

    def close(self):
        processes = [process for process in (self.controller, *self.workers.values()) if process is not None]
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.socket_folder, ignore_errors=True)


def tiny_job(name, ranks=2, steps=30, directory=None, every_steps=0, **training):
    """A model of two layers that makes a step in milliseconds."""
    spec = {
        "name": name,
        "model": {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 2,
                  "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 256, "model_type": "llama"},
        "data": {"train": corpus(), "tokenizer": "bytes"},
        "training": {"steps": steps, "sequence_length": 64, "micro_batch_size": 2, "global_batch_size": 4 * ranks,
                     "seed": 7, "validate_every_steps": 0,
                     "optimizer": {"name": "adamw", "learning_rate": 1e-3}, **training},
        "parallelism": {"ranks": ranks, "fsdp": {"strategy": "zero3"}},
        "report": {"parameter_norms": True},
    }
    if directory is not None:
        spec["checkpoint"] = {"directory": str(directory), "every_steps": every_steps, "keep": 2}
    return spec
