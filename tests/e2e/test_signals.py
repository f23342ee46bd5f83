# SPDX-License-Identifier: Apache-2.0
"""What the daemons do when their terminal is closed."""
import os
import signal
import subprocess

import pytest
from cluster import Cluster, tiny_job, wait_for

VALIDATION_BATCHES = 1_000_000


@pytest.fixture
def cluster(bin_dir, tmp_path):
    cluster = Cluster(bin_dir, tmp_path, workers=0)
    yield cluster
    cluster.close()


def test_closing_a_workers_terminal_saves_its_jobs(cluster, tmp_path):
    cluster.start_worker("w0", "--drain-timeout", "60s")
    cluster.submit(tiny_job("job", ranks=1, steps=1_000_000, directory=tmp_path / "job", every_steps=1_000_000))
    wait_for("it steps", lambda: cluster.step("job") > 3)
    cluster.workers["w0"].send_signal(signal.SIGHUP)
    assert cluster.workers["w0"].wait(timeout=120) == 0
    wait_for("it ends", lambda: cluster.state("job") == "FAILED")
    assert cluster.job("job")["reason"] == "Preempted", cluster.why("job")
    assert [path.name for path in (tmp_path / "job").glob("step-*")]


def test_closing_a_controllers_terminal_ends_it_in_order(cluster, tmp_path):
    cluster.controller.send_signal(signal.SIGHUP)
    assert cluster.controller.wait(timeout=60) == 0
    log = (tmp_path / "controller.log").read_text()
    assert '"reason":"SIGHUP"' in log and '"msg":"stopped"' in log


def test_daemons_under_nohup_go_on(cluster, tmp_path):
    args = {"tandem-controller": ["--state", tmp_path / "other", "--listen", f"unix:{cluster.socket_folder}/other",
                                  "--metrics-listen", "off"],
            "tandem-worker": ["--controller", f"unix:{cluster.socket_folder}/other", "--id", "w", "--state", tmp_path / "w"]}
    for program, flags in args.items():
        log = tmp_path / f"{program}.nohup"
        with open(log, "wb") as out:
            process = subprocess.Popen(["nohup", cluster.bin / program, *flags], stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=out, start_new_session=True)
        serves = '"msg":"serving"' if program == "tandem-controller" else '"msg":"connected to the controller"'
        try:
            wait_for("it serves", lambda: serves in log.read_text() or process.poll() is not None)
            os.kill(process.pid, signal.SIGHUP)
            assert process.poll() is None
            status = open(f"/proc/{process.pid}/status").read()
            ignored = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn"))
            assert ignored & 1 << signal.SIGHUP - 1
            if program == "tandem-controller":
                controller = process
        finally:
            if program == "tandem-worker":
                process.terminate()
                assert process.wait(timeout=60) == 0
                controller.terminate()
                assert controller.wait(timeout=60) == 0


@pytest.fixture
def in_a_long_validation(cluster, tmp_path):
    """A job in the validation behind step 3, which takes hours."""
    cluster.start_worker("w0", "--drain-timeout", "60s")
    directory = tmp_path / "job"
    cluster.submit(tiny_job("before", ranks=1, steps=1, directory=directory))
    cluster.wait_state("before", "SUCCEEDED")
    spec = tiny_job("job", ranks=1, steps=1_000_000, directory=directory, validate_every_steps=3,
                    validation_batches=VALIDATION_BATCHES)
    spec["checkpoint"]["resume"] = "newest"
    held_out = tmp_path / "held-out"  # of zeros that take no room
    held_out.touch()
    os.truncate(held_out, 1 << 30)
    spec["data"]["validation"] = str(held_out)
    cluster.submit(spec)
    wait_for("it validates", lambda: "in step 3, " in cluster.job("job").get("progress", {}).get("whereabouts", ""))
    return directory


def saved(directory):
    return sorted(path.name for path in directory.glob("step-*"))


def test_worker_ending_in_validation_saves_the_step_before(cluster, in_a_long_validation):
    cluster.workers["w0"].send_signal(signal.SIGTERM)
    assert cluster.workers["w0"].wait(timeout=120) == 0
    wait_for("it ends", lambda: cluster.state("job") == "FAILED")
    assert cluster.job("job")["reason"] == "Preempted", cluster.why("job")
    assert saved(in_a_long_validation) == ["step-1", "step-3"]
    assert [report["step"] for report in cluster.reports("job")] == [2, 3]
    assert "validation_loss" not in cluster.reports("job")[-1]


def test_checkpoint_does_not_wait_for_a_validation(cluster, in_a_long_validation):
    cluster.cli("checkpoint", "now", "job")
    assert saved(in_a_long_validation) == ["step-1", "step-3"]
    assert [report["step"] for report in cluster.reports("job")] == [2], "that of step 3 waits for its validation"
    cluster.cli("cancel", "--checkpoint", "job")
    cluster.wait_state("job", "CANCELLED")
    assert [report["step"] for report in cluster.reports("job")] == [2, 3]


def test_worker_ending_while_saving_saves_the_reached_step(cluster, tmp_path):
    """Every step is saved beside training, so one is being written nearly all the time."""
    cluster.start_worker("w0", "--drain-timeout", "60s")
    directory = tmp_path / "job"
    cluster.submit(tiny_job("job", ranks=1, steps=1_000_000, directory=directory, every_steps=1))
    wait_for("it saves", lambda: len(cluster.reports("job")) > 20)
    cluster.workers["w0"].send_signal(signal.SIGTERM)
    assert cluster.workers["w0"].wait(timeout=120) == 0
    wait_for("it ends", lambda: cluster.state("job") == "FAILED")
    assert cluster.job("job")["reason"] == "Preempted", cluster.why("job")
    reached = cluster.reports("job")[-1]["step"]
    assert max(int(name.removeprefix("step-")) for name in saved(directory)) == reached
    cluster.cli("checkpoint", "verify", directory)
