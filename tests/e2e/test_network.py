# SPDX-License-Identifier: Apache-2.0
"""Workers on two machines, which here are two network namespaces with two cables between them: one for the
controller, one for data."""
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess

import pytest

from cluster import Cluster, tiny_job, wait_for

ADDRESSES = {"a": "10.99.0.1", "b": "10.99.0.2"}  # of the namespaces; the controller is in the first
DATA_ADDRESSES = {"a": "10.98.0.1", "b": "10.98.0.2"}
PORT = 7070


def ip(*args):
    return subprocess.run(["ip", *args], capture_output=True, text=True)


@pytest.fixture
def machines():
    """{"a": namespace, "b": namespace}"""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("makes network namespaces: needs root and iproute2")
    if subprocess.run(["findmnt", "/"], capture_output=True).returncode != 0:
        pytest.skip("nobody enters a network namespace in a chroot: ip needs a root folder that is mounted")
    names = {machine: f"tandem-{os.getpid()}-{machine}" for machine in ADDRESSES}
    try:
        for name in names.values():
            if ip("netns", "add", name).returncode != 0:
                pytest.skip("network namespaces are forbidden here")
            assert ip("-n", name, "link", "set", "lo", "up").returncode == 0
        for kind, addresses in (("c", ADDRESSES), ("d", DATA_ADDRESSES)):
            cable = {machine: f"t{kind}{os.getpid()}{machine}"[-15:] for machine in addresses}
            assert ip("link", "add", cable["a"], "type", "veth", "peer", "name", cable["b"]).returncode == 0
            for machine, name in names.items():
                assert ip("link", "set", cable[machine], "netns", name).returncode == 0
                assert ip("-n", name, "addr", "add", f"{addresses[machine]}/24", "dev", cable[machine]).returncode == 0
                assert ip("-n", name, "link", "set", cable[machine], "up").returncode == 0
        yield names
    finally:
        for name in names.values():
            ip("netns", "del", name)


class TwoMachines(Cluster):
    """The controller on "a", reached there by its unix socket and everywhere by TCP with TLS."""

    def __init__(self, bin_dir, folder, machines, host=ADDRESSES["a"], listen=f"0.0.0.0:{PORT}", metrics="off"):
        self.machines = machines
        self.machine_of = {}
        self.listen = listen
        self.certs = pathlib.Path(folder) / "certs"
        made = subprocess.run([pathlib.Path(bin_dir) / "tandem", "certs", "init", "--dir", self.certs, "--host", host,
                               "--host", "127.0.0.1", "--worker", "w-*", "--user", "alice"], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        super().__init__(bin_dir, folder, workers=0, metrics=metrics)

    def _spawn(self, name, *args):
        machine = self.machines[self.machine_of.get(name, "a")]
        log = open(self.folder / f"{name}.log", "ab")
        return subprocess.Popen(["ip", "netns", "exec", machine, self.bin / args[0], *map(str, args[1:])],
                                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def tls(self, name):
        return ["--tls-ca", self.certs / "ca.crt", "--tls-cert", self.certs / f"{name}.crt", "--tls-key",
                self.certs / f"{name}.key"]

    def start_controller(self, *more):
        super().start_controller("--listen", self.listen, *self.tls("controller"), *more)

    def start_worker_on(self, machine, name, *more, controller=f"{ADDRESSES['a']}:{PORT}"):
        self.machine_of[name] = machine
        self.workers[name] = self._spawn(name, "tandem-worker", "--controller", controller, "--id", name, "--state",
                                         self.folder / name, "--slots", self.slots, *self.tls("worker-w-_"), *more)


def sockets_of(pid):
    """(local, remote, listening) of every TCP socket of a process."""
    inodes = set()
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(descriptor)))
        except FileNotFoundError:
            pass

    def address(text):
        host, port = text.split(":")
        words = [struct.pack("=I", int(host[i:i + 8], 16)) for i in range(0, len(host), 8)]
        family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
        return socket.inet_ntop(family, b"".join(words)).removeprefix("::ffff:"), int(port, 16)

    found = []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes:
                found.append((address(fields[1]), address(fields[2]), fields[3] == "0A"))
    return found


