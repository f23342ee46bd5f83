# SPDX-License-Identifier: Apache-2.0
"""What strangers and users at the controller's ports cost it, while a job trains. -s --full prints the figures of docs/security.md."""
import contextlib
import pathlib
import resource
import socket
import ssl
import subprocess
import time

import pytest

from cluster import Cluster, free_port, tiny_job, wait_for
from half_sent import HEADERS, SETTINGS, HalfSent, frame, send

STRANGERS = 2000
STRANGERS_HOST = "127.0.0.2"  # another machine's than the users'
EMPTY_HEADERS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b"") + b"".join(
    frame(HEADERS, 4, 2 * i + 1, b"") for i in range(7260))


class FrontDoor(Cluster):
    """Users and workers have a port each, with TLS; the test itself uses the unix socket."""

    def __init__(self, bin_dir, folder):
        self.users, self.of_workers = free_port(), free_port()
        self.certs = pathlib.Path(folder) / "certs"
        subprocess.run([pathlib.Path(bin_dir) / "tandem", "certs", "init", "--dir", self.certs, "--host", "127.0.0.1",
                        "--worker", "w-*", "--user", "alice", "--user", "eve"], check=True, capture_output=True)
        super().__init__(bin_dir, folder, workers=0)

    def tls(self, name):
        return ["--tls-ca", self.certs / "ca.crt", "--tls-cert", self.certs / f"{name}.crt", "--tls-key",
                self.certs / f"{name}.key"]

    def start_controller(self):
        self.revoked = self.folder / "revoked"
        self.revoked.write_text("# none\n")
        super().start_controller("--listen", f"127.0.0.1:{self.users}", "--worker-listen",
                                 f"127.0.0.1:{self.of_workers}", "--tls-revoked", self.revoked, *self.tls("controller"))

    def start_training(self):
        self.workers["w-0"] = self._spawn("w-0", "tandem-worker", "--controller", f"127.0.0.1:{self.of_workers}",
                                          "--id", "w-0", "--state", self.folder / "w-0", "--slots", "1",
                                          *self.tls("worker-w-_"))
        self.submit(tiny_job("runs", ranks=1, steps=10_000_000))
        self.wait_state("runs", "RUNNING")
        wait_for("it trains", lambda: self.step("runs") > 0)

    def memory(self, name="VmRSS"):
        status = pathlib.Path(f"/proc/{self.controller.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith(name))) // 1024

    def get_jobs(self, name):
        return subprocess.run([self.bin / "tandem", "--addr", f"127.0.0.1:{self.users}", *self.tls(f"user-{name}"), "get",
                               "jobs"], capture_output=True, text=True, timeout=60)

    def stranger(self):
        return socket.create_connection(("127.0.0.1", self.users), 10, (STRANGERS_HOST, 0))

    def client(self, name=None):
        """A TLS client's context."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        if name is not None:
            context.load_cert_chain(self.certs / f"{name}.crt", self.certs / f"{name}.key")
        return context

    def check_trains_on(self):
        before = self.step("runs")
        wait_for("it trains on", lambda: self.step("runs") > before)
        assert self.job("runs")["attempt"] == 1, "the worker was never away"
        assert "worker disconnected" not in (self.folder / "controller.log").read_text()


@pytest.fixture
def cluster(bin_dir, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    made = FrontDoor(bin_dir, tmp_path)
    try:
        made.start_training()
        yield made
    finally:
        made.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def client_hello(context):
    """What a client of TLS says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def is_closed(each):
    """Whether the controller has closed it."""
    each.setblocking(False)
    try:
        while each.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def wait_closed(sockets, count):
    """Until so many are closed. None is asked again: thousands would take the time that the controller needs."""
    left = list(sockets)

    def found():
        left[:] = [each for each in left if not is_closed(each)]
        return len(sockets) - len(left) >= count
    wait_for(f"{count} are closed", found, 240)


@pytest.mark.parametrize("kind", ["idle", pytest.param("half a hello", marks=pytest.mark.full),
                                  pytest.param("a hello", marks=pytest.mark.full), "empty HEADERS"])
def test_strangers_cost_little_and_keep_nobody_out(cluster, kind):
    says = {"idle": b"", "half a hello": client_hello(cluster.client())[:100], "a hello": client_hello(cluster.client()),
            "empty HEADERS": EMPTY_HEADERS}[kind]
    before = cluster.memory()
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(cluster.stranger()) for _ in range(STRANGERS)]
        for each in strangers:
            each.setblocking(False)
            with contextlib.suppress(OSError):
                each.send(says)
        answer = cluster.get_jobs("alice")
        assert answer.returncode == 0, answer.stderr
        grown = cluster.memory("VmHWM") - before
        print(f"\n{STRANGERS} strangers, {kind}: {grown} MB more", flush=True)
        assert grown < 200
        cluster.check_trains_on()
        wait_closed(strangers, STRANGERS)


