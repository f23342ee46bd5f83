# SPDX-License-Identifier: Apache-2.0
"""What the rendered network policies and disruption budgets allow, as Kubernetes documents them, in the clusters that there are."""
import collections
import ipaddress

# A place of traffic. Without a namespace it is no pod: a node, a resolver of the cloud, the world.
Peer = collections.namedtuple("Peer", "namespace labels address ports", defaults=(None, {}, "10.0.0.1", {}))

NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"
CONTROLLER = Peer("tandem", {NAME: "tandem", COMPONENT: "controller"}, "10.244.0.5", {"grpc": 7471, "workers": 7472, "metrics": 9464})
WORKER = Peer("tandem", {NAME: "tandem", COMPONENT: "worker"}, "10.244.0.6")
WORKER_IPV6 = WORKER._replace(address="fd00:10:244::6")
CLIENT = Peer("lab", {"tandem/client": "true"})
STRANGER = Peer("lab", {"app": "web"})
NEIGHBOUR = Peer("tandem", {"app": "web"})
PROMETHEUS = Peer("monitoring", {"app.kubernetes.io/name": "prometheus"})
WORLD = Peer(address="203.0.113.7")
# Who answers names, and on which port after the service's translation.
RESOLVERS = {
    "kube-dns or CoreDNS": (Peer("kube-system", {"k8s-app": "kube-dns"}), 53),
    "NodeLocal DNSCache": (Peer(address="169.254.20.10"), 53),
    "NodeLocal DNSCache over IPv6": (Peer(address="fd00::a"), 53),
    "the cloud's resolver": (Peer(address="169.254.169.254"), 53),
    "OpenShift": (Peer("openshift-dns", {"dns.operator.openshift.io/daemonset-dns": "default"}), 5353),
    "CoreDNS of another label": (Peer("kube-system", {"app.kubernetes.io/name": "coredns"}), 53),
}


def selects(selector, labels):
    assert set(selector) <= {"matchLabels"}, f"this test does not know {selector}"
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def is_peer(rule, peer, namespace):
    """True if `peer` is one that the element of `from` or `to` of a policy in `namespace` means."""
    if "ipBlock" in rule:
        address = ipaddress.ip_address(peer.address)
        inside = [ipaddress.ip_network(block) for block in (rule["ipBlock"]["cidr"], *rule["ipBlock"].get("except", []))]
        return address in inside[0] and not any(address in block for block in inside[1:])
    if peer.namespace is None:
        return False
    if "namespaceSelector" in rule:
        if not selects(rule["namespaceSelector"], {"kubernetes.io/metadata.name": peer.namespace}):
            return False
    elif peer.namespace != namespace:
        return False
    return selects(rule.get("podSelector", {}), peer.labels)


def is_port(rule, port, protocol, ports):
    wanted = rule.get("port", port)
    return rule.get("protocol", "TCP") == protocol and (ports.get(wanted) if isinstance(wanted, str) else wanted) == port


def one_way(policies, direction, here, there, port, protocol, ports):
    """Whether the policies of the pod `here` let this traffic through; one that no policy selects lets all through."""
    word = {"Ingress": ("ingress", "from"), "Egress": ("egress", "to")}[direction]
    own = [policy for policy in policies if here.namespace == policy["metadata"]["namespace"]
           and selects(policy["spec"]["podSelector"], here.labels) and direction in policy["spec"]["policyTypes"]]
    rules = [(rule, policy["metadata"]["namespace"]) for policy in own for rule in policy["spec"].get(word[0], [])]
    return not own or any(
        (not rule.get(word[1]) or any(is_peer(peer, there, namespace) for peer in rule[word[1]]))
        and (not rule.get("ports") or any(is_port(each, port, protocol, ports) for each in rule["ports"]))
        for rule, namespace in rules)


def allowed(policies, source, target, port, protocol="TCP"):
    return (one_way(policies, "Egress", source, target, port, protocol, target.ports)
            and one_way(policies, "Ingress", target, source, port, protocol, target.ports))


def check_traffic(documents, monitored):
    policies = [document for document in documents if document["kind"] == "NetworkPolicy"]
    for name, (resolver, port) in RESOLVERS.items():
        for protocol in ("UDP", "TCP"):
            assert allowed(policies, WORKER, resolver, port, protocol), f"{name}: workers find no names"
    assert allowed(policies, WORKER, CONTROLLER, 7472)
    assert not allowed(policies, WORKER, CONTROLLER, 7471)
    assert allowed(policies, CLIENT, CONTROLLER, 7471)
    assert not allowed(policies, CLIENT, CONTROLLER, 7472)
    for worker in (WORKER, WORKER_IPV6):
        assert allowed(policies, worker, WORKER, 40_000) and allowed(policies, WORKER, worker, 40_000)
    for source in (STRANGER, NEIGHBOUR, WORLD):
        assert not any(allowed(policies, source, CONTROLLER, port) for port in (7471, 7472)), source
        assert not allowed(policies, source, WORKER, 40_000), source
    assert not allowed(policies, CLIENT, WORKER, 40_000)
    assert not allowed(policies, CLIENT, CONTROLLER, 9464)
    assert allowed(policies, PROMETHEUS, CONTROLLER, 9464) == monitored
    for target in (WORLD, STRANGER, NEIGHBOUR):
        assert not allowed(policies, WORKER, target, 443), target
        assert not allowed(policies, CONTROLLER, target, 443), target
    assert not allowed(policies, CONTROLLER, WORKER, 40_000)


def may_evict(budget, ready, pods=2):
    """Whether a pod that is not ready may be evicted while `ready` of the pods are."""
    healthy_enough = ready >= pods - budget["maxUnavailable"]
    return budget.get("unhealthyPodEvictionPolicy", "IfHealthyBudget") == "AlwaysAllow" or healthy_enough


def check_disruptions(documents):
    """While the controller is away every node can be drained, and so can one whose worker does not come up."""
    worker = next(document for document in documents if (document["kind"], document["metadata"]["name"]) == ("StatefulSet", "tandem-worker"))
    for container in worker["spec"]["template"]["spec"]["containers"]:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            command = container.get(probe, {}).get("exec", {}).get("command", [])
            assert "tandem" not in command, f"{probe}: the command line asks the controller, which may be away"
    budgets = [document["spec"] for document in documents if document["kind"] == "PodDisruptionBudget"]
    assert budgets and all(may_evict(budget, ready=0) for budget in budgets)
