# SPDX-License-Identifier: Apache-2.0
"""The checkpoint directory and what goes wrong there: other jobs in it, damage, a full disk, a stopped owner."""
import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import threading
import urllib.request

import pytest

from cluster import alive, free_port, tiny_job, wait_for

ENDLESS = 1_000_000


def directory_job(name, directory, steps=ENDLESS, every_steps=10, resume=None, **more):
    spec = tiny_job(name, steps=steps, directory=directory, every_steps=every_steps, **more)
    if resume is not None:
        spec["checkpoint"]["resume"] = resume
    return spec


def saved_steps(directory):
    return sorted(int(path.name.removeprefix("step-")) for path in directory.glob("step-*") if "." not in path.name)


def lines(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def reasons(cluster, name):
    return [event.get("reason") for event in cluster.events(name)]


def test_one_of_two_identical_runs_is_refused(bin_dir, tmp_path):
    directory = tmp_path / "run"
    steps = 400
    path = tmp_path / "job.json"
    path.write_text(json.dumps(directory_job("twin", directory, steps=steps)))
    runs = []
    try:
        for index in range(2):
            environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / f"state{index}"), "NO_COLOR": "1"}
            runs.append(subprocess.Popen([bin_dir / "tandem", "run", "-f", path, "--workers", "2", "--slots", "1"],
                                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                         text=True, env=environment, start_new_session=True))
        texts = [run.communicate(timeout=300)[0] for run in runs]
    finally:
        for run in runs:
            run.kill()  # where it has not ended; its daemons end with it
    codes = [run.returncode for run in runs]
    assert sorted(codes)[0] == 0 and sorted(codes)[1] != 0, texts
    loser = texts[codes.index(max(codes))]
    assert "checkpoint.directory" in loser and str(directory) in loser, loser
    assert [line["step"] for line in lines(directory)] == list(range(1, steps + 1))
    assert saved_steps(directory) == [steps - 10, steps]
    assert not (directory / ".owner").exists()


def test_fifo_in_newest_checkpoint_is_skipped_and_reported(start, tmp_path):
    directory, name = tmp_path / "run", "rank-00001.safetensors"
    cluster = start()
    cluster.submit(directory_job("whole", directory, steps=30))
    cluster.wait_state("whole", "SUCCEEDED")
    (directory / "step-30" / name).unlink()
    os.mkfifo(directory / "step-30" / name)
    cluster.submit(directory_job("again", directory, steps=40, resume="newest"))
    job = cluster.wait_state("again", "SUCCEEDED")
    assert int(job["attempts"][-1]["resumed_step"]) == 20
    warning = job["checkpoints"]["resume"][0]["message"]
    assert f"{name}: it is a FIFO, not a regular file" in warning and "goes on from step 20" in warning
    assert "CheckpointPassedOver" in reasons(cluster, "again")
    assert "it is a FIFO" in cluster.cli("describe", "again").stdout
    assert "it is a FIFO" in cluster.cli("watch", "again").stdout


@contextlib.contextmanager
def small_disk(folder, megabytes):
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", folder], capture_output=True,
                             text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no disk of our own to fill: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_full_disk_fails_saves_until_there_is_room(start, tmp_path):
    port = free_port()
    with small_disk(tmp_path / "disk", 12) as disk:
        directory = disk / "run"
        cluster = start(metrics=f"127.0.0.1:{port}")
        cluster.submit(directory_job("stuffed", directory))
        wait_for("a checkpoint", lambda: saved_steps(directory))
        ballast = open(disk / "ballast", "wb", buffering=0)
        make_room = threading.Event()

        def keep_full():  # also with what `keep` removes, and what a failed save leaves: the next one might just fit
            while not make_room.wait(0.005):
                with contextlib.suppress(OSError):
                    while True:
                        ballast.write(bytes(1 << 16))

        filling = threading.Thread(target=keep_full, daemon=True)
        filling.start()
        wait_for("three saves in a row fail",
                 lambda: int(cluster.job("stuffed").get("checkpoints", {}).get("failed_in_a_row", 0)) >= 3)
        job = cluster.job("stuffed")
        assert job["state"] == "RUNNING"
        assert "No space left on device" in job["checkpoints"]["last_failure"]["message"]
        events = [event for event in cluster.events("stuffed") if event.get("reason") == "CheckpointFailed"]
        assert len(events) >= 3 and "No space left on device" in events[0]["message"]
        described = cluster.cli("describe", "stuffed").stdout
        assert "failing" in described and "No space left on device" in described
        shown = re.findall(r"^  step (\d+)  ", described.split("Checkpoints")[1].split("Events")[0], re.MULTILINE)
        assert sorted(map(int, shown)) == saved_steps(directory), described

        def scraped(metric):
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
            return float(text.split(f'{metric}{{job_name="stuffed"}} ')[1].split("\n")[0])

        wait_for("a scrape shows them", lambda: scraped("tandem_checkpoint_failures_total") >= 3)
        assert scraped("tandem_checkpoint_failures_in_a_row") >= 3
        watch = subprocess.Popen([cluster.bin / "tandem", "watch", "stuffed"], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, text=True,
                                 env={**os.environ, "TANDEM_ADDR": cluster.address, "NO_COLOR": "1"})
        try:
            for line in watch.stdout:
                if line.startswith("checkpoints: ") and "No space left on device" in line:
                    break
            else:
                raise AssertionError("watch ended without a word")
        finally:
            watch.kill()
            watch.wait()
            watch.stdout.close()

        make_room.set()
        filling.join()
        ballast.close()
        (disk / "ballast").unlink()
        wait_for("a save succeeds", lambda: int(cluster.job("stuffed")["checkpoints"].get("failed_in_a_row", 0)) == 0)
        assert "failing" not in cluster.cli("describe", "stuffed").stdout
        cluster.cli("cancel", "stuffed")
        cluster.wait_state("stuffed", "CANCELLED")


