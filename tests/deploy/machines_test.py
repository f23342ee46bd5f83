#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Somebody installs Tandem on machines of his own with docs/operations.md alone: the commands of the page, word by word.

One machine plays all of them: an overlay over this one's files, with a network, a host name and processes of its own,
that nothing is left of. Only systemd is not the real one: `systemctl` here reads the units' ExecStart, User and
StateDirectory, and nothing else. Skipped (77) where such a machine cannot be made.

Usage: machines_test.py REPOSITORY BUILD
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time

ADDRESS = "10.96.0.1"
PROGRAMS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SYSTEMCTL = r'''#!/usr/bin/python3
import os, pathlib, pwd, re, shlex, signal, socket, subprocess, sys, time
words = [word for word in sys.argv[1:] if not word.startswith("--")]
verb, units = words[0], words[1:]

def pid_file(unit):
    return pathlib.Path(f"/run/{unit}.pid")

def runs(unit):
    try:
        return pathlib.Path(f"/proc/{pid_file(unit).read_text()}/status").read_text().find("State:\tZ") < 0
    except OSError:
        return False

def start(unit):
    text = pathlib.Path(f"/etc/systemd/system/{unit}.service").read_text()
    said = dict(re.findall(r"^(\w+)=(.*)$", text, re.M))
    user = pwd.getpwnam(said["User"])
    folder = pathlib.Path("/var/lib") / said["StateDirectory"]
    folder.mkdir(parents=True, exist_ok=True)
    os.chown(folder, user.pw_uid, user.pw_gid)
    process = subprocess.Popen(shlex.split(said["ExecStart"]), user=user.pw_uid, group=user.pw_gid, extra_groups=[], env={},
                               stdin=subprocess.DEVNULL, stdout=open(f"/var/log/{unit}", "ab"), stderr=subprocess.STDOUT, start_new_session=True)
    pid_file(unit).write_text(str(process.pid))
    deadline = time.monotonic() + 60
    while unit == "tandem-controller" and runs(unit) and time.monotonic() < deadline:
        with socket.socket() as door:
            if door.connect_ex(("127.0.0.1", 7471)) == 0:
                break
        time.sleep(0.05)
    time.sleep(0.5)

def stop(unit):
    if runs(unit):
        os.kill(int(pid_file(unit).read_text()), signal.SIGTERM)
    while runs(unit):
        time.sleep(0.05)

for unit in units:
    if verb in ("stop", "disable", "restart"):
        stop(unit)
        if verb == "restart":
            start(unit)
    elif verb in ("start", "enable") and not runs(unit):
        start(unit)
    elif verb == "status" and not runs(unit):
        sys.exit(pathlib.Path(f"/var/log/{unit}").read_text())
    elif verb not in ("status", "start", "enable"):
        sys.exit(f"systemctl: {verb}?")
'''


class Page:
    def __init__(self, path):
        self.text = path.read_text()

    def block(self, heading, number):
        """The commands of a block under a heading, from 1."""
        section = self.text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
        found = re.findall(r"^ *```sh\n(.*?)^ *```$", section, re.M | re.S)
        return textwrap.dedent(found[number - 1])


def shell(commands):
    done = subprocess.run(["bash", "-ec", commands], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400, check=False)
    if done.returncode != 0:
        logs = "".join(path.read_text() for path in pathlib.Path("/var/log").glob("tandem-*"))
        sys.exit(f"{commands}\nexits with {done.returncode}:\n{done.stdout}{done.stderr}\n{logs[-4000:]}")
    return done.stdout


def shell_until(pattern, commands):
    """Until a line of what they print is as wanted: a worker that was started connects when it can."""
    deadline = time.monotonic() + 120
    while not re.search(pattern, said := shell(commands), re.M):
        if time.monotonic() > deadline:
            sys.exit(f"{commands}\nprints\n{said}")
        time.sleep(0.2)


