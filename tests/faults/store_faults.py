# SPDX-License-Identifier: Apache-2.0
"""Tricks with what the controller keeps: its store stalls or is damaged, its socket goes, its terminal is closed."""
import errno
import os
import signal

from cluster import tiny_job, wait_for
from hostile_cluster import WORKER_TIMEOUT
from storm import CONTROLLER


def new_name(storm, what):
    return f"{what}-{storm.rng.randrange(1 << 40)}"


def stalled_store(storm):
    """A commit takes longer than a worker may be away."""
    cluster, name = storm.cluster, new_name(storm, "stalled")
    faults = cluster.faults[CONTROLLER]
    before = faults.slow_syncs
    with faults.with_faults(sync=storm.rng.uniform(1.5, 3) * WORKER_TIMEOUT):
        submit = cluster.start_cli("submit", "-f", cluster.write(tiny_job(name, ranks=1, steps=5)))
        wait_for("the store's disk stands still", lambda: faults.slow_syncs > before)
    assert submit.wait(timeout=120) in (0, 7)  # 7: not answered in time, and the job is there all the same
    wait_for("the store takes the job", lambda: cluster.cli("describe", name, check=False).returncode == 0)
    cluster.wait_state(name, "SUCCEEDED")
    return storm.trains_on()


def damaged_store(storm):
    """The controller is killed behind a commit, and bits of its write-ahead log flip: it has all jobs."""
    cluster, name = storm.cluster, new_name(storm, "damaged")
    # It waits for slots that no worker has, so that it ends with the trick and not before.
    cluster.submit(tiny_job(name, ranks=64))
    cluster.kill_controller()
    log = cluster.folder / "controller" / "controller.db-wal"
    content = bytearray(log.read_bytes() if log.exists() else b"")
    for _ in range(min(len(content), storm.rng.randrange(1, 4))):
        content[storm.rng.randrange(len(content))] ^= 1 << storm.rng.randrange(8)
    if content:
        log.write_bytes(content)
    cluster.start_controller()
    assert cluster.state(name) == "QUEUED", cluster.job(name)
    cluster.cli("cancel", name)
    return storm.trains_on()


def folders_that_cannot_be_made_durable(storm):
    """Every file system refuses fsync of a folder: jobs save, and the controller starts."""
    cluster, name = storm.cluster, new_name(storm, "folders")
    refused = storm.rng.choice([errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
    try:
        for faults in cluster.faults.values():
            faults.set(folder=refused)
        spec = tiny_job(name, ranks=3, steps=6, directory=cluster.folder / name, every_steps=2)
        spec["resources"] = {"ranks_per_worker": 1}
        cluster.submit(spec)
        cluster.wait_state(name, "SUCCEEDED")
        assert (cluster.folder / name / "step-6").is_dir(), sorted((cluster.folder / name).iterdir())
        if storm.rng.random() < 0.5:
            cluster.kill_controller()
            cluster.start_controller()
        return storm.trains_on()
    finally:
        for faults in cluster.faults.values():
            faults.set()


def removed_socket(storm):
    """What connects anew finds nothing; what is connected goes on; a controller that starts makes it again."""
    cluster = storm.cluster
    before = cluster.step(storm.victim)
    path = cluster.address.removeprefix("unix:")
    os.unlink(path)
    refused = cluster.cli("get", "jobs", check=False)
    assert refused.returncode == 6, (refused.returncode, refused.stderr)
    if storm.rng.random() < 0.5:
        cluster.kill_controller()
    else:
        end(cluster)
    cluster.start_controller()
    wait_for("it has trained on", lambda: cluster.step(storm.victim) > before)
    return storm.trains_on()


def end(cluster):
    cluster.controller.send_signal(signal.SIGHUP)
    assert cluster.controller.wait(timeout=60) == 0


def hung_up_controller(storm):
    """Its terminal is closed: it ends in order, and the jobs go on."""
    end(storm.cluster)
    storm.cluster.start_controller()
    return storm.trains_on()
