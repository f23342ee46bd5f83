# SPDX-License-Identifier: Apache-2.0
"""A rank that does not go on: who says so, where, and how soon."""
import os
import re
import signal
import subprocess
import threading
import time
import urllib.request

from cluster import free_port, tiny_job, wait_for


def stopped_rank(cluster, name):
    """Stops one trainer of a running job of two ranks; (its pid, its rank, its worker)."""
    cluster.submit(tiny_job(name, steps=1_000_000))
    wait_for("some steps", lambda: cluster.step(name) >= 5)
    (pid,) = [pid for pid in cluster.trainers() if pid in cluster.trainers_of("w1")]
    (rank,) = [slot.get("rank", 0) for slot in cluster.job(name)["attempts"][0]["slots"] if slot["worker"] == "w1"]
    os.kill(pid, signal.SIGSTOP)
    return pid, rank, "w1"


def test_stopped_rank_is_named_until_it_continues(start):
    port = free_port()
    cluster = start(metrics=f"127.0.0.1:{port}")
    seen = []
    pid, rank, worker = stopped_rank(cluster, "frozen")
    watch = subprocess.Popen([cluster.bin / "tandem", "watch", "frozen"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, text=True, env={**os.environ, "TANDEM_ADDR": cluster.address})
    threading.Thread(target=lambda: seen.extend(watch.stdout), daemon=True).start()
    try:
        stopped = time.monotonic()

        def stalled_and_stopped():  # a machine that stands still is seen before the worker has looked at the process
            progress = cluster.job("frozen").get("progress", {})
            return progress if progress.get("stalled") and progress.get("stopped") else None

        progress = wait_for("describe names it", stalled_and_stopped)
        assert time.monotonic() - stopped < 45
        assert (progress.get("rank", 0), progress["worker"], progress["stopped"]) == (rank, worker, True)
        who = f"rank {rank} on worker {worker} is stopped, by a signal or a debugger, in step "
        text = cluster.cli("describe", "frozen").stdout
        assert re.search(r"^progress +none for \d", text, re.M) and who in " ".join(text.split())
        assert who in " ".join(cluster.cli("get", "jobs").stdout.split())
        wait_for("watch says so", lambda: any("no progress for 0:" in line and who in line for line in seen))
        scrape = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        assert float(re.search(r'progress_age_seconds\{job_name="frozen"\} ([0-9.]+)', scrape)[1]) >= 5
        assert f'tandem_train_rank_behind{{job_name="frozen"}} {rank}' in scrape

        os.kill(pid, signal.SIGCONT)
        before = cluster.step("frozen")
        wait_for("it goes on", lambda: cluster.step("frozen") > before + 5)
        wait_for("and watch says so", lambda: any("move again" in line for line in seen))
        wait_for("and describe", lambda: not cluster.job("frozen")["progress"].get("stalled"))
    finally:
        os.kill(pid, signal.SIGCONT)
        watch.kill()
        watch.wait()


def test_profile_ends_and_names_a_stopped_rank(start):
    cluster = start()
    pid, rank, worker = stopped_rank(cluster, "frozen")
    try:
        asked = time.monotonic()
        done = cluster.cli("profile", "frozen", check=False)
        assert time.monotonic() - asked < 60
        assert done.returncode == 1
        assert f"rank {rank} on worker {worker} is stopped" in done.stderr and "nothing was written" in done.stderr
    finally:
        os.kill(pid, signal.SIGCONT)
