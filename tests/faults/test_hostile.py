"""Uses the service as somebody would who wants it to fail, for as long as asked, and counts what happened.

A job trains on three workers while tricks are played, drawn at random: clocks jump, disks are slow or full, links
are held, cut and slow, processes stop and die, strangers claim what is not theirs, specs are mutated, everything is
flooded. After each the cluster must serve, and the job must train on or end with the cause that fits. One round of
each trick runs in CI; the hostile half hour is

    pytest tests/faults/test_hostile.py --bin-dir build/release/bin --rounds 20 --specs 2000 [--seed N] [--tricks a,b]
"""
import collections
import contextlib
import errno
import json
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
import traceback

import grpc
import pytest

from cluster import alive, tiny_job, wait_for
from faulty_libc import compile_into
from grpc_client import Client
from hostile_cluster import WORKER_TIMEOUT, HostileCluster
from wild_messages import change, fill

VICTIM = "victim"
CONTROLLER = "controller"
LOST = "the job ended with WorkerLost"
HELD = "the job trained on"


class Storm:
    """The cluster, its victim and the dice. A trick returns what happened, in words that can be counted."""

    def __init__(self, cluster, rng, specs):
        self.cluster, self.rng, self.specs = cluster, rng, specs
        self.number = 0
        self.start_victim()

    def start_victim(self):
        self.number += 1
        self.victim = f"{VICTIM}-{self.number}"
        spec = tiny_job(self.victim, ranks=3, steps=10_000_000)
        spec["resources"] = {"ranks_per_worker": 1}
        self.cluster.submit(spec)
        wait_for("the victim trains", lambda: self.cluster.step(self.victim) >= 3, 60)
        self.ranks = self.cluster.all_ranks()

    def end_victim(self):
        if self.cluster.state(self.victim) == "RUNNING":
            self.cluster.cli("cancel", self.victim)
        wait_for("the victim has ended", lambda: self.cluster.job(self.victim).get("ended"), 20)
        self.cluster.check_no_rank_left(self.ranks)
        self.cluster.check_reports(self.victim)

    def trains_on(self):
        self.cluster.check_serves()
        self.cluster.wait_workers()
        self.cluster.check_steps(self.victim)
        return HELD

    def lost(self, worker):
        """The victim has failed since `worker` was away; its ranks are gone, and a new one trains."""
        wait_for("the job fails", lambda: self.cluster.state(self.victim) == "FAILED", 30)
        cause = self.cluster.job(self.victim)["cause"]
        assert (cause["reason"], cause["worker"]) == ("WorkerLost", worker), cause
        self.cluster.wait_workers()
        self.end_victim()
        self.cluster.check_serves()
        self.start_victim()
        return LOST

    def any_worker(self):
        return self.rng.choice(sorted(self.cluster.workers))

    def any_daemon(self):
        return self.rng.choice([CONTROLLER, *sorted(self.cluster.workers)])


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
                     2 * WORKER_TIMEOUT)
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
        storm.cluster.check_steps(storm.victim, seconds=40)
        storm.cluster.check_new_job(f"slow-{storm.rng.randrange(1 << 40)}", seconds=60)
    return storm.trains_on()


def full_disk_of_a_worker(storm):
    """A job that it cannot note is refused with the reason; what runs goes on; with room all is as before."""
    name = f"full-{storm.rng.randrange(1 << 40)}"
    with storm.cluster.faults[storm.any_worker()].with_faults(error=storm.rng.choice([errno.ENOSPC, errno.EIO])):
        spec = tiny_job(name, ranks=3, steps=5)
        spec["resources"] = {"ranks_per_worker": 1}
        storm.cluster.submit(spec)
        wait_for("it is refused", lambda: storm.cluster.state(name) == "FAILED", 20)
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
             lambda: storm.cluster.cli("submit", "-f", path, check=False, timeout=30).returncode == 0, 20)
    storm.cluster.cli("cancel", name, check=False)  # or it has ended already
    return f"{storm.trains_on()}; submits heard why"


# Links.

