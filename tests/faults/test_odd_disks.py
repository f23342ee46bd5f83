# SPDX-License-Identifier: Apache-2.0
"""File systems as people have them: some refuse to fsync a folder, some are small and a rank prints much."""
import contextlib
import errno
import os
import pathlib
import subprocess

import pytest

from cluster import Cluster, tiny_job, wait_for
from faulty_libc import Faults, compile_into

# A library that prints 5 MB a second in every rank.
PRINTS = r"""
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void* Print(void* none) {
  char line[1024];
  memset(line, 'x', sizeof(line));
  line[sizeof(line) - 1] = '\n';
  for (;;) {
    for (int i = 0; i < 100; ++i) if (write(2, line, sizeof(line)) < 0) break;
    usleep(20000);
  }
  return none;
}
__attribute__((constructor)) static void Start(void) {
  pthread_t thread;
  char name[4096] = {0};
  if (readlink("/proc/self/exe", name, sizeof(name) - 1) > 0 && strstr(name, "/tandem-trainer") != NULL)
    pthread_create(&thread, NULL, Print, NULL);
}
"""


def start_worker(cluster, environment, *more):
    with open(cluster.folder / "w0.log", "ab") as log:
        cluster.workers["w0"] = subprocess.Popen(
            [cluster.bin / "tandem-worker", "--controller", cluster.address, "--id", "w0", "--slots", "2", *map(str, more)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env={**os.environ, **environment})


@pytest.mark.parametrize("error", ["EINVAL", *(pytest.param(error, marks=pytest.mark.full) for error in ("ENOTSUP", "ENOSYS"))])
def test_unsyncable_folders_save_and_warn_once(bin_dir, tmp_path, error):
    with contextlib.closing(Cluster(bin_dir, tmp_path, workers=0)) as cluster:
        faults = Faults(compile_into(tmp_path), tmp_path / "faults")
        faults.set(folder=getattr(errno, error))  # as some FUSE, SMB and CSI mounts do
        start_worker(cluster, faults.environment, "--state", tmp_path / "w0")
        spec = tiny_job("job", ranks=2, steps=9, directory=tmp_path / "job", every_steps=3)
        spec["checkpoint"]["resume"] = "none"
        cluster.submit(spec)
        cluster.wait_state("job", "SUCCEEDED")
        assert sorted(path.name for path in (tmp_path / "job").glob("step-*")) == ["step-6", "step-9"]
        log = cluster.cli("logs", "job", "--rank", 0).stdout
        assert log.count("refuses to make it durable") == 1, log
        spec = tiny_job("again", ranks=1, steps=12, directory=tmp_path / "job")
        spec["checkpoint"]["resume"] = "newest"
        cluster.submit(spec)
        cluster.wait_state("again", "SUCCEEDED")
        assert (tmp_path / "job" / "step-12").exists()


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", folder], check=False).returncode != 0:
        pytest.skip("mounts a file system: needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_rank_that_prints_much_fills_no_disk(bin_dir, tmp_path, small_disk):
    with contextlib.closing(Cluster(bin_dir, tmp_path, workers=0)) as cluster:
        library = tmp_path / "prints.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o", library, "-x", "c", "-", "-lpthread"],
                       input=PRINTS, text=True, check=True)
        start_worker(cluster, {"LD_PRELOAD": str(library)}, "--state", small_disk / "worker")
        cluster.submit(tiny_job("chatty", ranks=1, steps=10_000_000))
        wait_for("it trains", lambda: cluster.step("chatty") > 2)
        with open(tmp_path / "followed", "wb") as out:
            follower = subprocess.Popen([cluster.bin / "tandem", "logs", "chatty", "--follow"], stdin=subprocess.DEVNULL,
                                        stdout=out, stderr=out, env={**os.environ, "TANDEM_ADDR": cluster.address})
        followed = pathlib.Path(tmp_path / "followed")
        try:
            wait_for("more is read than the disk holds", lambda: followed.stat().st_size > 80 << 20, 300)
            status = os.statvfs(small_disk)
            assert status.f_bavail > 0.3 * status.f_blocks, "half of a small disk is the others'"
            for number in range(2):
                cluster.submit(tiny_job(f"other-{number}", ranks=1, steps=5))
                cluster.wait_state(f"other-{number}", "SUCCEEDED")
            before = followed.stat().st_size
            wait_for("it is still read", lambda: followed.stat().st_size > before + (1 << 20))
            assert follower.poll() is None
            step = cluster.step("chatty")
            wait_for("it still trains", lambda: cluster.step("chatty") > step)
            assert "oldest part of its log was dropped" in (tmp_path / "w0.log").read_text()
        finally:
            follower.kill()
            follower.wait(timeout=60)
