"""A small remediation controller with a race: it doesn't look whether the host is off.

It remembers when it has asked for that, and deletes the Node some seconds later, which is long
enough as long as the request has arrived. A sweep finds the request that hasn't.
"""
import json
import os
import ssl
import time
import urllib.error
import urllib.request

MARK = "host.metal3.io/external-remediation"
HOLD = "reboot.metal3.io/machine-remediation"
MACHINES = "/apis/cluster.x-k8s.io/v1beta2/namespaces/" + os.environ["NAMESPACE"] + "/machines"
HOSTS = "/apis/metal3.io/v1alpha1/namespaces/%s/baremetalhosts/%s"

context = ssl.create_default_context(cafile=os.environ["API_CA"])
context.load_cert_chain(os.environ["API_CERT"], os.environ["API_KEY"])


def ask(method, path, body=None):
    """Return the answer to a request, or None for an object that is not there."""
    request = urllib.request.Request(os.environ["API_SERVER"] + path, method=method)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/merge-patch+json")
    try:
        with urllib.request.urlopen(request, context=context, timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise OSError(f"{method} {path}: {json.load(error)['message']}") from error


def annotate(path, name, value):
    ask("PATCH", path, {"metadata": {"annotations": {name: value}}})


asked = {}  # when it has asked for a host to be off, by Node


def remediate(machine):
    """Take one step for a Machine, and leave the next one to the next look."""
    namespace, name = machine["metadata"]["annotations"]["metal3.io/BareMetalHost"].split("/")
    path = HOSTS % (namespace, name)
    host = ask("GET", path)
    held = HOLD in host["metadata"].get("annotations", {})
    node = machine.get("status", {}).get("nodeRef", {}).get("name")
    exists = node is not None and ask("GET", "/api/v1/nodes/" + node) is not None
    if MARK in machine["metadata"]["annotations"]:
        if node not in asked and exists:
            asked[node] = time.monotonic()
            annotate(path, HOLD, '{"mode":"hard"}')
        elif exists:
            if time.monotonic() - asked[node] > 6:
                ask("DELETE", "/api/v1/nodes/" + node)
        elif held:
            annotate(path, HOLD, None)
        else:
            annotate(MACHINES + "/" + machine["metadata"]["name"], MARK, None)
    else:
        asked.pop(node, None)
        if held:
            annotate(path, HOLD, None)


while True:
    try:
        for machine in ask("GET", MACHINES)["items"]:
            remediate(machine)
    except (OSError, KeyError) as error:
        print(repr(error), flush=True)
    time.sleep(0.5)
