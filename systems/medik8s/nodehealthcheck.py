"""The health checks of Nodes that medik8s' operators share."""
import time

from kube import NAMESPACE, ask, within

LABEL = "fencelab.dev/out-of-service"
CHECK = "remediation.medik8s.io/v1alpha1"


def check(name, operator, template):
    """Have the Nodes with, or without, the label watched as the story's health check says, if it has one."""
    for wanted in ask("GET", "/apis/cluster.x-k8s.io/v1beta2" + within("machinehealthchecks"))["items"]:
        trigger = wanted["spec"].get("remediation", {}).get("triggerIf", {})
        ask("POST", f"/apis/{CHECK}/nodehealthchecks", {
            "apiVersion": CHECK, "kind": "NodeHealthCheck", "metadata": {"name": name},
            "spec": {
                "selector": {"matchExpressions": [{"key": LABEL, "operator": operator}]},
                "unhealthyConditions": [
                    {"type": c["type"], "status": c["status"], "duration": "%ds" % c["timeoutSeconds"]}
                    for c in wanted["spec"]["checks"]["unhealthyNodeConditions"]
                ],
                "maxUnhealthy": trigger.get("unhealthyLessThanOrEqualTo", "100%"),
                "remediationTemplate": {"namespace": NAMESPACE, "name": name, **template},
            },
        })
        while not enabled(name):
            time.sleep(0.2)


def enabled(name):
    return ask("GET", f"/apis/{CHECK}/nodehealthchecks/{name}").get("status", {}).get("phase") == "Enabled"
