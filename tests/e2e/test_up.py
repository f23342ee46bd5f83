# SPDX-License-Identifier: Apache-2.0
"""`tandem up` that goes on when its user has logged out: without a terminal, and without $XDG_RUNTIME_DIR."""
import os
import shutil
import signal
import subprocess

import pytest
from cluster import wait_for


class Up:
    def __init__(self, bin_dir, folder):
        self.bin = bin_dir
        self.runtime = folder / "runtime"
        self.runtime.mkdir()
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "XDG_RUNTIME_DIR": str(self.runtime)}
        self.environment.pop("TANDEM_ADDR", None)
        self.log = folder / "up.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([bin_dir / "tandem", "up", "--workers", "1", "--metrics-listen", "off"],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                            env=self.environment)
        wait_for("tandem is up", lambda: "tandem is up" in self.log.read_text() or self.process.poll() is not None)

    def cli(self, *args):
        return subprocess.run([self.bin / "tandem", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, env=self.environment)

    def close(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)


@pytest.fixture
def up(bin_dir, tmp_path):
    up = Up(bin_dir, tmp_path)
    yield up
    up.close()


def test_commands_reach_it_after_a_logout(up):
    shutil.rmtree(up.runtime)
    done = up.cli("get", "jobs")
    assert done.returncode == 0, done.stderr


def test_it_says_that_its_socket_is_gone(up, tmp_path):
    address = next(line.split()[1] for line in up.log.read_text().splitlines() if line.split()[:1] == ["address"])
    os.unlink(address.removeprefix("unix:"))
    wait_for("it says so", lambda: "was removed" in up.log.read_text())
    assert up.process.poll() is None