def held_link(storm):
    """A cable is pulled and put back: neither end is told."""
    worker = storm.any_worker()
    relay = storm.cluster.relays[worker]
    short = storm.rng.random() < 0.5
    relay.mode = "held"
    time.sleep(storm.rng.uniform(0.1, 0.4) * WORKER_TIMEOUT if short else 2.5 * WORKER_TIMEOUT)
    if short:
        relay.mode = "on"
        return "shortly: " + storm.trains_on()
    wait_for("the job stops", lambda: storm.cluster.state(storm.victim) in ("STOPPING", "FAILED"), 10)
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
    sockets = []
    try:
        for _ in range(300):
            client = socket.socket(socket.AF_UNIX)
            client.connect(storm.cluster.address.removeprefix("unix:"))
            client.sendall(storm.rng.choice([b"", b"P", preface[:10], preface, preface + b"\x00\x40\x00\x00\x00"]))
            sockets.append(client)
        return storm.trains_on()
    finally:
        for client in sockets:
            client.close()


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
    time.sleep(storm.rng.uniform(0.1, 0.4) * WORKER_TIMEOUT if short else 2.5 * WORKER_TIMEOUT)
    storm.cluster.workers[worker].send_signal(signal.SIGCONT)
    return "shortly: " + storm.trains_on() if short else "for long: " + storm.lost(worker)


def killed_controller(storm):
    for _ in range(storm.rng.randrange(1, 4)):
        storm.cluster.kill_controller()
        storm.cluster.start_controller()
        time.sleep(storm.rng.uniform(0, 0.5))
    return storm.trains_on()


# Two of what there is one of.

def second_controller(storm):
    """On the first one's state, or on its socket: it says so and ends."""
    cluster = storm.cluster
    other = cluster.folder / "other-state"
    state, listen, named = storm.rng.choice([
        (cluster.folder / "controller", f"unix:{cluster.socket_folder}/t", "controller"),
        (other, cluster.address, cluster.address.removeprefix("unix:"))])
    second = subprocess.run([cluster.bin / "tandem-controller", "--state", state, "--listen", listen,
                             "--metrics-listen", "off"], capture_output=True, text=True, timeout=20)
    shutil.rmtree(other, ignore_errors=True)
    assert second.returncode == 1 and named in second.stderr, (second.returncode, second.stderr)
    assert second.stderr.count("\n") == 1, second.stderr
    return f"{storm.trains_on()}; the second ended with one line"


def another_controller_behind_the_address(storm):
    """The address leads to a controller of other jobs for a while: it must not stop ranks of the first one."""
    cluster = storm.cluster
    path = f"{cluster.socket_folder}/other"
    state = cluster.folder / "other-controller"
    log = open(cluster.folder / "other.log", "ab")
    arguments = [cluster.bin / "tandem-controller", "--state", state, "--listen", f"unix:{path}", "--metrics-listen",
                 "off"]
    for _ in range(storm.rng.choice([0, 40])):  # of a later term than the first one
        starting = subprocess.Popen(arguments, stdout=log, stderr=log)
        wait_for("it serves", lambda: socket_answers(path))
        starting.kill()
        starting.wait()
    other = subprocess.Popen(arguments, stdout=log, stderr=log)
    worker = storm.any_worker()
    relay = cluster.relays[worker]
    try:
        wait_for("it serves", lambda: socket_answers(path))
        relay.target, first = path, relay.target
        relay.cut()
        time.sleep(0.3 * WORKER_TIMEOUT)
        relay.target = first
        relay.cut()
        return storm.trains_on()
    finally:
        other.kill()
        other.wait()
        shutil.rmtree(state)


def socket_answers(path):
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


def second_worker(storm):
    """Of a name that is taken, or on a state folder that is taken."""
    cluster = storm.cluster
    name = storm.any_worker()
    same_state = storm.rng.random() < 0.5
    other = cluster.folder / "other-worker"
    second = subprocess.Popen(
        [cluster.bin / "tandem-worker", "--controller", cluster.address, "--id", "other" if same_state else name,
         "--state", cluster.folder / name if same_state else other], stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True)
    try:
        if same_state:
            assert second.wait(timeout=10) == 1
            assert str(cluster.folder / name) in second.stderr.read()
        else:
            time.sleep(1.5)
        return f"{storm.trains_on()}; of one {'state folder' if same_state else 'name'}"
    finally:
        second.kill()
        second.wait()
        shutil.rmtree(other, ignore_errors=True)


# Strangers.

