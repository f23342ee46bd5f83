# SPDX-License-Identifier: Apache-2.0
"""Runs pods of a StatefulSet as their manifest says: command, arguments, environment, user, groups, capabilities, read-only
root, volumes, probes, termination. In namespaces and a chroot, for root, without an engine. What the manifest has and
this does not know is refused; UNENFORCED below is known and has no effect. All pods share the network."""
import base64
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
import urllib.request

UNENFORCED = {"resources", "affinity", "tolerations", "enableServiceLinks", "automountServiceAccountToken", "seccompProfile",
              "fsGroupChangePolicy"}
OF_POD = {"containers", "volumes", "securityContext", "terminationGracePeriodSeconds"}
OF_CONTAINER = {"name", "image", "command", "args", "env", "volumeMounts", "securityContext", "startupProbe", "readinessProbe",
                "livenessProbe", "ports"}
OF_CONTEXT = {"runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup", "allowPrivilegeEscalation", "readOnlyRootFilesystem",
              "capabilities"}
OF_PROBE = {"exec", "httpGet", "periodSeconds", "timeoutSeconds", "failureThreshold"}
OF_THE_LINUX = ("usr", "bin", "sbin", "lib", "lib64")  # of an image; these are the machine's
ADDRESS = "10.96.0.1"  # of every pod; workers at a loopback address could not be of one job
PATH = re.search(r"^ENV PATH=(\S+)", (pathlib.Path(__file__).parents[2] / "deploy/container/Dockerfile").read_text(), re.M)[1]


def known(fields, *sets):
    """The fields, each of which is in one of the sets."""
    unknown = set(fields) - set().union(*sets)
    assert not unknown, f"this runner does not know {unknown}"
    return fields


class Volumes:
    """What outlives pods: claims, and the content of ConfigMaps and Secrets."""

    def __init__(self, folder, documents):
        self.folder = pathlib.Path(folder)
        self.config = {document["metadata"]["name"]: document["data"] for document in documents if document["kind"] == "ConfigMap"}
        self.secrets = {document["metadata"]["name"]: {key: base64.b64decode(data).decode() for key, data in document["data"].items()}
                        for document in documents if document["kind"] == "Secret"}

    def claim(self, name, group):
        return self._make(self.folder / "claims" / name, group)

    def empty(self, pod, name, group):
        shutil.rmtree(self.folder / "empty" / pod / name, ignore_errors=True)
        return self._make(self.folder / "empty" / pod / name, group)

    def files(self, pod, name, content, mode, group):
        """As the kubelet writes them: the names lead through ..data, which is what it replaces."""
        folder = self.empty(pod, name, group)
        (folder / "..1").mkdir()
        (folder / "..data").symlink_to("..1")
        for file, text in content.items():
            (folder / "..1" / file).write_text(text)
            os.chown(folder / "..1" / file, 0, group)
            os.chmod(folder / "..1" / file, mode)
            (folder / file).symlink_to(f"..data/{file}")
        return folder

    @staticmethod
    def _make(folder, group):
        folder.mkdir(parents=True, exist_ok=True)
        os.chown(folder, 0, group)
        os.chmod(folder, 0o2775)
        return folder


class NameServer(threading.Thread):
    """The cluster's: the names of services are ADDRESS, and there are no others."""

    def __init__(self, documents):
        super().__init__(daemon=True)
        self.names = {document["metadata"]["name"].encode() for document in documents if document["kind"] == "Service"}
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))
        self.start()

    def run(self):
        while True:
            query, asker = self.socket.recvfrom(512)
            self.socket.sendto(self.answer(query), asker)

    def answer(self, query):
        """RFC 1035, 4.1: the question again, and an address where one was asked for and is known."""
        end = query.index(0, 12)  # of a name without a search domain: length, label, 0
        known_name = query[13:end].lower() in self.names
        address = known_name and query[end + 1:end + 3] == b"\0\1"
        header = query[:2] + struct.pack(">HHHHH", 0x8580 if known_name else 0x8583, 1, int(address), 0, 0)
        record = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + socket.inet_aton(ADDRESS) if address else b""
        return header + query[12:end + 5] + record


