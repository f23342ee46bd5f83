# SPDX-License-Identifier: Apache-2.0
"""Kills one process of a running job and looks whom the job's end blames.

Whatever is killed, however and whenever: the job fails with the rank or worker that was hit and the signal that
hit it, never with what the others felt of it. A sample runs in CI; the whole sweep is

    pytest tests/faults/test_kills.py --bin-dir build/release/bin --kills 500 [--seed N]
"""
import collections
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import time

import pytest

from cluster import Cluster, alive, tiny_job, wait_for

# By how often they are drawn. Those of the second group dump core where that is on. (SIGTERM, which a batch system
# sends to every process of a job, ranks leave to their daemon.)
SIGNALS = {signal.SIGKILL: 6, signal.SIGINT: 1, signal.SIGHUP: 1, signal.SIGUSR1: 1, signal.SIGALRM: 1,
           signal.SIGSEGV: 6, signal.SIGABRT: 6, signal.SIGBUS: 2, signal.SIGFPE: 1, signal.SIGILL: 1,
           signal.SIGQUIT: 1, signal.SIGTRAP: 1, signal.SIGSYS: 1, signal.SIGXCPU: 1}
# When the blow falls. "starting" is any moment from the fork on, so before, while and after the ranks connect.
# A job that saves after each step is mostly saving; one that has few steps may be over before the blow.
MOMENTS = {"starting": 2, "stepping": 5, "saving": 2, "ending": 1}

Case = collections.namedtuple("Case", "target signal moment cores ranks ranks_per_worker delay")


def draw(rng):
    """One case. A worker is killed with the signals that services are stopped with."""
    target = rng.choices(["rank", "worker"], [4, 1])[0]
    number = (rng.choices(list(SIGNALS), SIGNALS.values())[0] if target == "rank"
              else rng.choice([signal.SIGTERM, signal.SIGKILL]))
    moment = rng.choices(list(MOMENTS), MOMENTS.values())[0]
    delay = rng.uniform(0, {"starting": 1.2, "ending": 0.5}.get(moment, 0.1))
    return Case(target, number, moment, rng.random() < 0.5, rng.choice([2, 3, 4]), rng.choice([1, 2]), delay)


def processes(cluster, job):
    """{rank: (pid, worker)} of the ranks that have been started."""
    found = {}
    for worker in cluster.workers:
        record = cluster.folder / worker / "attempts" / job["id"] / "attempt-1" / "ranks.json"
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            for rank in json.loads(record.read_text())["ranks"]:
                if rank["pid"] > 0:
                    found[rank["rank"]] = (rank["pid"], worker)
    return found


def expected_of(case, rank, worker):
    if case.target == "rank":
        return {"reason": "RankKilled", "rank": rank, "worker": worker, "signal": int(case.signal)}
    # SIGTERM asks the daemon to end: it stops its ranks and says so, where it still can.
    reasons = {"WorkerLost"} if case.signal == signal.SIGKILL else {"WorkerLost", "StoppedByWorker"}
    return {"reason": reasons, "worker": worker}


def differences(expected, cause):
    """What of the cause is not as expected, in words; empty where it is right."""
    wrong = []
    for field, value in expected.items():
        got = cause.get(field, 0 if isinstance(value, int) else "")
        if got != value and not (isinstance(value, set) and got in value):
            wrong.append(f"{field} {got!r} instead of {value!r}")
    return "; ".join(wrong)


def run(cluster, case, number, rng):
    """What is wrong, in words, or ""; the seconds from the kill to the end; whether another cause was reported first.

    None: the job was over before."""
    name = f"kill-{number}"
    spec = tiny_job(name, ranks=case.ranks, steps=60 if case.moment == "ending" else 1_000_000,
                    directory=cluster.folder / name if case.moment == "saving" else None, every_steps=1)
    spec["resources"] = {"ranks_per_worker": case.ranks_per_worker}
    cluster.submit(spec)
    job = wait_for("it is placed", lambda: (lambda j: j if j.get("attempts") else None)(cluster.job(name)))
    started = wait_for("every rank is started",
                       lambda: (lambda p: p if len(p) == case.ranks else None)(processes(cluster, job)))
    if case.moment != "starting":
        wait_for("steps", lambda: cluster.step(name) >= 3)
    rank = rng.randrange(case.ranks)
    pid, worker = started[rank]
    time.sleep(case.delay)  # where in its life the blow falls is what is varied
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid if case.target == "rank" else cluster.workers[worker].pid, case.signal)
    struck = time.monotonic()
    wait_for("it has ended", lambda: cluster.state(name) in ("FAILED", "SUCCEEDED"))
    seconds = time.monotonic() - struck
    if case.target == "worker":
        cluster.workers[worker].wait(timeout=120)
        cluster.start_worker(worker)
    job = cluster.job(name)
    if case.moment == "ending" and job["state"] == "SUCCEEDED":
        return None
    wrong = differences(expected_of(case, rank, worker), job.get("cause", {}))
    if wrong:
        wrong += f" ({job.get('message')})"
    events = [json.loads(line) for line in cluster.cli("events", name, "-o", "json").stdout.splitlines()]
    first = next(event for event in events if "failed" in event)
    wait_for("no trainer is left", lambda: not any(alive(p) for p, _ in started.values()))
    for core in cluster.folder.glob("core*"):
        core.unlink()
    return wrong, seconds, first["reason"] != job["reason"]


@contextlib.contextmanager
def cluster_with(bin_dir, folder, cores):
    """Four workers of two slots; their trainers dump core where they die of it, into `folder`."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    here = os.getcwd()
    folder.mkdir()
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY if cores else 0, before[1]))
    os.chdir(folder)  # where the kernel writes them
    cluster = Cluster(bin_dir, folder, workers=4, slots=2)
    try:
        yield cluster
    finally:
        cluster.close()
        os.chdir(here)
        resource.setrlimit(resource.RLIMIT_CORE, before)
        shutil.rmtree(folder, ignore_errors=True)


def test_every_kill_is_blamed_on_whom_it_hit(request, bin_dir, tmp_path):
    seed = request.config.getoption("--seed")
    kills = request.config.getoption("--kills")
    print(f"\n{kills} kills")
    rng = random.Random(seed)
    cases = sorted((draw(rng) for _ in range(kills)), key=lambda case: case.cores)
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        print("core dumps are forbidden here (ulimit -H -c): the cases that want them run without")
    counts = collections.Counter()
    failures, slowest, replaced, too_late = [], 0.0, 0, 0
    number = 0
    for cores in (False, True):
        with cluster_with(bin_dir, tmp_path / f"cores-{cores}", cores) as cluster:
            for case in (case for case in cases if case.cores == cores):
                number += 1
                ended = run(cluster, case, number, rng)
                if ended is None:
                    too_late += 1
                    continue
                wrong, seconds, was_replaced = ended
                counts[(case.target, case.signal.name, cores)] += 1
                slowest = max(slowest, seconds)
                replaced += was_replaced
                if wrong:
                    failures.append(f"{number}: {case}: {wrong}")
                    print(failures[-1], flush=True)
    for (target, name, cores), count in sorted(counts.items(), key=str):
        print(f"{count:4}  {name} to a {target}, core dumps {'on' if cores else 'off'}")
    print(f"{len(failures)} of {kills - too_late} wrong; {replaced} were first blamed on something else; "
          f"{too_late} came too late; the slowest job ended {slowest:.1f} s after the kill")
    if failures:
        pytest.fail(f"{len(failures)} of {kills} wrong, see above; --seed {seed} --kills {kills} draws them again")