def lying_worker(storm):
    """A worker that claims the victim's attempt: says that it saved, failed and ended, sets its keys, reports."""
    client = Client(storm.cluster.address)
    attempt = {"jobId": storm.cluster.job(storm.victim)["id"], "attempt": 1}
    name = f"liar-{storm.rng.randrange(1 << 40)}"
    cause = {"class": "FAILURE_CLASS_INFRASTRUCTURE", "reason": "RankKilled", "message": "lie", "signal": 9}
    status = {"id": attempt, "ended": True, "ranks": [
        {"rank": rank, "phase": "RANK_PHASE_EXITED", "exited": True, "cause": cause} for rank in range(3)]}
    hello = {"workerId": name, "incarnation": "1", "protocolMin": 1, "protocolMax": 1, "inventory": {
        "hostname": "h", "attempts": [status] if storm.rng.random() < 0.5 else []}}
    lies = [{"status": status}, {"set": {"id": attempt, "key": "dp/0", "value": "bGll", "rank": 0}},
            {"get": {"id": attempt, "key": "dp/0", "rank": 0}},
            {"checkpoint": {"id": attempt, "number": "1", "committed": {"step": "999999", "path": "/lie"}}}]
    storm.rng.shuffle(lies)
    messages = [{"hello": hello, "seq": "1"}, *({**lie, "seq": str(2 + i)} for i, lie in enumerate(lies))]
    answers = client.converse("tandem.v1.Workers", "Session", messages, acknowledged=lambda answer: answer.ack >= 5)
    assert not any(answer.HasField("value") for answer in answers), "it was told a value of the job"
    newer = {"id": {**attempt, "attempt": 7}, "seq": "1", "reports": [
        {"step": str(step), "loss": 1e30, "attempt": 7} for step in (1, 2, 999_999_999)]}
    client.converse("tandem.v1.Workers", "Reports", [newer], acknowledged=lambda answer: True, seconds=1)
    job = storm.cluster.job(storm.victim)
    assert int(job.get("last_step", 0)) < 900_000 and not job.get("checkpoints"), job
    assert "CheckpointCommitted" not in storm.cluster.cli("events", storm.victim).stdout
    reports = storm.cluster.reports(storm.victim)
    assert max(report["loss"] for report in reports) < 1e3, "its reports were taken"
    return storm.trains_on()


def raving_worker(storm):
    """A worker that takes a job and says anything that fits the protocol about it and all else."""
    cluster = storm.cluster
    client = Client(cluster.address)
    name = f"raving-{storm.rng.randrange(1 << 40)}"
    # The others' free slots are one each: only here is room for four.
    hello = {"workerId": name, "incarnation": "1", "protocolMin": 1, "protocolMax": 1, "inventory": {
        "slots": [{"index": i, "device": "DEVICE_CPU", "healthy": True} for i in range(8)]}}
    spec = tiny_job(name, ranks=8, steps=5)
    cluster.submit(spec)
    attempt = {"jobId": cluster.job(name)["id"], "attempt": 1}
    messages = [{"hello": hello, "seq": "1"}]
    for seq in range(2, 60):
        message = client.message("tandem.v1.WorkerMessage")
        fill(message, storm.rng)
        for field in ("status", "set", "get", "checkpoint"):
            if message.HasField(field) and storm.rng.random() < 0.8:
                getattr(message, field).id.job_id, getattr(message, field).id.attempt = attempt["jobId"], 1
        message.ClearField("hello")
        message.seq = seq
        messages.append(message)
    client.converse("tandem.v1.Workers", "Session", messages, acknowledged=lambda answer: answer.ack >= 59, seconds=5)
    for arguments in (("describe", name), ("describe", name, "-o", "json"), ("events", name), ("get", "jobs"),
                      ("get", "workers"), ("events", name, "-o", "json")):
        shown = cluster.cli(*arguments).stdout
        assert shown.replace("\n", "").isprintable() or "-o" in arguments, f"{arguments}: {shown!r}"
    if not cluster.job(name).get("ended"):
        cluster.cli("cancel", name)
    wait_for("its job ends", lambda: cluster.job(name).get("ended"), 20)
    return storm.trains_on()


# Specs and floods.

def mutated_specs(storm):
    """Each is refused in words, or taken and then cancelled; nothing else is ever answered."""
    client = Client(storm.cluster.address)
    answers, taken = collections.Counter(), []
    for number in range(storm.specs):
        request = client.message("tandem.v1.SubmitRequest", {"spec": enums(tiny_job(f"mutated-{number}"))})
        for _ in range(storm.rng.randrange(1, 4)):
            change(request.spec, storm.rng)
        try:
            job = client.send("tandem.v1.Jobs", "Submit", request)
            answers["taken"] += 1
            taken.append(job.id)
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.ALREADY_EXISTS,
                                    grpc.StatusCode.RESOURCE_EXHAUSTED), (error.code(), error.details())
            assert error.details() and error.details().strip().replace("\n", " ").isprintable(), error.details()
            answers[error.code().name] += 1
        if len(taken) > 20 or number == storm.specs - 1:
            for job in taken:
                if not storm.cluster.job(job).get("ended"):
                    storm.cluster.cli("cancel", job, check=False)  # or it has ended just now
            taken.clear()
    assert answers["INVALID_ARGUMENT"] > storm.specs / 4, answers
    storm.trains_on()
    return "; ".join(f"{name} {count}" for name, count in sorted(answers.items()))