class Pod:
    """One pod. `image`: the folder that is /opt/tandem."""

    def __init__(self, stateful_set, ordinal, volumes, image):
        template = stateful_set["spec"]["template"]
        self.name = f"{stateful_set['metadata']['name']}-{ordinal}"
        self.spec = known(template["spec"], OF_POD, UNENFORCED)
        (self.container,) = self.spec["containers"]
        known(self.container, OF_CONTAINER, UNENFORCED)
        self.pod_context = known(self.spec["securityContext"], OF_CONTEXT, UNENFORCED)
        self.context = known(self.container["securityContext"], OF_CONTEXT, UNENFORCED)
        self.claims = [claim["metadata"]["name"] for claim in stateful_set["spec"].get("volumeClaimTemplates", [])]
        self.volumes = volumes
        self.image = image
        self.process = None
        self.said = ""  # by the last probe

    def start(self):
        folder = self.volumes.folder / "pods" / self.name
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "root").mkdir(parents=True)
        (folder / "setup.sh").write_text(self._setup(folder))
        log = open(folder.with_suffix(".log"), "ab")
        self.process = subprocess.Popen(["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "sh", "-e", folder / "setup.sh"],
                                        stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.pid = None
        deadline = time.monotonic() + 60
        while not self._runs():  # without probes it is ready from then on
            assert time.monotonic() < deadline, f"{self.name} does not run:\n{self.log()}"
            time.sleep(0.1)
        for probe in ("startupProbe", "readinessProbe"):
            if probe in self.container:
                self.wait_for_probe(probe)

    def log(self):
        return (self.volumes.folder / "pods" / f"{self.name}.log").read_text()

    def _sources(self):
        """The folder (or tmpfs) behind each volume, by name."""
        group = self.pod_context["fsGroup"]
        found = {name: str(self.volumes.claim(f"{name}-{self.name}", group)) for name in self.claims}
        for volume in self.spec["volumes"]:
            name = volume["name"]
            known(volume, {"name", "emptyDir", "configMap", "secret", "persistentVolumeClaim"})
            if "emptyDir" in volume:
                empty = known(volume["emptyDir"], {"medium", "sizeLimit"})
                found[name] = (f"tmpfs:{empty['sizeLimit'].removesuffix('i')}" if empty.get("medium") == "Memory"
                               else str(self.volumes.empty(self.name, name, group)))
            elif "configMap" in volume:
                content = self.volumes.config[known(volume["configMap"], {"name"})["name"]]
                found[name] = str(self.volumes.files(self.name, name, content, 0o644, group))
            elif "secret" in volume:
                secret = known(volume["secret"], {"secretName", "defaultMode"})
                found[name] = str(self.volumes.files(self.name, name, self.volumes.secrets[secret["secretName"]], secret["defaultMode"], group))
            else:
                found[name] = str(self.volumes.claim(volume["persistentVolumeClaim"]["claimName"], group))
        return found

    def _setup(self, folder):
        """A script that makes the container's root and becomes its process."""
        root = folder / "root"
        group = self.pod_context["fsGroup"]
        lines = ["mount --make-rprivate /", f"mount -t tmpfs -o mode=755 none {root}"]
        for name in OF_THE_LINUX:
            source = pathlib.Path("/") / name
            if source.is_symlink():
                lines.append(f"ln -s {os.readlink(source)} {root}/{name}")
            elif source.exists():
                lines += [f"mkdir {root}/{name}", f"mount --bind -o ro {source} {root}/{name}"]
        lines += [f"mkdir -p {root}/etc {root}/opt/tandem {root}/proc {root}/dev/shm {root}/tmp {root}/run {root}/var/lib/tandem",
                  f"mount --bind {self.image} {root}/opt/tandem", f"mount -o remount,bind,ro {root}/opt/tandem",
                  f"mount -t proc proc {root}/proc"]
        for device in ("null", "zero", "urandom", "random"):
            lines += [f"touch {root}/dev/{device}", f"mount --bind /dev/{device} {root}/dev/{device}"]
        (folder / "hosts").write_text(f"127.0.0.1 localhost {self.name}\n")
        (folder / "passwd").write_text("root:x:0:0::/:/bin/sh\ntandem:x:65532:65532::/var/lib/tandem:/usr/sbin/nologin\n")
        (folder / "nsswitch.conf").write_text("hosts: files dns\n")
        (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        lines += [f"cp {folder}/{name} {root}/etc/" for name in ("hosts", "passwd", "nsswitch.conf", "resolv.conf")]
        sources = self._sources()
        for mount in self.container["volumeMounts"]:
            known(mount, {"name", "mountPath", "readOnly"})
            at, source = f"{root}{mount['mountPath']}", sources[mount["name"]]
            lines.append(f"mkdir -p {at}")
            if source.startswith("tmpfs:"):
                lines.append(f"mount -t tmpfs -o size={source.removeprefix('tmpfs:')},mode=2775,gid={group} none {at}")
            else:
                lines.append(f"mount --bind {source} {at}")
            if mount.get("readOnly"):
                lines.append(f"mount -o remount,bind,ro {at}")
        if self.context["readOnlyRootFilesystem"]:
            lines.append(f"mount -o remount,ro {root}")
        lines += [f"hostname {self.name}", f"exec chroot {root} {shlex.join(self._become())} "
                  + shlex.join([*self.container["command"], *self.container.get("args", [])])]
        return "\n".join(lines) + "\n"

    def _become(self):
        """What turns root in the container's root into its user, with its rights and its environment."""
        user, group = self.pod_context["runAsUser"], self.pod_context["runAsGroup"]
        assert self.pod_context["runAsNonRoot"] and user != 0
        assert self.context["capabilities"] == {"drop": ["ALL"]} and not self.context["allowPrivilegeEscalation"]
        variables = {"PATH": PATH, "HOSTNAME": self.name, "HOME": "/var/lib/tandem"}
        variables |= {known(entry, {"name", "value"})["name"]: entry["value"] for entry in self.container.get("env", [])}
        return ["setpriv", f"--reuid={user}", f"--regid={group}", f"--groups={group},{self.pod_context['fsGroup']}", "--bounding-set=-all",
                "--inh-caps=-all", "--no-new-privs", "--", "env", "-i", *(f"{name}={value}" for name, value in variables.items())]

    def _runs(self):
        """True once the container's first process is its program; before that it makes the container."""
        try:
            name = pathlib.Path(f"/proc/{self._first()}/comm").read_text().strip()
        except (ProcessLookupError, FileNotFoundError):
            return False
        return name != "" and self.container["command"][0].startswith(name)

    def _first(self):
        """The container's first process, as this machine counts."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        if len(children) != 1:
            raise ProcessLookupError(f"{self.name} does not run:\n{self.log()}")
        return int(children[0])

    def exec(self, *command, timeout=30):
        """As kubectl exec."""
        inside = ["nsenter", "--target", str(self._first()), "--mount", "--pid", "--uts", "--ipc", "--root", "--wd=/", *self._become()]
        return subprocess.run([*inside, *command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False)

    def probe(self, name):
        """One try, as the kubelet makes it."""
        probe = known(self.container[name], OF_PROBE)
        if "httpGet" in probe:
            return self._get(**known(probe["httpGet"], {"path", "port"}), seconds=probe["timeoutSeconds"])
        try:
            done = self.exec(*known(probe["exec"], {"command"})["command"], timeout=probe["timeoutSeconds"])
        except (subprocess.TimeoutExpired, ProcessLookupError):
            return False
        self.said = done.stdout + done.stderr
        return done.returncode == 0

    def _get(self, path, port, seconds):
        """As the kubelet asks: from outside, at the pod's address."""
        number = next(known(entry, {"name", "containerPort"})["containerPort"] for entry in self.container["ports"] if entry["name"] == port)
        try:
            with urllib.request.urlopen(f"http://{ADDRESS}:{number}{path}", timeout=seconds) as answer:
                self.said = answer.read().decode()
                return 200 <= answer.status < 400
        except OSError as error:
            self.said = str(error)
            return False

    def wait_for_probe(self, name):
        probe = self.container[name]
        # A pod that is not ready is waited for; only one that has not started in time is ended.
        tries = probe.get("failureThreshold", 3) if name == "startupProbe" else 60
        for _ in range(tries):
            assert self.process.poll() is None, f"{self.name} ended with {self.process.returncode}:\n{self.log()}"
            if self.probe(name):
                return
            time.sleep(min(probe["periodSeconds"], 1))
        raise AssertionError(f"{self.name}: {name} does not succeed:\n{self.said}\n{self.log()}")

    def signal(self, number):
        os.kill(self._first(), number)

    def delete(self):
        """As an eviction ends it: SIGTERM, the grace, SIGKILL. What the container's process exited with."""
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(self.spec["terminationGracePeriodSeconds"])
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise AssertionError(f"{self.name} outlived its grace:\n{self.log()}") from error
        return self.process.returncode

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