def test_file_size_limit_fails_saves_not_the_job(start, tmp_path):
    directory = tmp_path / "run"
    cluster = start()
    cluster.submit(directory_job("limited", directory))
    wait_for("a checkpoint", lambda: saved_steps(directory))
    trainers = cluster.trainers()

    def failed_in_a_row():
        return int(cluster.job("limited").get("checkpoints", {}).get("failed_in_a_row", 0))

    for pid in trainers:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    wait_for("two saves fail", lambda: failed_in_a_row() >= 2)
    assert cluster.state("limited") == "RUNNING"
    assert "File too large" in cluster.job("limited")["checkpoints"]["last_failure"]["message"]
    for pid in trainers:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    wait_for("a save succeeds", lambda: failed_in_a_row() == 0)
    assert cluster.trainers() == trainers
    cluster.cli("cancel", "limited")
    cluster.wait_state("limited", "CANCELLED")
    numbers = [line["step"] for line in lines(directory)]  # every line is whole
    assert numbers == sorted(set(numbers))


def test_job_that_wakes_in_a_taken_directory_ends(start, tmp_path):
    directory = tmp_path / "run"
    first, second = start(folder="a"), start(folder="b")
    first.submit(directory_job("sleeper", directory))
    wait_for("a checkpoint", lambda: saved_steps(directory))
    trainers = first.trainers()
    for pid in trainers:
        os.kill(pid, signal.SIGSTOP)
    second.submit(directory_job("heir", directory, resume="newest"))
    newest = saved_steps(directory)[-1]
    wait_for("the heir saves", lambda: saved_steps(directory)[-1] > newest)
    for pid in trainers:
        os.kill(pid, signal.SIGCONT)
    cause = first.wait_state("sleeper", "FAILED")["cause"]
    assert cause["reason"] == "CheckpointDirectoryLost", cause
    assert "(heir)" in cause["message"] and "(sleeper)" in cause["message"]
    wait_for("no trainer is left", lambda: not any(map(alive, trainers)))
    newest = saved_steps(directory)[-1]
    wait_for("the heir goes on saving", lambda: saved_steps(directory)[-1] > newest + 20)
    assert second.state("heir") == "RUNNING"
    assert "failed" not in second.job("heir")["checkpoints"]
    heir = second.job("heir")["id"]

    def owner_of_newest():
        with contextlib.suppress(FileNotFoundError):  # it was the newest, and is removed
            return json.loads((directory / f"step-{saved_steps(directory)[-1]}" / "manifest.json").read_text())["job"]

    assert wait_for("the newest is read", owner_of_newest) == heir
    second.cli("cancel", "heir")
    second.wait_state("heir", "CANCELLED")
    steps = [line["step"] for line in lines(directory)]
    assert steps == list(range(1, len(steps) + 1))


def test_requested_checkpoints_continue_or_end_the_job(start, tmp_path):
    directory = tmp_path / "run"
    cluster = start()
    cluster.submit(directory_job("asked", directory, every_steps=0))
    wait_for("steps", lambda: cluster.step("asked") > 3)
    folder = cluster.cli("checkpoint", "now", "asked").stdout.strip()
    assert (directory / f"step-{saved_steps(directory)[0]}") == tmp_path.joinpath(folder)
    first = saved_steps(directory)
    assert len(first) == 1
    wait_for("it goes on", lambda: cluster.step("asked") > first[0] + 3)
    assert cluster.state("asked") == "RUNNING"
    # The controller that was asked may die before the ranks have answered.
    cluster.cli("checkpoint", "now", "asked", "--no-wait")
    cluster.kill_controller()
    cluster.start_controller()
    wait_for("the second", lambda: len(saved_steps(directory)) == 2)

    cluster.cli("cancel", "asked", "--checkpoint")
    job = cluster.wait_state("asked", "CANCELLED")
    assert job["reason"] == "CancelledByUser"
    last = saved_steps(directory)[-1]
    assert last > first[0] and job["checkpoints"]["last_step"] == last
    assert wait_for("every step is reported", lambda: cluster.step("asked") >= last) and lines(directory)[-1]["step"] == last
    assert not cluster.trainers()
    cluster.submit(directory_job("again", directory, steps=last + 2, every_steps=0, resume="newest"))
    cluster.wait_state("again", "SUCCEEDED")
    wait_for("every step is reported", lambda: cluster.step("again") >= last + 2)
    assert [report["step"] for report in cluster.reports("again")] == [last + 1, last + 2]