def make_machine(folder, archive):
    """The machine's root is `folder`/root from then on; its files are gone with this process."""
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    for name in ("root", "changed", "work"):
        (folder / name).mkdir()
    root = folder / "root"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={folder}/changed,workdir={folder}/work", root], check=True)
    subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], check=True)
    for name in ("dev", "sys"):
        subprocess.run(["mount", "--rbind", f"/{name}", root / name], check=True)
    for name in ("tmp", "run", "opt", "root", "usr/local", "var/lib", "var/log"):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777" if name == "tmp" else "mode=755", "tmpfs", root / name], check=True)
    for name in ("usr/local/bin", "usr/local/sbin"):
        (root / name).mkdir()
    (root / "usr/local/sbin/systemctl").write_text(SYSTEMCTL)
    (root / "usr/local/sbin/systemctl").chmod(0o755)
    for name in ("tandem-0.1.0-test-linux-x86_64.tar.gz", "NEW.tar.gz"):
        shutil.move(archive / name, root / "root")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"], check=True)
    subprocess.run(["hostname", "w1"], check=True)
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{ADDRESS} ctl.example w1\n")
    os.chroot(root)
    os.chdir("/root")
    os.environ.clear()
    os.environ.update(HOME="/root", PATH=PROGRAMS, LANG="C.UTF-8")


def play(page):
    own = "On your own machines"
    assert "ok    libraries" in shell(page.block(own, 1))
    shell(page.block(own, 2))
    shell("cp certs/ca.crt certs/controller.* certs/worker-w1.* .")
    shell(page.block(own, 3))
    shell(page.block(own, 4))
    shell("echo 'slots: 4' >>/etc/tandem/worker.yaml; systemctl restart tandem-worker; rm ca.crt controller.* worker-w1.*")
    shell(page.block(own, 5))
    shell_until(r"^w1 +w1 +yes +4 ", "tandem get workers")
    first = page.block(own, 6)
    assert "steps: 200" in first
    described = shell(first.replace("steps: 200", "steps: 20").replace("every_steps: 50", "every_steps: 10"))
    assert re.search(r"^state +SUCCEEDED", described, re.M), described
    shell("[ $(stat -c %U /shared/ada/first/step-20) = tandem ]")
    shell(page.block("Backup and restore", 1))
    shell("tandem cancel first || true; rm -rf /var/lib/tandem/controller/*")  # which the controller may notice at any time
    shell(page.block("Backup and restore", 2))
    assert "SUCCEEDED" in shell("tandem get jobs")
    before = shell("readlink -f /opt/tandem")
    upgrade = [page.block("Upgrade and rollback", number) for number in (1, 2, 3, 4)]
    versions = [shell(commands) for commands in upgrade][-1]
    assert shell("readlink -f /opt/tandem") != before and len(set(re.findall(r"0\.1\.0\+\w+", versions))) == 1, versions
    shell_until(r"^w1 +w1 +yes", "tandem get workers")
    shell("systemctl disable --now tandem-worker; systemctl disable --now tandem-controller")
    shell(page.block(own, 7))
    left = shell("find /etc /usr/local /var/lib -iname '*tandem*'; getent passwd tandem || true; ls /opt")
    assert set(left.split()) <= {"NEW"}, left


def main():
    root, build = (pathlib.Path(path).absolute() for path in sys.argv[1:3])
    if "--inside" in sys.argv:
        page = Page(root / "docs/operations.md")
        make_machine(pathlib.Path(sys.argv[4]), pathlib.Path(sys.argv[5]))
        play(page)
        print("installed, trained, backed up, restored, upgraded and removed with the page's commands")
        return
    private = ["unshare", "--mount", "--uts", "--net", "--pid", "--fork", "--kill-child"]
    if os.getuid() != 0 or "overlay" not in pathlib.Path("/proc/filesystems").read_text() or subprocess.run([*private, "true"], check=False).returncode:
        print("skipped: no namespaces of one's own, or no overlays, here")
        sys.exit(77)
    with tempfile.TemporaryDirectory(dir=build) as archive, tempfile.TemporaryDirectory(dir=build) as folder:
        archive = pathlib.Path(archive)
        subprocess.run([root / "scripts/package.sh", "--folder", archive / "made"], check=True)
        for name in ("tandem-0.1.0-test-linux-x86_64", "NEW"):
            subprocess.run(["tar", "-C", archive, "--transform", f"s,^made,{name},", "-I", "gzip -1", "-cf", archive / f"{name}.tar.gz", "made"],
                           check=True)
        shutil.rmtree(archive / "made")
        subprocess.run([*private, sys.executable, __file__, root, build, "--inside", folder, archive], check=True)


if __name__ == "__main__":
    main()
