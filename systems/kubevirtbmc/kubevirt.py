"""A stand-in for KubeVirt: the VirtualMachines of the lab's hosts, powered as KubeVirt does it.

By its source (d923fdb8 of 22 August 2026): a VirtualMachine that is to be halted has its instance deleted. From then on the Pod
of that is going down, so the instance isn't Ready, and neither is the VirtualMachine (syncReadyConditionFromPod in
pkg/virt-controller/watch/vmi/lifecycle.go). The guest is asked to shut down every five seconds, and killed when the grace
period is over (helperVmShutdown and shutdownVMI in pkg/virt-handler/vm.go). A paused guest's Pod isn't ready either.
"""
import http.server
import json
import os
import subprocess
import threading
import time

NAMESPACE = "fencelab"
GRACE = 30  # seconds: DefaultGracePeriodSeconds of its API
AGAIN = 5  # seconds until the guest is asked again
NOTICED = 0.3  # seconds until the controllers have seen a change, of one another's too
POLL = 0.1  # seconds


class Machine:
    """A VirtualMachine, and what powers its domain."""

    def __init__(self, name, domain):
        self.name, self.domain = name, domain
        self.strategy = "RerunOnFailure" if self.exists() else "Halted"
        self.version = 1
        self.deleted = False  # the instance is to go, whatever the strategy
        self.going = False
        self.lock = threading.Lock()
        self.changed = threading.Event()
        threading.Thread(target=self.reconcile, daemon=True).start()

    def virsh(self, word):
        return subprocess.run(["virsh", "-q", "-c", os.environ["LIBVIRT_URI"], word, self.domain],
                              capture_output=True, text=True).stdout.strip()

    def exists(self):
        return self.virsh("domstate") != "shut off"

    def object(self):
        state = self.virsh("domstate")
        with self.lock:
            return {
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                "metadata": {"name": self.name, "namespace": NAMESPACE, "resourceVersion": str(self.version)},
                "spec": {"runStrategy": self.strategy, "template": {"spec": {"domain": {"devices": {}}}}},
                "status": {"created": state != "shut off", "ready": state in ("running", "in shutdown") and not self.going},
            }

    def update(self, new):
        """Take a new spec, unless it was made from another version."""
        with self.lock:
            if new["metadata"].get("resourceVersion") not in (None, "", str(self.version)):
                return False
            self.strategy = new["spec"]["runStrategy"]
            self.version += 1
        self.changed.set()
        return True

    def delete_instance(self):
        with self.lock:
            self.deleted = True
        self.changed.set()

    def reconcile(self):
        while True:
            self.changed.wait()
            self.changed.clear()
            time.sleep(NOTICED)
            with self.lock:
                halted, deleted = self.strategy == "Halted", self.deleted
                self.deleted = False
            if (halted or deleted) and self.exists():
                self.stop()
                self.changed.set()  # it may have to start again
            elif not halted and not self.exists():
                self.virsh("start")

    def stop(self):
        self.going = True
        end, ask = time.monotonic() + GRACE, 0
        while self.exists():
            now = time.monotonic()
            if now >= end:
                self.virsh("destroy")
            elif now >= ask:
                self.virsh("shutdown")
                ask = now + AGAIN
            time.sleep(POLL)
        self.going = False


def serve(machines):
    """Serve the API of VirtualMachines and their instances, and return its address."""
    class API(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, code, body):
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def refuse(self, code, reason):
            self.answer(code, {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason})

        def machine(self, kind):
            within, _, name = self.path.partition("?")[0].rpartition("/")
            return machines.get(name) if within == f"/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/{kind}" else None

        def do_GET(self):
            machine = self.machine("virtualmachines")
            if machine is None:
                self.refuse(404, "NotFound")
            else:
                self.answer(200, machine.object())

        def do_PUT(self):
            new = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            machine = self.machine("virtualmachines")
            if machine is None:
                self.refuse(404, "NotFound")
            elif not machine.update(new):
                self.refuse(409, "Conflict")
            else:
                self.answer(200, machine.object())

        def do_DELETE(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            machine = self.machine("virtualmachineinstances")
            if machine is None or not machine.exists():
                self.refuse(404, "NotFound")
            else:
                machine.delete_instance()
                self.answer(200, {"apiVersion": "v1", "kind": "Status", "status": "Success"})

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), API)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return "http://127.0.0.1:%d" % server.server_port
