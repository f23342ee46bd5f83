"""What a user meets: run, wrong specs, Ctrl-C, output piped to a file."""
import json
import os
import signal
import subprocess

from cluster import tiny_job, wait_for


def run(bin_dir, *args, state, **more):
    environment = {**os.environ, "XDG_STATE_HOME": str(state), "NO_COLOR": "1"}
    return subprocess.Popen([bin_dir / "tandem", *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True, **more)


def test_run_trains_and_its_piped_output_is_plain_lines(bin_dir, tmp_path):
    path = tmp_path / "job.json"
    path.write_text(json.dumps(tiny_job("piped", steps=60, directory=tmp_path / "ckpt", validate_every_steps=20)))
    process = run(bin_dir, "run", "-f", path, "--workers", 2, "--places", 1, state=tmp_path)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, out + err
    assert "\x1b" not in out + err and "\r" not in out + err
    assert "SUCCEEDED" in (out + err).upper()
    losses = [json.loads(line)["loss"] for line in (tmp_path / "ckpt" / "metrics.jsonl").read_text().splitlines()]
    assert len(losses) == 60
    assert losses[0] > 5.3 and losses[-1] < losses[0] - 1.0


def test_first_interrupt_cancels_the_job_and_leaves_no_process(bin_dir, tmp_path):
    path = tmp_path / "job.json"
    path.write_text(json.dumps(tiny_job("interrupted", steps=1_000_000, directory=tmp_path / "ckpt")))
    process = run(bin_dir, "run", "-f", path, "--workers", 2, "--places", 1, state=tmp_path)
    metrics = tmp_path / "ckpt" / "metrics.jsonl"
    wait_for("steps", lambda: metrics.exists() and metrics.read_text().count("\n") > 3, 60)

    def left():
        marker = str(tmp_path).encode()
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as environ, open(f"/proc/{pid}/comm") as comm:
                    if marker in environ.read() and comm.read().startswith("tandem"):
                        found.append(pid)
            except (FileNotFoundError, PermissionError, ProcessLookupError):
                pass
        return found

    assert left()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert not left()


def test_wrong_spec_exits_4_with_a_line_for_every_violation(bin_dir, tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("name: x\nmodel: {preset: llama-tiny}\ndata: {train: /nowhere}\n"
                    "training: {steps: 0, sequence_length: 64, micro_batch_size: 3, global_batch_size: 8}\n"
                    "paralelism: {ranks: 2}\n")
    process = run(bin_dir, "run", "-f", path, state=tmp_path)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 4
    assert "job.yaml:5:1: paralelism" in err and "parallelism" in err
    path.write_text(path.read_text().replace("paralelism", "parallelism"))
    process = run(bin_dir, "run", "-f", path, state=tmp_path)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 4
    for expected in ("training.steps", "training.global_batch_size"):
        assert sum(expected in line for line in err.splitlines()) >= 1, err


def test_plan_and_groups_need_no_daemon(bin_dir, tmp_path):
    path = tmp_path / "job.json"
    path.write_text(json.dumps(tiny_job("planned")))
    process = run(bin_dir, "plan", "-f", path, "-o", "json", state=tmp_path)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    json.loads(out)
    process = run(bin_dir, "groups", "-f", path, state=tmp_path)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0 and "dp_cp" in out