def test_headers_before_a_certificate_reach_nobody(cluster):
    before = cluster.memory()
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            plain = cluster.stranger()
            with contextlib.suppress(OSError):  # its client does not wait for the server's verdict
                plain = cluster.client().wrap_socket(plain)
                plain.setblocking(False)
                plain.send(EMPTY_HEADERS)
            stack.enter_context(plain)
        assert cluster.get_jobs("alice").returncode == 0
        grown = cluster.memory("VmHWM") - before
        print(f"\n200 strangers with empty HEADERS within TLS: {grown} MB more", flush=True)
        assert grown < 50
        cluster.check_trains_on()


@pytest.mark.parametrize("at_once", [1, pytest.param(8, marks=pytest.mark.full)])
def test_huge_messages_are_bounded_and_end_no_session(cluster, at_once):
    before, clients = cluster.memory(), []
    with contextlib.ExitStack() as stack:
        for _ in range(at_once):
            plain = socket.create_connection(("127.0.0.1", cluster.users), 10)
            socket_of_eve = stack.enter_context(cluster.client("user-eve").wrap_socket(plain))
            clients.append(HalfSent(socket_of_eve, calls=1, length=512 << 20))
        closed_too = send(clients, seconds=200)
        grown = cluster.memory("VmHWM") - before
        print(f"\n{at_once} messages of 512 MB: {grown} MB more", flush=True)
        assert grown < 600
        assert closed_too + sum(client.ended for client in clients) >= at_once, "gRPC has ended the calls"
        cluster.check_trains_on()
        assert cluster.get_jobs("alice").returncode == 0


def test_without_descriptors_strangers_are_closed_and_users_return(cluster):
    resource.prlimit(cluster.controller.pid, resource.RLIMIT_NOFILE, (120, 120))
    with contextlib.ExitStack() as stack:
        wait_closed([stack.enter_context(cluster.stranger()) for _ in range(300)], 200)
        assert "connections are turned away" in (cluster.folder / "controller.log").read_text()
    wait_for("users are served again", lambda: cluster.get_jobs("alice").returncode == 0)
    cluster.check_trains_on()


def test_new_certificates_end_no_session(cluster):
    log = cluster.folder / "controller.log"
    for _ in range(2):
        count = log.read_text().count("new TLS files are used")
        subprocess.run([cluster.bin / "tandem", "certs", "issue", "--dir", cluster.certs, "--host", "127.0.0.1", "--renew"],
                       check=True, capture_output=True)
        wait_for("it uses them", lambda: log.read_text().count("new TLS files are used") > count)
        time.sleep(1.5)  # gRPC looks once a second
        assert cluster.get_jobs("alice").returncode == 0
    cluster.check_trains_on()


def test_a_revoked_user_is_refused_within_seconds(cluster):
    assert cluster.get_jobs("eve").returncode == 0
    begin = time.monotonic()
    cluster.revoked.write_text("user/eve\n")
    wait_for("eve is refused", lambda: cluster.get_jobs("eve").returncode == 5)
    taken = time.monotonic() - begin
    print(f"\na revoked user is refused after {taken:.1f} s", flush=True)
    assert taken < 10, "3 s, and what a busy machine adds"
    assert cluster.get_jobs("alice").returncode == 0
    cluster.check_trains_on()
