#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/kubernetes: `kubectl kustomize` of the base is tests/deploy/kubernetes/base.yaml, that of every overlay differs from
it as the .diff of its name says; all are valid against the schemas of three versions of Kubernetes, and keep the rules
below; YAML files and the container file are clean.

Usage: manifests_test.py REPOSITORY [--update]

--update writes what kubectl makes now.
"""
import copy
import difflib
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

import kubernetes_validate
import yaml

from network_policies import check_disruptions, check_traffic

VERSIONS = ("1.35.0", "1.36.0", "1.37.0")
# Kinds of operators, whose schemas kubernetes-validate does not have.
FOREIGN = {"PodMonitor", "PrometheusRule", "Certificate", "Issuer"}
# What holds a file of deploy/.
FILES = {"tandem-alerts": "prometheus/alerts.yaml", "tandem-dashboard": "grafana/tandem.json"}
RULES = """\
# SPDX-License-Identifier: Apache-2.0
# tests/deploy/manifests_test.py --update writes this from deploy/prometheus/alerts.yaml: an operator reads rules from nothing else.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: tandem-alerts
spec:
"""
# Of what a ConfigMap holds, as kustomize computes it: another one in each version of kubectl.
DIGEST = re.compile(r"\btandem-config-[a-z0-9]{10}\b")
BY_HAND = "tandem-revoked"  # a ConfigMap that the operator makes, and changes


def order(document):
    return document["kind"], document["metadata"]["name"]


def sorted_by_name(value):
    """Lists of what has a name are sorted by it: versions of kubectl merge them in different orders."""
    if isinstance(value, dict):
        return {key: sorted_by_name(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    named = all(isinstance(item, dict) and "name" in item for item in value)
    return [sorted_by_name(item) for item in (sorted(value, key=lambda item: item["name"]) if named else value)]


def kustomize(folder):
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{folder}: {done.stderr}"
    documents = [document for document in yaml.safe_load_all(DIGEST.sub("tandem-config-DIGEST", done.stdout)) if document]
    for document in documents:
        if document["metadata"]["name"] in FILES:
            path = pathlib.Path(__file__).parents[2] / "deploy" / FILES[document["metadata"]["name"]]
            if document["kind"] == "PrometheusRule":
                assert document["spec"] == yaml.safe_load(path.read_text()), f"other rules than {path.name}: see --update"
                document["spec"] = f"{path.name} of deploy/"
            else:
                assert document["data"] == {path.name: path.read_text()}
                document["data"] = {path.name: "that of deploy/"}
    return sorted(map(sorted_by_name, documents), key=order)


def golden(documents, base):
    """The name's ending and the text of the file in tests/deploy/kubernetes that says what the documents are; `base`: those
    of the base."""
    text, base_text = (yaml.safe_dump_all(each, width=1000) for each in (documents, base))
    if documents == base:
        return ".yaml", f"# SPDX-License-Identifier: Apache-2.0\n# tests/deploy/manifests_test.py --update writes this.\n{text}"
    lines = (each.splitlines(keepends=True) for each in (base_text, text))
    return ".diff", "".join(difflib.unified_diff(*lines, "base", "overlay", n=2))


def violations(documents, version):
    """What the strict schemas of that version refuse, a line each."""
    found = []
    for document in documents:
        if document["kind"] in FOREIGN:
            continue
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"{version} {'/'.join(order(document))}: {error.message}")
        except kubernetes_validate.SchemaNotFoundError as error:
            found.append(f"{version} {'/'.join(order(document))}: {error}")
    return found


def check_violations_are_found(documents):
    """The schemas are held to account: each of these mistakes is refused."""
    sets = [document for document in documents if document["kind"] == "StatefulSet"]
    for change in (lambda spec: spec.update(replicas="two"),
                   lambda spec: spec["template"]["spec"]["containers"][0].update(portz=[]),
                   lambda spec: spec["template"]["spec"]["containers"][0].update(livenessProbe={"grpc": {"port": 1, "tls": True}}),
                   lambda spec: spec.pop("selector")):
        document = copy.deepcopy(sets[0])
        change(document["spec"])
        for version in VERSIONS:
            assert violations([document], version), f"{version} takes a mistake"
    assert violations([{"apiVersion": "v1", "kind": "Certificat", "metadata": {"name": "a"}}], VERSIONS[0])


def check_pods(documents):
    """What every pod here is: without rights, with limits, and ended with more time than it asks for."""
    names = {order(document) for document in documents}
    for document in documents:
        if document["kind"] != "StatefulSet":
            continue
        pod = document["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"} and not pod["automountServiceAccountToken"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        volumes |= {claim["metadata"]["name"] for claim in document["spec"].get("volumeClaimTemplates", [])}
        for volume in pod["volumes"]:
            if "configMap" in volume:
                assert volume["configMap"]["name"] == BY_HAND or ("ConfigMap", volume["configMap"]["name"]) in names, volume
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in names, volume
            if "secret" in volume:
                assert volume["secret"]["defaultMode"] & 0o007 == 0, volume
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"], container["name"]
            assert context["capabilities"] == {"drop": ["ALL"]}, container["name"]
            assert container["resources"]["requests"]["memory"] and container["resources"]["limits"]["memory"], container["name"]
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes, container["name"]
        controller = document["metadata"]["name"] == "tandem-controller"
        assert all(("readinessProbe" in container) == controller for container in pod["containers"]), "the worker's is its own"
    config = next(document for document in documents if order(document) == ("ConfigMap", "tandem-config-DIGEST"))["data"]
    worker = next(document for document in documents if order(document) == ("StatefulSet", "tandem-worker"))["spec"]["template"]["spec"]
    drain = int(yaml.safe_load(config["worker.yaml"])["drain-timeout"].removesuffix("s"))
    assert drain + 10 <= worker["terminationGracePeriodSeconds"], "the worker would be killed while it drains"


def check_room_for_logs(root, documents):
    """A pod is evicted, with all its jobs, when its volume holds more than its sizeLimit: the worker's own bounds keep below."""
    mib = {name: int(number) for name, number in
           re.findall(r"constexpr int64_t (kMost\w+) = (\d+) \* kMib;", (root / "worker/log_limit.cc").read_text())}
    config = next(document for document in documents if order(document) == ("ConfigMap", "tandem-config-DIGEST"))["data"]
    pod = next(document for document in documents if order(document) == ("StatefulSet", "tandem-worker"))["spec"]["template"]["spec"]
    gpus = int(pod["containers"][0]["resources"]["limits"].get("nvidia.com/gpu", 0))
    slots = max(gpus, yaml.safe_load(config["worker.yaml"])["slots"])
    state = next(volume for volume in pod["volumes"] if volume["name"] == "state")["emptyDir"]["sizeLimit"]
    # A log is cut every second; until then a rank may print a lot.
    logs = mib["kMostOfEnded"] + 2 * slots * mib["kMostOfOne"]
    assert logs < 0.75 * 1024 * int(state.removesuffix("Gi")), f"{logs} MiB of logs, the volume has {state}"