def flood(storm):
    """Many clients at once submit and cancel, list, validate, watch and scrape."""
    cluster = storm.cluster
    before = cluster.resident_kb()
    end = time.monotonic() + 3
    failures = []

    def act(seed):
        rng = random.Random(seed)
        client = Client(cluster.address)
        try:
            while time.monotonic() < end:
                kind = rng.randrange(5)
                if kind == 0:
                    job = client.call("tandem.v1.Jobs", "Submit", {"spec": enums(tiny_job(f"flood-{rng.randrange(1 << 60)}", ranks=9))})
                    client.call("tandem.v1.Jobs", "Cancel", {"job": job.id})
                elif kind == 1:
                    client.call("tandem.v1.Jobs", "ListJobs", {"pageSize": 1000, "pageToken": rng.choice(["", "x" * 999])})
                elif kind == 2:
                    client.call("tandem.v1.Jobs", "Validate", {"spec": enums(tiny_job("a", ranks=rng.choice([1, 64])))})
                elif kind == 3:
                    for _ in client.stream("tandem.v1.Jobs", "Watch", {"reports": True, "norms": True}):
                        if rng.random() < 0.02:
                            break
                else:
                    client.call("tandem.v1.Jobs", "ListReports", {"job": storm.victim, "pageSize": 100_000})
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED):
                failures.append(f"{error.code()}: {error.details()}")
        except Exception:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=act, args=(storm.rng.randrange(1 << 40),)) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[:3]
    grown = cluster.resident_kb() - before
    assert grown < 200_000, f"the controller grew by {grown} kB"
    return storm.trains_on()


def enums(spec):
    spec = json.loads(json.dumps(spec))
    spec["training"]["optimizer"]["name"] = "OPTIMIZER_NAME_ADAMW"
    spec["parallelism"]["fsdp"]["strategy"] = "STRATEGY_ZERO3"
    return spec


TRICKS = [clock_jumps, clock_set_back_while_a_link_is_held, controller_returns_in_another_time, slow_disk, full_disk_of_a_worker,
          full_disk_of_the_controller, held_link, cut_links, slow_link, half_open_clients, stopped_controller,
          stopped_worker, killed_controller, second_controller, another_controller_behind_the_address, second_worker,
          lying_worker, raving_worker, flood]


def test_nothing_that_is_done_to_it_makes_it_lie_hang_or_crash(request, bin_dir, tmp_path):
    option = request.config.getoption
    seed = random.SystemRandom().randrange(1 << 32) if option("--seed") is None else option("--seed")
    chosen = [trick for trick in TRICKS if not option("--tricks") or trick.__name__ in option("--tricks").split(",")]
    rng = random.Random(seed)
    plays = [trick for trick in chosen for _ in range(option("--rounds"))]
    rng.shuffle(plays)
    if not option("--tricks") or mutated_specs.__name__ in option("--tricks").split(","):
        plays.append(mutated_specs)
    print(f"\nseed {seed}, {len(plays)} plays")
    library = compile_into(tmp_path)
    table, failures = collections.Counter(), []
    cluster, storm = None, None
    for number, trick in enumerate(plays):
        try:
            if cluster is None:
                (tmp_path / f"cluster-{number}").mkdir()
                cluster = HostileCluster(bin_dir, tmp_path / f"cluster-{number}", library)
                storm = Storm(cluster, rng, option("--specs"))
            begin = time.monotonic()
            outcome = trick(storm)
            print(f"{number}: {trick.__name__}: {outcome} ({time.monotonic() - begin:.1f} s)", flush=True)
        except Exception:
            outcome = "WRONG"
            failures.append(f"{number}: {trick.__name__}: {traceback.format_exc()}")
            print(failures[-1], flush=True)
            if cluster is not None:
                print("\n".join(f"{log.name}: {line}" for log in sorted(cluster.folder.glob("*.log"))
                                for line in log.read_text(errors="replace").splitlines()[-8:]), flush=True)
                with contextlib.suppress(Exception):
                    cluster.close()
                cluster = None
        table[(trick.__name__, outcome)] += 1
    if cluster is not None:
        try:
            storm.end_victim()
            cluster.check_new_job("last")
        except Exception:
            failures.append(f"at the end: {traceback.format_exc()}")
        cluster.close()
        for log in cluster.folder.glob("*.log"):
            assert "terminate called" not in log.read_text(errors="replace"), log
    for (name, outcome), count in sorted(table.parameters()):
        print(f"{count:5}  {name:40} {outcome}")
    if failures:
        pytest.fail(f"{len(failures)} of {len(plays)}; --seed {seed} --rounds {option('--rounds')} draws them again\n"
                    + "\n".join(failures))
