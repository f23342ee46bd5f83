# SPDX-License-Identifier: Apache-2.0
"""`tandem profile`: timelines of a running job through the real daemons."""
import collections
import json
import threading
import time

from cluster import tiny_job, wait_for


def program_of(cluster, path):
    """The stream of every instruction of the training program, by index, from its text."""
    text = cluster.cli("plan", "-f", path, "--program").stdout
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("train: "):
            break
    for line in lines:
        if line == "instructions":
            break
    streams = {}
    for line in lines:
        words = line.split()
        if not words or not words[0].isdigit():
            break
        streams[int(words[0])] = words[1]
    assert len(streams) > 20
    return streams


def test_running_job_is_traced_and_profiled_for_plan(start, tmp_path):
    cluster = start()
    cluster.submit(tiny_job("traced", steps=1_000_000, global_batch_size=8))
    wait_for("steps", lambda: cluster.step("traced") > 2)
    trace, profile = tmp_path / "trace.json", tmp_path / "profile.json"
    done = cluster.cli("profile", "traced", "--steps", 2, "--trace", trace, "--profile", profile)
    assert "2 ranks" in done.stdout and str(trace) in done.stdout and str(profile) in done.stdout

    expected = program_of(cluster, tmp_path / "traced.json")
    names = ["compute", "device-to-host", "gather", "host-to-device", "reduce"]
    assert sorted(set(expected.values())) == names
    events = json.loads(trace.read_text())["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert sorted(tracks.values()) == sorted(2 * names)
    seen = collections.Counter()
    for event in events:
        if event["ph"] == "X":
            index = event["args"]["instruction"]
            assert tracks[(event["pid"], event["tid"])] == expected[index]
            seen[(event["pid"], event["args"]["step"], index)] += 1
    steps = sorted({step for _, step, _ in seen})
    assert len(steps) == 4  # two as always, two with one instruction at a time
    assert steps == list(range(steps[0], steps[0] + 4))
    assert seen == {(rank, step, index): 1 for rank in (0, 1) for step in steps for index in expected}

    measured = json.loads(profile.read_text())["measured"]
    assert {"forward layers.*.mlp fp32", "unshard layers.*", "gradient-norm"} <= {entry["kind"] for entry in measured}
    assert all(entry["seconds"] > 0 for entry in measured)
    planned = cluster.cli("plan", "-f", tmp_path / "traced.json", "--profile", profile, "-o", "json")
    assert json.loads(planned.stdout)["prediction"]["step_seconds"] > 0

    before = cluster.step("traced")
    wait_for("training goes on", lambda: cluster.step("traced") > before)
    again = cluster.cli("profile", "traced", "--steps", 1)
    assert "recorded step " in again.stdout
    cluster.cli("cancel", "traced")


def test_a_job_that_ends_meanwhile_gives_one_line(start, tmp_path):
    cluster = start()
    cluster.submit(tiny_job("ending", steps=1_000_000))
    wait_for("steps", lambda: cluster.step("ending") > 2)
    canceller = threading.Timer(0.3, lambda: cluster.cli("cancel", "ending"))
    # Each profile records up to 32 steps, so one of them is in progress when the job ends.
    deadline = time.monotonic() + 60
    canceller.start()
    done = None
    while time.monotonic() < deadline:
        done = cluster.cli("profile", "ending", "--steps", 16, "--profile", tmp_path / "p.json", check=False)
        if done.returncode != 0:
            break
    canceller.join()
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "ended before" in done.stderr or "is not running" in done.stderr
