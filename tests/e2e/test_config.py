# SPDX-License-Identifier: Apache-2.0
"""The daemons take their flags from files."""
import json
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

from cluster import Cluster, tiny_job, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
DAEMONS = ["controller", "worker"]


def run(bin_dir, daemon, *args):
    return subprocess.run([bin_dir / f"tandem-{daemon}", *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=30, check=False)


@pytest.mark.parametrize("daemon", DAEMONS)
def test_every_flag_may_stand_in_a_file(bin_dir, tmp_path, daemon):
    flags = set(re.findall(r"^  (?:-h,)?--([a-z-]+)", run(bin_dir, daemon, "--help").stdout, re.M))
    file = tmp_path / "daemon.yaml"
    file.write_text("nothing: 1\n")
    done = run(bin_dir, daemon, "--config", file)
    assert done.returncode == 2
    allowed = re.fullmatch(rf"tandem-{daemon}: {file}:1:1: nothing: there is no such flag; allowed: (.*)\n", done.stderr)
    assert set(allowed[1].split(", ")) == flags - {"help", "version", "config"}
    assert {"state"} < flags


class ConfiguredCluster(Cluster):
    """Its daemons get all their flags from files."""

    def _spawn(self, name, program, *args):
        flags = {}
        for flag, value in zip(args[::2], args[1::2]):
            flags[str(flag).removeprefix("--")] = str(value)
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(flags))  # JSON is YAML
        return super()._spawn(name, program, "--config", file)


def test_a_cluster_of_files_trains(bin_dir, tmp_path):
    cluster = ConfiguredCluster(bin_dir, tmp_path)
    try:
        cluster.submit(tiny_job("configured"))
        assert cluster.cli("wait", "configured").returncode == 0
    finally:
        cluster.close()


@pytest.mark.parametrize("daemon", DAEMONS)
def test_the_files_of_the_systemd_units_are_good(bin_dir, tmp_path, daemon):
    # The command line wins, so what this machine has not got is replaced; every line is checked all the same.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-e2e-", dir="/tmp"))
    subprocess.run([bin_dir / "tandem", "certs", "init", "--dir", folder / "certs", "--host", "localhost"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (folder / "revoked").touch()
    flags = {"controller": ["--listen", f"unix:{folder}/s", "--worker-listen", f"unix:{folder}/w", "--metrics-listen", "off",
                            "--tls-ca", folder / "certs/ca.crt", "--tls-cert", folder / "certs/controller.crt", "--tls-key",
                            folder / "certs/controller.key", "--tls-revoked", folder / "revoked"],
             "worker": ["--controller", f"unix:{folder}/s"]}[daemon]
    log = tmp_path / "log"
    with open(log, "wb") as out:
        process = subprocess.Popen([bin_dir / f"tandem-{daemon}", "--config", ROOT / f"deploy/systemd/{daemon}.yaml",
                                    "--state", tmp_path / "state", *flags], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        sign = {"controller": "serving", "worker": "the controller cannot be reached"}[daemon]
        wait_for("it runs", lambda: process.poll() is not None or sign in log.read_text())
        assert process.poll() is None, log.read_text()
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


@pytest.mark.parametrize("daemon", DAEMONS)
def test_systemd_restarts_always_but_for_wrong_flags(bin_dir, tmp_path, daemon):
    unit = dict(line.split("=", 1) for line in (ROOT / f"deploy/systemd/tandem-{daemon}.service").read_text().splitlines()
                if re.match(r"[A-Z]\w+=", line))
    # By default the sixth start within ten seconds is the last, and a full disk ends each at once.
    assert (unit["Restart"], unit["StartLimitIntervalSec"]) == ("always", "0")
    assert run(bin_dir, daemon, "--state", tmp_path, "--nothing").returncode == int(unit["RestartPreventExitStatus"])


@pytest.mark.parametrize("daemon", DAEMONS)
def test_the_systemd_units_are_good(bin_dir, tmp_path, daemon):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on this machine")
    text = (ROOT / f"deploy/systemd/tandem-{daemon}.service").read_text()
    program = f"/opt/tandem/bin/tandem-{daemon} "
    assert text.count(program) == 1
    unit = tmp_path / f"tandem-{daemon}.service"
    unit.write_text(text.replace(program, f"{bin_dir}/tandem-{daemon} "))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
