#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pods of deploy/kubernetes run as their manifests say, and do what docs/operations.md promises: the controller may be
moved while a job trains; a worker that is evicted has its job save a checkpoint, from which it goes on.

Usage: pods_test.py REPOSITORY BUILD    (as root)
"""
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time

import yaml

from pods import ADDRESS, NameServer, Pod, Volumes

CONTROLLER = "tandem-controller:7471"


def made_by_hand(root, tandem, folder):
    """Secrets and ConfigMaps as objects of Kubernetes, made as docs/operations.md has them made."""
    section = (root / "docs/operations.md").read_text().split("\n## On Kubernetes\n")[1].split("\n## ")[0]
    commands = [shlex.split(line) for line in section.splitlines()
                if line.strip().startswith(("tandem certs init", "kubectl create secret", "kubectl create configmap"))]
    subprocess.run([tandem, *commands[0][1:]], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    made = []
    for command in commands[1:]:
        done = subprocess.run([*command, "--dry-run=client", "--output=json"], cwd=folder, check=True, capture_output=True, text=True)
        made.append(json.loads(done.stdout))
    return made


class User:
    """Somebody with a certificate of the administrator."""

    def __init__(self, tandem, certs):
        self.command = [tandem, "--addr", CONTROLLER, "--tls-ca", certs / "ca.crt", "--tls-cert",
                        certs / "admin-operator.crt", "--tls-key", certs / "admin-operator.key"]

    def __call__(self, *words, code=0):
        done = subprocess.run([*self.command, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def job(self, job):
        return json.loads(self("describe", job, "-o", "json"))

    def steps(self, job):
        return [json.loads(line)["step"] for line in self("metrics", job, "-o", "json").splitlines()]


def wait_for(what, condition, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def spec(steps):
    return {
        "name": "moved",
        "model": {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 2,
                  "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 256, "model_type": "llama"},
        "data": {"train": "/shared/text", "tokenizer": "bytes"},
        "training": {"steps": steps, "sequence_length": 64, "micro_batch_size": 2, "global_batch_size": 8, "seed": 7,
                     "validate_every_steps": 0},
        "parallelism": {"ranks": 2, "fsdp": {"strategy": "zero3"}},
        "resources": {"device": "cpu", "ranks_per_worker": 1},
        "checkpoint": {"directory": "/shared/moved", "every_steps": 10 * steps},
    }


def check_rights(pod):
    """Of the container's first process, and of what it may write."""
    status = pod.exec("cat", "/proc/1/status").stdout
    fields = dict(line.split(":", 1) for line in status.splitlines())
    assert set(fields["Uid"].split()) == {"65532"} and set(fields["Gid"].split()) == {"65532"}, status
    assert {int(fields[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapInh")} == {0}, status
    assert fields["NoNewPrivs"].strip() == "1", status
    for place in ("/", "/etc", "/opt/tandem", "/etc/tandem/config", "/etc/tandem/tls"):
        assert pod.exec("sh", "-c", f"touch {place}/new").returncode != 0, f"{pod.name} may write to {place}"


def run(root, image, folder):
    documents = [document for document in yaml.safe_load_all((root / "tests/deploy/kubernetes/base.yaml").read_text()) if document]
    sets = {document["metadata"]["name"]: document for document in documents if document["kind"] == "StatefulSet"}
    certs = folder / "certs"
    volumes = Volumes(folder, documents + made_by_hand(root, image / "bin/tandem", folder))
    NameServer(documents)
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    subprocess.run(["mount", "--bind", folder / "resolv.conf", "/etc/resolv.conf"], check=True)  # for the user; of this process alone
    user = User(image / "bin/tandem", certs)
    controller = Pod(sets["tandem-controller"], 0, volumes, image)
    workers = [Pod(sets["tandem-worker"], number, volumes, image) for number in range(sets["tandem-worker"]["spec"]["replicas"])]
    shared = volumes.claim("tandem-shared", 65532)
    (shared / "text").write_bytes((root / "README.md").read_bytes() * 50)
    try:
        controller.start()
        for worker in workers:
            worker.start()
        for pod in (controller, *workers):
            check_rights(pod)

        # A controller that hangs is found by its probe, one that goes on is alive.
        controller.signal(signal.SIGSTOP)
        assert not controller.probe("livenessProbe")
        controller.signal(signal.SIGCONT)
        controller.wait_for_probe("livenessProbe")

        (folder / "job.json").write_text(json.dumps(spec(1_000_000)))
        first = user("submit", "-f", folder / "job.json")
        wait_for("the job makes steps", lambda: len(user.steps(first)) > 20)
        assert controller.delete() == 0
        controller.start()
        steps = len(user.steps(first))
        wait_for("the job goes on", lambda: len(user.steps(first)) > steps + 20)
        assert user.job(first)["attempt"] == 1 and user.steps(first)[:3] == [1, 2, 3]

        assert workers[1].delete() == 0
        user("wait", first, "--timeout", "200s", code=75)
        job = user.job(first)
        assert job["reason"] == "Preempted", job["reason"]
        saved = [int(path.name.removeprefix("step-")) for path in (shared / "moved").glob("step-*")]
        assert saved == [int(job["last_step"])], (saved, job["last_step"])

        workers[1].start()
        (folder / "job.json").write_text(json.dumps(spec(saved[0] + 50)))
        user("submit", "-f", folder / "job.json", "--resume", "newest", "--wait")
        lines = [json.loads(line)["step"] for line in (shared / "moved/metrics.jsonl").read_text().splitlines()]
        assert lines == list(range(1, saved[0] + 51)), "every step once"
        for pod in (*workers, controller):
            assert pod.delete() == 0
        print(f"moved the controller, evicted a worker: saved after step {saved[0]}, gone on from there")
    except AssertionError:
        for pod in (controller, *workers):
            print(f"{pod.name}:\n{pod.log()}")
        raise
    finally:
        for pod in (*workers, controller):
            pod.kill()


def main():
    root, build = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    assert build == root / "build/release", "scripts/package.sh packs build/release"
    if subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "ip", "link", "set", "lo", "up"], check=False).returncode != 0:
        print("skipped: this makes namespaces; needs root, iproute2, and a machine that lets it")
        sys.exit(77)
    if sys.argv[3:] != ["--inside"]:  # in a network of its own, where the ports are free
        os.execvp("unshare", ["unshare", "--net", "--mount", "sh", "-ec", f'ip link set lo up; ip address add {ADDRESS}/32 dev lo; exec "$@"', "sh", sys.executable, *sys.argv, "--inside"])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        subprocess.run([root / "scripts/package.sh", "--folder", folder / "image"], check=True)
        run(root, folder / "image", folder)


if __name__ == "__main__":
    main()
