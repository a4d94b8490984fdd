"""What an administrator makes for self-node-remediation: its configuration, its templates, and which Nodes are watched.

A story says by labels of its hosts what it wants otherwise: fencelab.dev/out-of-service has a Node released by the taint
instead of deleting its Pods, fencelab.dev/no-worker leaves it without the role that peers are found by, and
snr.fencelab.dev/FIELD is a field of the configuration, on any host.
"""
import time

from kube import ask, run, within
from nodehealthcheck import check

SNR = "self-node-remediation.medik8s.io/v1alpha1"
CONFIG = "self-node-remediation-config"
WORKER = "node-role.kubernetes.io/worker"
NO_WORKER = "fencelab.dev/no-worker"
FIELD = "snr.fencelab.dev/"
MERGE = "application/merge-patch+json"

# The validation allows 1s and 10ms, 1 failure, and 10s between two looks for peers. An agent on an emulated machine would
# take each slow answer for a failure then, and would not even start: it reads its own Node within peerApiServerTimeout,
# once its cache is filled. These are short, and a healthy agent keeps them. A peer gets two seconds more than the API server
# in any case.
SHORT = {
    "apiCheckInterval": "1s",
    "apiServerTimeout": "2s",
    "maxApiErrorThreshold": 3,
    "peerDialTimeout": "2s",
    "peerRequestTimeout": "4s",
    "peerUpdateInterval": "10s",
    "peerApiServerTimeout": "30s",
}

# How long agents take to see a new role: peerUpdateInterval, and what an emulated machine needs besides.
PEERS_KNOWN = 15


def nodes():
    return ask("GET", "/api/v1/nodes")["items"]


def configure():
    spec = dict(SHORT)
    for node in nodes():
        for key, value in node["metadata"].get("labels", {}).items():
            if key.startswith(FIELD):
                spec[key.removeprefix(FIELD)] = int(value) if value.isdigit() else value
    path = f"/apis/{SNR}" + within("selfnoderemediationconfigs")
    made = ask("POST", path, {"apiVersion": SNR, "kind": "SelfNodeRemediationConfig", "metadata": {"name": CONFIG}, "spec": spec})
    if made is None:  # by the manager, with defaults
        ask("PATCH", f"{path}/{CONFIG}", {"spec": spec}, MERGE)


def protected():
    """Whether each Node has an agent that has its watchdog and can be found."""
    agents = ask("GET", "/api/v1" + within("pods?labelSelector=app.kubernetes.io%2Fcomponent%3Dagent"))["items"]
    running = {pod["spec"]["nodeName"] for pod in agents if pod["status"].get("podIP") and pod["status"]["phase"] == "Running"}
    return all(
        node["metadata"]["name"] in running
        and node["metadata"].get("annotations", {}).get("is-reboot-capable.self-node-remediation.medik8s.io") == "true"
        for node in nodes()
    )


def label():
    """Give Nodes the role by which agents find peers.

    When the agents are there, because an agent that finds a Node without one looks again after two minutes.
    """
    for node in nodes():
        name, labels = node["metadata"]["name"], node["metadata"].get("labels", {})
        if NO_WORKER not in labels:
            ask("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": {WORKER: ""}}}, MERGE)


def prepare():
    configure()
    while not protected():
        time.sleep(1)
    label()
    time.sleep(PEERS_KNOWN)
    for name, strategy, operator in ("deletes-pods", "ResourceDeletion", "DoesNotExist"), ("out-of-service", "OutOfServiceTaint", "Exists"):
        ask("POST", f"/apis/{SNR}" + within("selfnoderemediationtemplates"), {
            "apiVersion": SNR, "kind": "SelfNodeRemediationTemplate", "metadata": {"name": name},
            "spec": {"template": {"spec": {"remediationStrategy": strategy}}},
        })
        check(name, operator, {"apiVersion": SNR, "kind": "SelfNodeRemediationTemplate"})


run(prepare)
