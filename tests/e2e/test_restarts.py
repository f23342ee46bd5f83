# SPDX-License-Identifier: Apache-2.0
"""What outlives a death: of the controller, of a worker, of a rank (what each is blamed for: tests/faults/test_kills.py)."""
import json
import os
import signal
import time

from cluster import alive, tiny_job, wait_for

STEPS = 200  # of a job that is killed in the midst of them


def killed_mid_job(cluster, name, steps=5):
    """Submits an endless job and waits until it has made some steps; its trainers' pids."""
    cluster.submit(tiny_job(name, steps=1_000_000))
    wait_for(f"{name} steps", lambda: cluster.step(name) >= steps)
    trainers = cluster.trainers()
    assert len(trainers) == 2
    return trainers


def test_restarted_controller_adopts_the_job_without_gaps(start):
    cluster = start()
    trainers = killed_mid_job(cluster, "survivor")
    cluster.kill_controller()
    time.sleep(1.0)  # the absence itself is what is tested: steps go on meanwhile
    assert all(map(alive, trainers))
    cluster.start_controller()
    before = wait_for("reports are back", lambda: cluster.step("survivor"))
    wait_for("and go on", lambda: cluster.step("survivor") > before + 5)
    assert cluster.state("survivor") == "RUNNING"
    assert cluster.job("survivor").get("attempt") == 1
    assert cluster.trainers() == trainers
    steps = [report["step"] for report in cluster.reports("survivor")]
    assert steps == list(range(1, len(steps) + 1))
    cluster.cli("cancel", "survivor")
    cluster.wait_state("survivor", "CANCELLED")


def test_resume_after_kill_has_the_same_bits(start, tmp_path):
    cluster = start()
    whole = cluster.submit(tiny_job("whole", steps=STEPS, directory=tmp_path / "whole", every_steps=10))
    cluster.wait_state(whole, "SUCCEEDED")

    spec = tiny_job("cut", steps=STEPS, directory=tmp_path / "cut", every_steps=10)
    cluster.submit(spec)
    # Any: the first is removed when the third is there.
    wait_for("a checkpoint", lambda: [path for path in (tmp_path / "cut").glob("step-*") if "." not in path.name])
    for pid in cluster.trainers():
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
            break
    wait_for("it ended", lambda: cluster.state("cut") in ("FAILED", "SUCCEEDED"))

    spec["name"] = "resumed"
    spec["checkpoint"]["resume"] = "newest"
    cluster.submit(spec)
    cluster.wait_state("resumed", "SUCCEEDED")
    wait_for("every step is reported", lambda: cluster.step("resumed") >= STEPS)
    expected = {report["step"]: report for report in cluster.reports(whole)}
    resumed = cluster.reports("resumed")
    assert resumed[-1]["step"] == STEPS
    for report in resumed:
        assert report["loss"] == expected[report["step"]]["loss"], report["step"]
        assert report["grad_norm"] == expected[report["step"]]["grad_norm"], report["step"]
    lines = [json.loads(line) for line in (tmp_path / "cut" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert [line["loss"] for line in lines] == [expected[step]["loss"] for step in range(1, STEPS + 1)]


def test_restarted_worker_sends_the_steps_still_missing(start, tmp_path):
    """A stopped controller acknowledges none, so that the worker has many of them when it dies."""
    cluster = start()
    directory = tmp_path / "job"
    spec = tiny_job("job", ranks=1, steps=1_000_000, directory=directory)
    spec["checkpoint"]["resume"] = "none"
    cluster.submit(spec)
    wait_for("it steps", lambda: cluster.step("job") >= 5)
    worker = next(name for name in cluster.workers if cluster.trainers_of(name))
    rank = cluster.trainers_of(worker)[0]

    def written():
        return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    os.kill(cluster.controller.pid, signal.SIGSTOP)
    before = len(written())
    wait_for("it steps on", lambda: len(written()) > before + 20)
    cluster.workers[worker].kill()
    cluster.workers[worker].wait(timeout=60)
    wait_for("its rank ends", lambda: not alive(rank))
    os.kill(cluster.controller.pid, signal.SIGCONT)
    cluster.wait_state("job", "FAILED")
    cluster.start_worker(worker)
    steps = {line["step"]: line["loss"] for line in written() if line["step"] > 0}
    wait_for("all steps are there", lambda: len(cluster.reports("job")) >= len(steps))
    reports = cluster.reports("job")
    assert [report["step"] for report in reports] == sorted(steps), "each step once"
    assert {report["step"]: report["loss"] for report in reports} == steps
    cluster.submit(tiny_job("next", ranks=1, steps=5))
    cluster.wait_state("next", "SUCCEEDED")
