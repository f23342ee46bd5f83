"""Workers on two machines, which here are two network namespaces with a cable between them."""
import os
import shutil
import subprocess

import pytest

from cluster import Cluster, tiny_job, wait_for

ADDRESSES = {"a": "10.99.0.1", "b": "10.99.0.2"}  # of the namespaces; the controller is in the first
PORT = 7070


def ip(*args):
    return subprocess.run(["ip", *args], capture_output=True, text=True)


@pytest.fixture
def machines():
    """{"a": namespace, "b": namespace}"""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("makes network namespaces: needs root and iproute2")
    names = {machine: f"tandem-{os.getpid()}-{machine}" for machine in ADDRESSES}
    cable = {machine: f"tdm{os.getpid()}{machine}"[-15:] for machine in ADDRESSES}
    try:
        for name in names.values():
            if ip("netns", "add", name).returncode != 0:
                pytest.skip("network namespaces are forbidden here")
        assert ip("link", "add", cable["a"], "type", "veth", "peer", "name", cable["b"]).returncode == 0
        for machine, name in names.items():
            assert ip("link", "set", cable[machine], "netns", name).returncode == 0
            assert ip("-n", name, "addr", "add", f"{ADDRESSES[machine]}/24", "dev", cable[machine]).returncode == 0
            for link in ("lo", cable[machine]):
                assert ip("-n", name, "link", "set", link, "up").returncode == 0
        yield names
    finally:
        for name in names.values():
            ip("netns", "del", name)


class TwoMachines(Cluster):
    """The controller on "a", reached there by its unix socket and everywhere by TCP."""

    def __init__(self, bin_dir, folder, machines):
        self.machines = machines
        self.machine_of = {}
        super().__init__(bin_dir, folder, workers=0)

    def _spawn(self, name, *args):
        machine = self.machines[self.machine_of.get(name, "a")]
        log = open(self.folder / f"{name}.log", "ab")
        return subprocess.Popen(["ip", "netns", "exec", machine, self.bin / args[0], *map(str, args[1:])],
                                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def start_controller(self, *more):
        super().start_controller("--listen", f"0.0.0.0:{PORT}", *more)

    def start_worker_on(self, machine, name, controller=f"{ADDRESSES['a']}:{PORT}"):
        self.machine_of[name] = machine
        address, self.address = self.address, controller
        try:
            self.start_worker(name)
        finally:
            self.address = address


@pytest.fixture
def cluster(bin_dir, tmp_path, machines):
    made = TwoMachines(bin_dir, tmp_path, machines)
    yield made
    made.close()


def spread(name, **more):
    spec = tiny_job(name, ranks=2, steps=5, **more)
    spec["resources"] = {"ranks_per_worker": 1}
    return spec


def test_ranks_on_two_machines_train_though_nobody_named_an_address(cluster):
    cluster.start_worker_on("a", "w-a")
    cluster.start_worker_on("b", "w-b")
    cluster.submit(spread("far"))
    job = cluster.wait_state("far", "SUCCEEDED")
    assert {slot["worker"] for slot in job["attempts"][0]["slots"]} == {"w-a", "w-b"}


def test_a_worker_that_only_its_own_machine_reaches_is_not_mixed_with_others(cluster):
    cluster.start_worker_on("a", "w-a", controller=f"127.0.0.1:{PORT}")
    cluster.start_worker_on("b", "w-b")
    cluster.submit(spread("apart"))
    job = wait_for("it says why it waits", lambda: (lambda j: j if j["reason"] == "WorkersApart" else None)(
        cluster.job("apart")))
    assert "w-a (127.0.0.1) and w-b (10.99.0.2) do not" in job["message"]
    cluster.start_worker_on("b", "w-c")
    cluster.wait_state("apart", "SUCCEEDED")
