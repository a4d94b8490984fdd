"""What an administrator makes for medik8s: how each host is fenced, and which Nodes are watched.

The templates say where the BMCs are, by the BareMetalHosts; the health checks say of Nodes what the MachineHealthCheck says
of Machines. Nodes with the label fencelab.dev/out-of-service are released by the taint, others by deleting their Pods.
"""
import http.server
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

NAMESPACE = os.environ["NAMESPACE"]
LABEL = "fencelab.dev/out-of-service"
FENCE = "fence-agents-remediation.medik8s.io/v1alpha1"
CHECK = "remediation.medik8s.io/v1alpha1"

context = ssl.create_default_context(cafile=os.environ["API_CA"])
context.load_cert_chain(os.environ["API_CERT"], os.environ["API_KEY"])


def ask(method, path, body=None):
    """Return the answer to a request; what is to be made may be there already."""
    request = urllib.request.Request(os.environ["API_SERVER"] + path, method=method)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 409:
            return None
        raise OSError(f"{method} {path}: {json.load(error)['message']}") from error


def within(kind):
    return f"/namespaces/{NAMESPACE}/{kind}"


def template(name, strategy, secret):
    parameters = {"--ip": {}, "--systems-uri": {}}
    nodes = {m["metadata"]["name"]: m["status"]["nodeRef"]["name"] for m in ask("GET", "/apis/cluster.x-k8s.io/v1beta2" + within("machines"))["items"]}
    for host in ask("GET", "/apis/metal3.io/v1alpha1" + within("baremetalhosts"))["items"]:
        node = nodes[host["metadata"]["name"]]
        address = urllib.parse.urlsplit(host["spec"]["bmc"]["address"])
        parameters["--ip"][node], parameters["--systems-uri"][node] = address.netloc, address.path
    ask("POST", f"/apis/{FENCE}" + within("fenceagentsremediationtemplates"), {
        "apiVersion": FENCE, "kind": "FenceAgentsRemediationTemplate", "metadata": {"name": name},
        "spec": {"template": {"spec": {
            "agent": "fence_redfish", "remediationStrategy": strategy, "sharedSecretName": secret,
            "sharedparameters": {"--action": "reboot", "--ssl-insecure": ""}, "nodeparameters": parameters,
        }}},
    })


def check(name, operator, wanted):
    trigger = wanted.get("remediation", {}).get("triggerIf", {})
    ask("POST", f"/apis/{CHECK}/nodehealthchecks", {
        "apiVersion": CHECK, "kind": "NodeHealthCheck", "metadata": {"name": name},
        "spec": {
            "selector": {"matchExpressions": [{"key": LABEL, "operator": operator}]},
            "unhealthyConditions": [
                {"type": c["type"], "status": c["status"], "duration": "%ds" % c["timeoutSeconds"]} for c in wanted["checks"]["unhealthyNodeConditions"]
            ],
            "maxUnhealthy": trigger.get("unhealthyLessThanOrEqualTo", "100%"),
            "remediationTemplate": {"apiVersion": FENCE, "kind": "FenceAgentsRemediationTemplate", "namespace": NAMESPACE, "name": name},
        },
    })


def enabled(name):
    return ask("GET", f"/apis/{CHECK}/nodehealthchecks/{name}").get("status", {}).get("phase") == "Enabled"


def prepare():
    account = ask("GET", "/api/v1" + within("secrets/bmc"))["data"]
    ask("POST", "/api/v1" + within("secrets"), {
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fence-agents-credentials"},
        "data": {"--username": account["username"], "--password": account["password"]},
    })
    checks = ask("GET", "/apis/cluster.x-k8s.io/v1beta2" + within("machinehealthchecks"))["items"]
    for name, strategy, operator in ("deletes-pods", "ResourceDeletion", "DoesNotExist"), ("out-of-service", "OutOfServiceTaint", "Exists"):
        template(name, strategy, "fence-agents-credentials")
        for wanted in checks:
            check(name, operator, wanted["spec"])
            while not enabled(name):
                time.sleep(0.2)


class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


try:
    prepare()
except OSError as error:
    sys.exit(str(error))
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Ready).serve_forever()
