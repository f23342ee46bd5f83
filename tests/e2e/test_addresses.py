# SPDX-License-Identifier: Apache-2.0
"""Machines whose own name is 127.0.1.1, as Debian's installer writes it, and machines with IPv6 alone. They are the network
namespaces of test_network.py."""
import os
import pathlib
import shutil
import subprocess

import pytest

from test_network import ADDRESSES, PORT, TwoMachines, ip, machines, spread  # pylint: disable=unused-import

IPV6 = {"a": "fd99::1", "b": "fd99::2"}


def far(cluster, *command):
    return subprocess.run(["ip", "netns", "exec", cluster.machines["b"], *map(str, command)], capture_output=True, text=True, timeout=60)


@pytest.fixture
def host_names(machines):
    """In each machine's own hosts file its name is 127.0.1.1, and the other's name is its address."""
    folders = [pathlib.Path("/etc/netns") / name for name in machines.values()]
    try:
        for (machine, folder), (other, address) in zip(zip(machines, folders), reversed(ADDRESSES.items())):
            folder.mkdir(parents=True)
            (folder / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 node{machine}\n{address} node{other}\n")
        yield machines
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def ipv6_alone(machines):
    for machine, name in machines.items():
        cable = f"tc{os.getpid()}{machine}"[-15:]
        assert ip("-n", name, "addr", "add", f"{IPV6[machine]}/64", "dev", cable, "nodad").returncode == 0
        assert ip("-n", name, "-4", "addr", "flush", "scope", "global").returncode == 0
        assert ip("-n", name, "addr", "del", "127.0.0.1/8", "dev", "lo").returncode == 0
    return machines


def test_loopback_host_name_still_serves_other_machines(bin_dir, tmp_path, host_names):
    cluster = TwoMachines(bin_dir, tmp_path, host_names, "nodea", f"nodea:{PORT}")
    try:
        for machine in ADDRESSES:
            cluster.start_worker_on(machine, f"w-{machine}", controller=f"nodea:{PORT}")
        cluster.submit(spread("named"))
        job = cluster.wait_state("named", "SUCCEEDED")
        assert {slot["worker"] for slot in job["attempts"][0]["slots"]} == {"w-a", "w-b"}
    finally:
        cluster.close()


def test_machines_with_ipv6_alone_train_and_are_probed(bin_dir, tmp_path, ipv6_alone):
    cluster = TwoMachines(bin_dir, tmp_path, ipv6_alone, IPV6["a"], f"[::]:{PORT}", metrics="[::]:9464")
    try:
        for machine in ADDRESSES:
            cluster.start_worker_on(machine, f"w-{machine}", controller=f"[{IPV6['a']}]:{PORT}")
        cluster.submit(spread("six"))
        job = cluster.wait_state("six", "SUCCEEDED")
        assert {slot["worker"] for slot in job["attempts"][0]["slots"]} == {"w-a", "w-b"}
        for path, said in (("healthz", "ok"), ("metrics", "tandem_build_info")):
            page = far(cluster, "python3", "-c",
                       f"import urllib.request as u; print(u.urlopen('http://[{IPV6['a']}]:9464/{path}', timeout=20).read().decode())")
            assert said in page.stdout, page.stderr
        asked = far(cluster, cluster.bin / "tandem", "--addr", f"[{IPV6['a']}]:{PORT}", *cluster.tls("user-alice"), "get", "jobs")
        assert "six" in asked.stdout, asked.stderr
    finally:
        cluster.close()
