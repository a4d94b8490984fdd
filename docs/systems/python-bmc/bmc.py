"""A small BMC for every host, which drives their domains with virsh.

It carries out a power-off three seconds after it has accepted it, as many a BMC does. One line
of it is a mistake: see docs/systems.md.
"""
import base64
import http.server
import json
import os
import subprocess
import threading

ACCOUNT = "Basic " + base64.b64encode(
    (os.environ["BMC_USERNAME"] + ":" + os.environ["BMC_PASSWORD"]).encode()).decode()
RESETS = {"On": "start", "ForceOff": "destroy", "GracefulShutdown": "shutdown", "ForceRestart": "reset"}
DELAY = {"ForceOff": 3}
SYSTEMS = "/redfish/v1/Systems/"
RESET = "/Actions/ComputerSystem.Reset"
with open(os.environ["HOSTS"]) as file:
    DOMAINS = {host["name"]: host["domain"] for host in json.load(file)}
going_off = set()


def virsh(*words):
    return subprocess.run(["virsh", "-c", os.environ["LIBVIRT_URI"], *words],
                          capture_output=True, text=True).stdout.strip()


def power(host):
    if host in going_off:  # and virsh("domstate", DOMAINS[host]) == "shut off"
        return "Off"
    return "Off" if virsh("domstate", DOMAINS[host]) == "shut off" else "On"


def reset(host, kind):
    virsh(RESETS[kind], DOMAINS[host])
    going_off.discard(host)


class BMC(http.server.BaseHTTPRequestHandler):
    def answer(self, status, body=None):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        path = self.path.rstrip("/")
        host = path.removeprefix(SYSTEMS)
        if path == "/redfish/v1":
            self.answer(200, {"@odata.id": path, "RedfishVersion": "1.6.0", "Systems": {"@odata.id": SYSTEMS[:-1]}})
        elif self.headers["Authorization"] != ACCOUNT:
            self.answer(401)
        elif host not in DOMAINS:
            self.answer(404)
        else:
            self.answer(200, {
                "@odata.id": path, "Id": host, "PowerState": power(host),
                "Actions": {"#ComputerSystem.Reset": {
                    "target": path + RESET, "ResetType@Redfish.AllowableValues": list(RESETS)}},
            })

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        kind = json.loads(self.rfile.read(length) or b"{}").get("ResetType")
        host = self.path.removeprefix(SYSTEMS).removesuffix(RESET)
        if self.headers["Authorization"] != ACCOUNT:
            self.answer(401)
        elif host not in DOMAINS:
            self.answer(404)
        elif kind not in RESETS:
            self.answer(400)
        else:
            if kind == "ForceOff":
                going_off.add(host)
            threading.Timer(DELAY.get(kind, 0), reset, (host, kind)).start()
            self.answer(204)


http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), BMC).serve_forever()
