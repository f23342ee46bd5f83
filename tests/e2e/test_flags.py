# SPDX-License-Identifier: Apache-2.0
"""What a daemon says of a bad value of a flag, and how it ends.

A service manager starts it again and again, but for the exit code 2: what is said is not allowed on any machine. What
this machine lacks (a file, a folder, a port, a user) may come, and ends with 1.
"""
import pathlib
import shutil
import socket
import subprocess
import tempfile

import pytest

WRONG, FAILED = 2, 1
CONTROLLER = {"--state": "{}/state", "--listen": "unix:{}/s", "--metrics-listen": "off"}
WORKER = {"--state": "{}/state", "--controller": "unix:{}/s"}
TLS = {"--tls-ca": "{}/certs/ca.crt", "--tls-cert": "{}/certs/controller.crt", "--tls-key": "{}/certs/controller.key"}
ADDRESS = "is not an address; allowed: unix:/PATH or HOST:PORT with a port from 0 to 65535, as in 127.0.0.1:7471"
METRICS = "is not an address; allowed: HOST:PORT with a port from 0 to 65535, as in 127.0.0.1:9464, or off"
TARGET = "is not an address; allowed: unix:/PATH or HOST:PORT with a port from 1 to 65535, as in 127.0.0.1:7471"
DURATION = "is not a duration; allowed: 100ms to 8760h, as in 500ms, 30s or 10m"

CONTROLLER_CASES = [
    ({"--listen": "127.0.0.1:70000"}, WRONG, f'--listen: "127.0.0.1:70000" {ADDRESS}'),
    ({"--listen": "unix:"}, WRONG, "a socket's path has 1 to 107 bytes, this one 0"),
    ({"--listen": "0.0.0.0:7471"}, WRONG, "--listen 0.0.0.0:7471: without TLS only this machine may reach the controller"),
    ({"--listen": "unix:{}/folder"}, FAILED, "cannot listen on unix:{}/folder: the file exists and is not a socket"),
    ({"--listen": "unix:{}/file"}, FAILED, "cannot listen on unix:{}/file: the file exists and is not a socket"),
    ({"--listen": "unix:{}/none/s"}, FAILED, "cannot listen on unix:{}/none/s: No such file or directory"),
    ({"--listen": "{taken}"}, FAILED, "cannot listen on {taken}: Address already in use"),
    ({"--metrics-listen": "OFF"}, WRONG, f'--metrics-listen: "OFF" {METRICS}'),
    ({"--metrics-listen": "{taken}"}, FAILED, "cannot listen on {taken}: Address already in use; give another --metrics-listen"),
    ({"--page": "on"}, WRONG, "--page on: with --metrics-listen off there is no address"),
    ({"--page": "maybe"}, WRONG, "--page: maybe not in {auto,on,off}"),
    ({"--config": "{}/none"}, FAILED, "--config: open {}/none: No such file or directory"),
    ({"--config": "{}/file"}, WRONG, "{}/file:1:1: lines of the form `flag: value` are expected"),
    ({"--state": "{}/file"}, FAILED, "cannot make the state directory {}/file: Not a directory"),
    ({"--tls-ca": "{}/certs/ca.crt"}, WRONG, "--tls-cert is missing: TLS takes --tls-ca, --tls-cert and --tls-key together"),
    ({**TLS, "--tls-cert": "{}/none"}, FAILED, "--tls-cert: open {}/none: No such file or directory"),
    ({**TLS, "--tls-cert": "{}/folder"}, FAILED, "--tls-cert: open {}/folder: it is a folder"),
    ({**TLS, "--tls-cert": "{}/file"}, FAILED, "--tls-cert: {}/file: it holds no certificate"),
    ({"--tls-revoked": "{}/file"}, WRONG, "--tls-revoked: without TLS nobody shows a certificate"),
    ({**TLS, "--tls-revoked": "{}/none"}, FAILED, "--tls-revoked: open {}/none: No such file or directory"),
    ({"--tls-domain": "a b"}, WRONG, '--tls-domain: "a b" is not a DNS name'),
    *(({flag: text}, WRONG, f"{flag}: {text} {DURATION}") for flag in ("--worker-timeout", "--start-timeout", "--orphan-timeout")
      for text in ("5", "0s", "-1s", "soon", "1ns", "inf", "100000h")),
]

WORKER_CASES = [
    ({"--controller": "127.0.0.1:0"}, WRONG, f'--controller: "127.0.0.1:0" {TARGET}'),
    ({"--controller": "unix:"}, WRONG, "a socket's path has 1 to 107 bytes, this one 0"),
    ({"--controller": "192.0.2.1:7471"}, WRONG, "--controller 192.0.2.1:7471 is not on this machine"),
    ({"--controller": "localhost:7471", "--tls-ca": "{}/certs/ca.crt"}, WRONG, "--tls-cert is missing"),
    ({"--controller": "localhost:7471", **TLS, "--tls-cert": "{}/none"}, FAILED, "--tls-cert: open {}/none"),
    *(({"--id": text}, WRONG, f'--id: "{text}" is not the name of a worker; allowed: 1 to 253 letters, digits, \'-\', \'_\' and \'.\'')
      for text in ("a b", "a/b", "ü")),
    ({"--slots": "0"}, WRONG, "--slots: Value 0 not in range 1 to 4096"),
    ({"--state": "{}/file"}, FAILED, "--state: create folder {}/file: Not a directory"),
    ({"--trainer": "{}/none"}, FAILED, "--trainer: {}/none is not a program that this user may run"),
    ({"--trainer": "{}/file"}, FAILED, "--trainer: {}/file is not a program that this user may run"),
    ({"--data-address": "192.0.2.1"}, FAILED, '--data-address: "192.0.2.1" is not an address of this machine'),
    ({"--read-root": "{}/none"}, FAILED, "--read-root {}/none: No such file or directory"),
    ({"--write-root": "{}/file"}, FAILED, "--write-root {}/file: it is not a folder"),
    ({"--user": "nobody-of-that-name"}, FAILED, "--user nobody-of-that-name: this machine has no such user"),
    ({"--drain-timeout": "soon"}, WRONG, "--drain-timeout: soon is not a duration"),
]


@pytest.fixture(scope="module")
def folder(request):
    bin_dir = pathlib.Path(request.config.getoption("--bin-dir")).resolve()
    path = pathlib.Path(tempfile.mkdtemp(prefix="tandem-e2e-", dir="/tmp"))
    subprocess.run([bin_dir / "tandem", "certs", "init", "--dir", path / "certs", "--host", "localhost"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (path / "folder").mkdir()
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("flags, code, says", CONTROLLER_CASES)
def test_the_controller_says_what_is_wrong(bin_dir, folder, flags, code, says):
    check(bin_dir, folder, "tandem-controller", {**CONTROLLER, **flags}, code, says)


@pytest.mark.parametrize("flags, code, says", WORKER_CASES)
def test_the_worker_says_what_is_wrong(bin_dir, folder, flags, code, says):
    check(bin_dir, folder, "tandem-worker", {**WORKER, **flags}, code, says)


def check(bin_dir, folder, program, flags, code, says):
    (folder / "file").write_text("words\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        def filled(text):
            return text.replace("{}", str(folder)).replace("{taken}", address)

        words = [word for flag, value in flags.items() for word in (flag, filled(value))]
        done = subprocess.run([bin_dir / program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                              check=False)
    line = done.stderr
    assert filled(says) in line
    assert line.startswith(f"{program}: ") and line.count("\n") == 1
    assert done.returncode == code
    assert (folder / "file").read_text() == "words\n"
