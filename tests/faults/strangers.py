# SPDX-License-Identifier: Apache-2.0
"""Tricks of others: a second controller or worker, peers that lie and rave, specs that nobody would write, floods."""
import collections
import json
import random
import shutil
import socket
import subprocess
import threading
import time
import traceback

import grpc

from cluster import tiny_job, wait_for
from grpc_client import Client
from half_sent import HalfSent, send
from hostile_cluster import WORKER_TIMEOUT
from wild_messages import change, fill


# Two of what there is one of.

def second_controller(storm):
    """On the first one's state, or on its socket: it says so and ends."""
    cluster = storm.cluster
    other = cluster.folder / "other-state"
    state, listen, named = storm.rng.choice([
        (cluster.folder / "controller", f"unix:{cluster.socket_folder}/t", "controller"),
        (other, cluster.address, cluster.address.removeprefix("unix:"))])
    second = subprocess.run([cluster.bin / "tandem-controller", "--state", state, "--listen", listen,
                             "--metrics-listen", "off"], capture_output=True, text=True, timeout=60)
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
            assert second.wait(timeout=120) == 1
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
    assert not any(answer.HasField("value") for answer in answers), "it received a value of the job"
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
        cluster.cli("cancel", name, check=False)  # or it has ended just now
    wait_for("its job ends", lambda: cluster.job(name).get("ended"))
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
        while time.monotonic() < end:
            kind = rng.randrange(5)
            try:
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


def half_sent_messages(storm):
    """Clients begin hundreds of long messages and stop before their last byte: memory holds only so many."""
    cluster = storm.cluster
    before = cluster.resident_kb()
    path = cluster.address.removeprefix("unix:")
    clients = [HalfSent(path, calls=20, length=(4 << 20) - 1024) for _ in range(20)]
    try:
        closed, end = 0, time.monotonic() + 300  # on a busy machine it takes long to send too much
        while closed == 0 and not any(client.ended for client in clients):
            assert time.monotonic() < end, "what is too much is ended"
            closed = send(clients, seconds=10)
            grown = cluster.resident_kb() - before
            assert grown < 500_000, f"the controller grew by {grown} kB"
        return storm.trains_on()
    finally:
        for client in clients:
            client.close()
