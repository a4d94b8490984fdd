"""What an administrator makes for medik8s: how each host is fenced, and which Nodes are watched.

The templates say where the BMCs are, by the BareMetalHosts; the health checks say of Nodes what the MachineHealthCheck says
of Machines. Nodes with the label fencelab.dev/out-of-service are released by the taint, others by deleting their Pods.
"""
import urllib.parse

from kube import ask, run, within
from nodehealthcheck import check

FENCE = "fence-agents-remediation.medik8s.io/v1alpha1"


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


def prepare():
    account = ask("GET", "/api/v1" + within("secrets/bmc"))["data"]
    ask("POST", "/api/v1" + within("secrets"), {
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fence-agents-credentials"},
        "data": {"--username": account["username"], "--password": account["password"]},
    })
    for name, strategy, operator in ("deletes-pods", "ResourceDeletion", "DoesNotExist"), ("out-of-service", "OutOfServiceTaint", "Exists"):
        template(name, strategy, "fence-agents-credentials")
        check(name, operator, {"apiVersion": FENCE, "kind": "FenceAgentsRemediationTemplate"})


run(prepare)
