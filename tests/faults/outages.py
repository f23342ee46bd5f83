# SPDX-License-Identifier: Apache-2.0
"""Tricks of the machines: clocks jump, disks are slow or full, links are held, cut and slow, processes stop and die."""
import contextlib
import errno
import json
import signal
import socket
import time

from cluster import tiny_job, wait_for
from hostile_cluster import WORKER_TIMEOUT
from storm import CONTROLLER


# Clocks.

def clock_jumps(storm):
    """The wall clock of a daemon, or of all, is set while they wait, and set right again."""
    names = storm.rng.choice([[storm.any_daemon()], sorted(storm.cluster.faults)])
    ahead = storm.rng.choice([-86400 * 30, -3600, -20, 20, 3600, 86400 * 30])
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(storm.cluster.faults[name].with_faults(clock=ahead))
        time.sleep(1.5 * WORKER_TIMEOUT)
        storm.trains_on()
        storm.cluster.check_new_job(f"jumped-{storm.rng.randrange(1 << 40)}", ranks=2)
    return storm.trains_on()


def clock_set_back_while_a_link_is_held(storm):
    """The controller notices in time all the same that a worker is away."""
    worker = storm.any_worker()
    with storm.cluster.faults[CONTROLLER].with_faults(clock=storm.rng.choice([-3600, -60])):
        time.sleep(storm.rng.uniform(0, 0.2))
        storm.cluster.relays[worker].mode = "held"
        try:
            wait_for("the job stops", lambda: storm.cluster.state(storm.victim) in ("STOPPING", "FAILED"),
                     8 * WORKER_TIMEOUT)  # by its clock that was set back: more than a minute
        finally:
            storm.cluster.relays[worker].mode = "on"
        return storm.lost(worker)


def controller_returns_in_another_time(storm):
    """The controller is killed and comes back on a machine whose clock is wrong."""
    storm.cluster.kill_controller()
    storm.cluster.faults[CONTROLLER].set(clock=storm.rng.choice([-86400, -60, 60, 86400]))
    storm.cluster.start_controller()
    storm.trains_on()
    text = storm.cluster.cli("describe", storm.victim).stdout
    assert " -" not in text.replace(" - ", ""), f"a negative time in\n{text}"
    storm.cluster.faults[CONTROLLER].set()
    return storm.trains_on()


# Disks.

def slow_disk(storm):
    faults = storm.rng.choice([{"sync": storm.rng.uniform(0.1, 1.0)}, {"write": storm.rng.uniform(0.005, 0.03)}])
    with storm.cluster.faults[storm.any_daemon()].with_faults(**faults):
        storm.cluster.check_steps(storm.victim, seconds=120)
        storm.cluster.check_new_job(f"slow-{storm.rng.randrange(1 << 40)}", seconds=180)
    return storm.trains_on()


def full_disk_of_a_worker(storm):
    """A job that it cannot note is refused with the reason; what runs goes on; with room all is as before."""
    name = f"full-{storm.rng.randrange(1 << 40)}"
    with storm.cluster.faults[storm.any_worker()].with_faults(error=storm.rng.choice([errno.ENOSPC, errno.EIO])):
        spec = tiny_job(name, ranks=3, steps=5)
        spec["resources"] = {"ranks_per_worker": 1}
        storm.cluster.submit(spec)
        wait_for("it is refused", lambda: storm.cluster.state(name) == "FAILED")
        job = storm.cluster.job(name)
        assert job["reason"] == "WorkerDisk", job["message"]
        storm.cluster.check_steps(storm.victim)
    storm.cluster.check_new_job(f"room-{storm.rng.randrange(1 << 40)}")
    return f"{storm.trains_on()}; the new one failed with WorkerDisk"


def full_disk_of_the_controller(storm):
    """A submit says why it is not taken; nothing else changes."""
    name = f"full-{storm.rng.randrange(1 << 40)}"
    path = storm.cluster.folder / f"{name}.json"
    path.write_text(json.dumps(tiny_job(name)))
    with storm.cluster.faults[CONTROLLER].with_faults(error=errno.ENOSPC):
        refused = storm.cluster.cli("submit", "-f", path, check=False, timeout=30)
        assert refused.returncode != 0 and "make room" in refused.stderr, refused.stderr
        time.sleep(1)
        storm.cluster.check_serves()
    wait_for("it takes jobs again",
             lambda: storm.cluster.cli("submit", "-f", path, check=False, timeout=30).returncode == 0)
    storm.cluster.cli("cancel", name, check=False)  # or it has ended already
    return f"{storm.trains_on()}; submits heard why"


# Links.

def held_link(storm):
    """A cable is pulled and put back: neither end is notified."""
    worker = storm.any_worker()
    relay = storm.cluster.relays[worker]
    short = storm.rng.random() < 0.5
    relay.mode = "held"
    time.sleep(storm.rng.uniform(0.1, 0.2) * WORKER_TIMEOUT if short else 2.5 * WORKER_TIMEOUT)
    if short:
        relay.mode = "on"
        return "shortly: " + storm.trains_on()
    wait_for("the job stops", lambda: storm.cluster.state(storm.victim) in ("STOPPING", "FAILED"))
    relay.mode = "on"
    return "for long: " + storm.lost(worker)


def cut_links(storm):
    for _ in range(storm.rng.randrange(1, 6)):
        storm.cluster.relays[storm.any_worker()].cut()
        time.sleep(storm.rng.uniform(0, 0.3))
    return storm.trains_on()


def slow_link(storm):
    worker = storm.any_worker()
    storm.cluster.relays[worker].mode = storm.rng.choice([10_000, 20_000, 100_000])
    try:
        time.sleep(2 * WORKER_TIMEOUT)
        assert worker in storm.cluster.connected()
    finally:
        storm.cluster.relays[worker].mode = "on"
    return storm.trains_on()


def half_open_clients(storm):
    """Hundreds that connect and say nothing, or begin and fall silent, or never read."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(storm.cluster.address.removeprefix("unix:"))
            client.sendall(storm.rng.choice([b"", b"P", preface[:10], preface, preface + b"\x00\x40\x00\x00\x00"]))
        return storm.trains_on()


# Processes.

def stopped_controller(storm):
    storm.cluster.controller.send_signal(signal.SIGSTOP)
    long = storm.rng.random() < 0.2
    time.sleep(18 if long else storm.rng.uniform(0.5, 2) * WORKER_TIMEOUT)  # after 15 s gRPC gives the workers' up
    storm.cluster.controller.send_signal(signal.SIGCONT)
    return ("for long: " if long else "shortly: ") + storm.trains_on()


def stopped_worker(storm):
    worker = storm.any_worker()
    short = storm.rng.random() < 0.5
    storm.cluster.workers[worker].send_signal(signal.SIGSTOP)
    time.sleep(storm.rng.uniform(0.1, 0.2) * WORKER_TIMEOUT if short else 2.5 * WORKER_TIMEOUT)
    if not short:  # the controller counts only the time in which it ran itself
        wait_for("the job stops", lambda: storm.cluster.state(storm.victim) in ("STOPPING", "FAILED"))
    storm.cluster.workers[worker].send_signal(signal.SIGCONT)
    return "shortly: " + storm.trains_on() if short else "for long: " + storm.lost(worker)


def killed_controller(storm):
    for _ in range(storm.rng.randrange(1, 4)):
        storm.cluster.kill_controller()
        storm.cluster.start_controller()
        time.sleep(storm.rng.uniform(0, 0.5))
    return storm.trains_on()