@pytest.fixture
def cluster(bin_dir, tmp_path, machines):
    made = TwoMachines(bin_dir, tmp_path, machines)
    yield made
    made.close()


def spread(name, **more):
    spec = tiny_job(name, ranks=2, steps=5, **more)
    spec["resources"] = {"ranks_per_worker": 1}
    return spec


def test_ranks_on_two_machines_need_no_address_option(cluster):
    cluster.start_worker_on("a", "w-a")
    cluster.start_worker_on("b", "w-b")
    cluster.submit(spread("far"))
    job = cluster.wait_state("far", "SUCCEEDED")
    assert {slot["worker"] for slot in job["attempts"][0]["slots"]} == {"w-a", "w-b"}


def test_unreachable_worker_is_not_mixed_with_others(cluster):
    cluster.start_worker_on("a", "w-a", controller=f"127.0.0.1:{PORT}")
    cluster.start_worker_on("b", "w-b")
    cluster.submit(spread("apart"))
    job = wait_for("it says why it waits", lambda: (lambda j: j if j["reason"] == "WorkersApart" else None)(
        cluster.job("apart")))
    assert "w-a (127.0.0.1) and w-b (10.99.0.2) do not" in job["message"]
    cluster.start_worker_on("b", "w-c")
    cluster.wait_state("apart", "SUCCEEDED")


def test_ranks_talk_over_the_data_address_only(cluster):
    for machine in ADDRESSES:
        cluster.start_worker_on(machine, f"w-{machine}", "--data-address", DATA_ADDRESSES[machine])
    spec = spread("long")
    spec["training"]["steps"] = 1_000_000
    cluster.submit(spec)
    wait_for("it trains", lambda: cluster.step("long") > 2)
    for machine in ADDRESSES:
        worker = cluster.workers[f"w-{machine}"].pid
        # The daemon dials the controller and listens on nothing.
        assert {(remote, listening) for _, remote, listening in sockets_of(worker)} == {((ADDRESSES["a"], PORT), False)}
        (rank,) = cluster.trainers_of(f"w-{machine}")
        sockets = sockets_of(rank)
        assert any(listening for _, _, listening in sockets), "it waits for its peers somewhere"
        assert {local[0] for local, _, _ in sockets} == {DATA_ADDRESSES[machine]}, sockets
        assert {remote[0] for _, remote, listening in sockets if not listening} <= set(DATA_ADDRESSES.values())
    cluster.cli("cancel", "long")
    cluster.wait_state("long", "CANCELLED")


def test_other_machines_need_a_certificate(cluster):
    def far(*args):
        return subprocess.run(["ip", "netns", "exec", cluster.machines["b"], cluster.bin / "tandem", "--addr",
                               f"{ADDRESSES['a']}:{PORT}", *map(str, args)], capture_output=True, text=True, timeout=60)

    assert far(*cluster.tls("user-alice"), "get", "jobs").returncode == 0
    nobody = far("get", "jobs")
    assert nobody.returncode == 5
    assert "closes the connection; if it speaks TLS, give --tls-ca, --tls-cert and --tls-key" in nobody.stderr
    subprocess.run([cluster.bin / "tandem", "certs", "init", "--dir", cluster.folder / "other", "--user", "alice"], check=True,
                   capture_output=True)
    other = ["--tls-ca", cluster.folder / "other/ca.crt", *cluster.tls("user-alice")[2:]]
    stranger = far(*other, "get", "jobs")
    assert stranger.returncode == 5
    assert "its certificate is not signed by what " in stranger.stderr
    misnamed = far(*cluster.tls("user-alice"), "--tls-server-name", "elsewhere.example", "get", "jobs")
    assert misnamed.returncode == 5
    assert "its certificate is for other names; use one of them as the address" in misnamed.stderr
    worker = far(*cluster.tls("worker-w-_"), "get", "jobs")
    assert worker.returncode == 5
    assert "may not call Jobs.ListJobs; allowed: users, admins" in worker.stderr
