"""What stands around cluster-api-provider-metal3: a Cluster, a Metal3Machine for each Machine, and requests for remediation.

Each mark that asks for the remediation of a Machine becomes a Metal3Remediation, as Cluster API's MachineHealthCheck would make
it. Like that, it is deleted as soon as the Node is Ready again. When the provider has let it go, the mark goes, too.
"""
import time

from kube import ask, run, within

CLUSTER = "fencelab"
CORE = "/apis/cluster.x-k8s.io/v1beta2"
PROVIDER = "infrastructure.cluster.x-k8s.io/v1beta2"
HOST = "metal3.io/BareMetalHost"
MARK = "host.metal3.io/external-remediation"
REMEDIATIONS = f"/apis/{PROVIDER}" + within("metal3remediations")

# Once more if the host isn't back within the time, as in the provider's examples.
STRATEGY = {"type": "Reboot", "retryLimit": 1, "timeoutSeconds": 300}


def machines():
    return ask("GET", CORE + within("machines"))["items"]


def prepare():
    ask("POST", CORE + within("clusters"), {
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": CLUSTER},
        "spec": {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443}},
    })
    for machine in machines():
        # It has no owner, and so the provider provisions nothing.
        ask("POST", f"/apis/{PROVIDER}" + within("metal3machines"), {
            "apiVersion": PROVIDER, "kind": "Metal3Machine",
            "metadata": {"name": machine["metadata"]["name"], "annotations": {HOST: machine["metadata"]["annotations"][HOST]}},
            "spec": {"providerID": machine["spec"]["providerID"]},
        })


def ready():
    """Return the names of the Nodes that are Ready."""
    nodes = ask("GET", "/api/v1/nodes")["items"]
    return {n["metadata"]["name"] for n in nodes for c in n.get("status", {}).get("conditions", []) if (c["type"], c["status"]) == ("Ready", "True")}


def remediate():
    healthy = ready()
    requests = {r["metadata"]["name"]: r["metadata"] for r in ask("GET", REMEDIATIONS)["items"]}
    for machine in machines():
        name = machine["metadata"]["name"]
        request = requests.get(name)
        marked = MARK in machine["metadata"].get("annotations", {})
        wanted = marked and machine["status"]["nodeRef"]["name"] not in healthy
        if request and not wanted and "deletionTimestamp" not in request:
            ask("DELETE", f"{REMEDIATIONS}/{name}")
        elif wanted and not request:
            ask("POST", REMEDIATIONS, {
                "apiVersion": PROVIDER, "kind": "Metal3Remediation",
                "metadata": {"name": name, "ownerReferences": [{
                    "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": name, "uid": machine["metadata"]["uid"],
                }]},
                "spec": {"strategy": STRATEGY},
            })
        elif marked and not wanted and not request:
            ask("PATCH", f"{CORE}{within('machines')}/{name}", {"metadata": {"annotations": {MARK: None}}}, "application/merge-patch+json")


def watch():
    while True:
        try:
            remediate()
        except OSError as error:  # the API server is away, or an object was changed meanwhile
            print(error, flush=True)
        time.sleep(0.5)


run(prepare, watch)
