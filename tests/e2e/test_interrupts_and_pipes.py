# SPDX-License-Identifier: Apache-2.0
"""What a user meets: run, Ctrl-C, output piped to a file."""
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import time

import pytest

from cluster import catches, tiny_job, wait_for


def run(bin_dir, *args, state, stdout=subprocess.PIPE, variables=None, **more):
    environment = {**os.environ, "XDG_STATE_HOME": str(state), "NO_COLOR": "1", **(variables or {})}
    return subprocess.Popen([bin_dir / "tandem", *map(str, args)], stdin=subprocess.DEVNULL, stdout=stdout,
                            stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True, **more)


def left(state):
    """Pids of our programs that were started with this state folder."""
    marker = str(state).encode()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ, open(f"/proc/{pid}/comm") as comm:
                if marker in environ.read() and comm.read().startswith("tandem"):
                    found.append(pid)
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            pass
    return found


@pytest.fixture(autouse=True)
def nothing_runs_on(tmp_path):
    """Ends what a test that fails has left, or its endless job would train beside all that follow."""
    yield
    for pid in left(tmp_path):
        with contextlib.suppress(ProcessLookupError):  # it ended with another
            os.kill(int(pid), signal.SIGKILL)


def endless_job(tmp_path):
    """The file of a job that runs until it is stopped, and a function that waits until it steps."""
    path = tmp_path / "job.json"
    path.write_text(json.dumps(tiny_job("endless", steps=1_000_000, directory=tmp_path / "ckpt")))
    metrics = tmp_path / "ckpt" / "metrics.jsonl"
    return path, lambda: wait_for("steps", lambda: metrics.exists() and metrics.read_text().count("\n") > 3)


def test_run_trains_and_pipes_plain_lines(bin_dir, tmp_path):
    path = tmp_path / "job.json"
    path.write_text(json.dumps(tiny_job("piped", steps=60, directory=tmp_path / "ckpt", validate_every_steps=20)))
    process = run(bin_dir, "run", "-f", path, "--workers", 2, "--slots", 1, state=tmp_path)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, out + err
    assert "\x1b" not in out + err and "\r" not in out + err
    assert err.splitlines()[0].startswith("tandem: run: starting a controller and 2 workers on this machine; logs in /")
    assert err.splitlines()[1] == "tandem: run: started 2 workers with 1 CPU slot each"
    assert "SUCCEEDED" in (out + err).upper()
    lines = [json.loads(line) for line in (tmp_path / "ckpt" / "metrics.jsonl").read_text().splitlines()]
    assert lines[0].keys() == {"step", "validation_loss"} and lines[0]["step"] == 0  # before the first update
    losses = [line["loss"] for line in lines[1:]]
    assert len(losses) == 60
    assert losses[0] > 5.3 and losses[-1] < losses[0] - 1.0


def test_run_for_absent_gpus_ends_with_one_line(bin_dir, tmp_path):
    path = tmp_path / "job.json"
    path.write_text(json.dumps(tiny_job("gpus", directory=tmp_path / "ckpt") | {"resources": {"device": "cuda"}}))
    process = run(bin_dir, "run", "-f", path, state=tmp_path, variables={"CUDA_VISIBLE_DEVICES": ""})
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.splitlines()[-1].startswith("tandem: run: resources.device is cuda and the job has 2 ranks, but this "
                                           "machine offers no GPU"), err
    assert left(tmp_path) == []


def test_first_interrupt_cancels_job_and_leaves_no_process(bin_dir, tmp_path):
    path, wait_for_steps = endless_job(tmp_path)
    process = run(bin_dir, "run", "-f", path, "--workers", 2, "--slots", 1, state=tmp_path)
    wait_for_steps()
    assert left(tmp_path)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert not left(tmp_path)


def test_gone_reader_cancels_job_and_leaves_no_process(bin_dir, tmp_path):
    path, _ = endless_job(tmp_path)
    process = run(bin_dir, "run", "-f", path, state=tmp_path)
    assert "endless" in process.stdout.readline()
    process.stdout.close()
    process.wait(timeout=120)
    assert process.returncode == 141
    assert not left(tmp_path)


@pytest.mark.parametrize("command", [["events", "-f", "quiet"], ["logs", "-f", "quiet"], ["logs", "-f", "--all", "quiet"],
                                     ["watch", "queued"]])