def check_generators(folder):
    """kubectl of Debian 12 (1.20) knows no other fields of a generator, and takes no file that has one."""
    known = {"name", "namespace", "behavior", "files", "literals", "env", "envs", "type"}
    for path in folder.rglob("kustomization.yaml"):
        kustomization = yaml.safe_load(path.read_text())
        for generator in kustomization.get("configMapGenerator", []) + kustomization.get("secretGenerator", []):
            assert set(generator) <= known, f"{path}: {sorted(set(generator) - known)}"


def check_example(root):
    """The overlay that docs/operations.md shows is one, and changes what it says."""
    blocks = re.findall(r"^   ```yaml\n(.*?)^   ```$", (root / "docs/operations.md").read_text(), re.M | re.S)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "tandem").symlink_to(root)
        (folder / "mine").mkdir()
        for file, block in zip(("kustomization.yaml", "patch.yaml"), blocks, strict=True):
            (folder / "mine" / file).write_text(re.sub("^   ", "", block, flags=re.M))
        found = {order(document): document for document in kustomize(folder / "mine")}
    workers = found["StatefulSet", "tandem-worker"]["spec"]
    assert workers["replicas"] == 16
    assert workers["template"]["spec"]["containers"][0]["image"] == "registry.company/tandem:0.1.0-cuda"
    assert found["PersistentVolumeClaim", "tandem-shared"]["spec"]["storageClassName"] == "nfs"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    update = "--update" in sys.argv[2:]
    kubernetes, texts = root / "deploy/kubernetes", root / "tests/deploy/kubernetes"
    folders = [kubernetes / "base", *sorted((kubernetes / "overlays").iterdir())]
    if update:
        alerts = (root / "deploy" / FILES["tandem-alerts"]).read_text()
        (kubernetes / "overlays/monitoring/rules.yaml").write_text(RULES + textwrap.indent(alerts, "  "))
    base = kustomize(folders[0])
    for folder in folders:
        documents = kustomize(folder)
        ending, text = golden(documents, base)
        path = texts / f"{folder.name}{ending}"
        if update:
            path.write_text(text)
        assert path.read_text() == text, (
            f"kubectl kustomize {folder.relative_to(root)} makes other manifests than {path.relative_to(root)}: see --update")
        found = [line for version in VERSIONS for line in violations(documents, version)]
        assert not found, "\n".join(found)
        check_room_for_logs(root, documents)
        check_pods(documents)
        check_traffic(documents, monitored=folder.name == "monitoring")
        check_disruptions(documents)
    check_generators(root / "deploy")
    assert BY_HAND not in {name for kind, name in map(order, base) if kind == "ConfigMap"}, (
        "applying the manifests again would empty the list of the revoked")
    check_example(root)
    check_violations_are_found(base)
    assert {path.stem for path in texts.iterdir()} == {folder.name for folder in folders}
    bin_dir = pathlib.Path(sys.executable).parent
    subprocess.run([bin_dir / "yamllint", "--strict", "--config-file", root / ".yamllint", root / "deploy", root / "tests/deploy/alerts_test.yaml"],
                   check=True)
    subprocess.run([bin_dir / "hadolint", *sorted((root / "deploy/container").glob("Dockerfile*"))], check=True)
    print(f"{', '.join(folder.name for folder in folders)}: golden, and valid for Kubernetes {', '.join(VERSIONS)}")


if __name__ == "__main__":
    main()
