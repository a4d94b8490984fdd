"""Becomes the manager, to which each host is a Server whose BMC is at an address of its own: fencelab knows by that who asks.

The hosts of a story run already. So their Servers come as metalctl's move would bring them: reserved, by ServerClaims of the same
names. Discovery, which boots a host with a probe, has no part in that.
"""
import base64
import json
import os
import sys
import urllib.parse
import urllib.request

from kube import ask, within

METAL = "metal.ironcore.dev/v1alpha1"
SERVERS = f"/apis/{METAL}/servers"
MERGE = "application/merge-patch+json"


def system(url, account):
    """Return what a BMC says of its host."""
    request = urllib.request.Request(url)
    words = (base64.b64decode(account[key]).decode() for key in ("username", "password"))
    request.add_header("Authorization", "Basic " + base64.b64encode(":".join(words).encode()).decode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def reserve(name, bmc, account):
    """Make the Server of a host, and its claim. One of an earlier life has an address that leads nowhere now."""
    known = {server["metadata"]["name"]: server for server in ask("GET", SERVERS)["items"]}.get(name)
    address = {"address": bmc.hostname, "protocol": {"name": "Redfish", "port": bmc.port}}
    if known:
        ask("PATCH", f"{SERVERS}/{name}", {"spec": {"bmc": address}}, MERGE)
        return
    ask("POST", f"/apis/{METAL}" + within("serverclaims"), {
        "apiVersion": METAL, "kind": "ServerClaim", "metadata": {"name": name},
        "spec": {"power": "On", "serverRef": {"name": name}, "image": "image"},
    })
    ask("POST", SERVERS, {
        "apiVersion": METAL, "kind": "Server", "metadata": {"name": name},
        "spec": {
            "systemUUID": system(f"http://{bmc.netloc}{bmc.path}", account)["UUID"], "systemURI": bmc.path, "power": "On",
            "bmc": {**address, "bmcSecretRef": {"name": "bmc"}},
            "serverClaimRef": {"namespace": os.environ["NAMESPACE"], "name": name},
        },
    })
    ask("PATCH", f"{SERVERS}/{name}/status", {"status": {"state": "Reserved"}}, MERGE)


account = ask("GET", "/api/v1" + within("secrets/bmc"))["data"]
ask("POST", f"/apis/{METAL}/bmcsecrets", {"apiVersion": METAL, "kind": "BMCSecret", "metadata": {"name": "bmc"}, "data": account})
for host in ask("GET", "/apis/metal3.io/v1alpha1" + within("baremetalhosts"))["items"]:
    reserve(host["metadata"]["name"], urllib.parse.urlsplit(host["spec"]["bmc"]["address"]), account)
os.execv(sys.argv[1], sys.argv[1:])