def test_waiting_for_lines_ends_with_its_reader(start, command):
    cluster = start()
    cluster.submit(tiny_job("quiet", steps=1_000_000))
    wait_for("it runs", lambda: cluster.state("quiet") == "RUNNING")
    cluster.submit(tiny_job("queued", steps=1))
    process = subprocess.Popen([cluster.bin / "tandem", "--addr", cluster.address, *command], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    for _ in {"events": cluster.events("quiet"), "logs": [], "watch": [1]}[command[0]]:
        process.stdout.readline()  # all that there is: a write to a pipe that nobody reads would tell
    process.stdout.close()
    assert process.wait(timeout=120) == 141


def test_interrupted_wait_says_the_job_goes_on(start):
    cluster = start()
    cluster.submit(tiny_job("endless", steps=1_000_000))
    for _ in range(20):  # an interrupt may come before the controller's first answer
        process = subprocess.Popen([cluster.bin / "tandem", "--addr", cluster.address, "wait", "endless"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_for("it waits", lambda: catches(process.pid, signal.SIGINT))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        if "has said nothing of the job yet" not in err:
            break
    assert process.returncode == 130
    assert err == "tandem: stopped waiting; the job goes on: `tandem wait endless` waits again, `tandem cancel endless` ends it\n"
    assert cluster.state("endless") != "CANCELLED"


def interrupt(process):
    """SIGINT, until the process has taken it: signals of one kind that wait together are one."""
    process.send_signal(signal.SIGINT)

    def taken():
        if process.poll() is not None:
            return True
        with open(f"/proc/{process.pid}/status") as status:
            waiting = next(int(line.split()[1], 16) for line in status if line.startswith("ShdPnd"))
        return not waiting & 1 << signal.SIGINT - 1

    wait_for("the signal is taken", taken)


def test_third_interrupt_ends_run_at_an_unread_pipe(bin_dir, tmp_path):
    path, wait_for_steps = endless_job(tmp_path)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writing, b"x" * 4096)  # full
    process = run(bin_dir, "run", "-f", path, state=tmp_path, stdout=writing)
    os.close(writing)
    wait_for_steps()
    for _ in range(3):
        interrupt(process)
    process.wait(timeout=120)
    assert process.returncode == -signal.SIGINT
    wait_for("no process is left", lambda: not left(tmp_path))
    os.close(reading)


@pytest.mark.parametrize("command", [["--help"], ["version"], ["plan"], ["run"]])
def test_unwritable_output_is_a_failure_that_says_why(bin_dir, tmp_path, command):
    if command != ["--help"] and command != ["version"]:
        command = [*command, "-f", endless_job(tmp_path)[0]]
    with open("/dev/full", "w") as full:
        process = run(bin_dir, *command, state=tmp_path, stdout=full)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.splitlines()[-1] == ("tandem: cannot write standard output: No space left on device; the output is incomplete")
    assert not left(tmp_path)


def test_closed_standard_output_becomes_no_other_file(bin_dir, tmp_path):
    done = subprocess.run(["sh", "-c", '"$0" version >&-', bin_dir / "tandem"], capture_output=True, text=True,
                          env={**os.environ, "XDG_STATE_HOME": str(tmp_path)}, timeout=20)
    assert done.returncode == 1
    assert "cannot write standard output: Bad file descriptor" in done.stderr


def test_closed_standard_input_is_named(bin_dir, tmp_path):
    done = subprocess.run(["sh", "-c", '"$0" validate -f - <&-', bin_dir / "tandem"], capture_output=True, text=True,
                          env={**os.environ, "XDG_STATE_HOME": str(tmp_path)}, timeout=20)
    assert done.returncode == 4
    assert "read standard input: Bad file descriptor" in done.stderr


def test_logs_of_silent_ranks_are_empty_at_once(start):
    cluster = start()
    cluster.submit(tiny_job("quiet", ranks=2, steps=3))
    cluster.wait_state("quiet", "SUCCEEDED")
    for more in ([], ["--tail", 5], ["--follow"]):
        began = time.monotonic()
        done = cluster.cli("logs", "quiet", "--rank", 1, *more)  # rank 0 says what the text is
        assert (done.returncode, done.stdout) == (0, "")
        assert "has written" in done.stderr
        assert time.monotonic() - began < 8
