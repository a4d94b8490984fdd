"""Starts a BMC of kubevirtbmc for each host, with a stand-in for KubeVirt, and serves all of them under the names of the hosts."""
import http.client
import http.server
import json
import os
import socket
import subprocess
import sys
import time

import kubevirt

SYSTEMS = "/redfish/v1/Systems/"


def free(kind):
    with socket.socket(socket.AF_INET, kind) as s:
        s.bind(("", 0))
        return s.getsockname()[1]


def kubeconfig(server):
    file = os.path.join(os.environ["TMPDIR"], "kubeconfig")
    with open(file, "w") as config:
        json.dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "lab",
            "clusters": [{"name": "lab", "cluster": {"server": server}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "bmc"}}],
            "users": [{"name": "bmc", "user": {}}],
        }, config)
    return file


def ask(port, method, path, body=None, headers={}):
    """Return the status of an answer, its type and its body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read()
    finally:
        connection.close()


def start(name, config):
    """Start the BMC of a host, and return its port when it answers."""
    port = free(socket.SOCK_STREAM)
    process = subprocess.Popen([
        sys.argv[1], "--kubeconfig", config, "--redfish-port", str(port), "--port", str(free(socket.SOCK_DGRAM)), kubevirt.NAMESPACE, name])
    while process.poll() is None:
        try:
            if ask(port, "GET", "/redfish/v1")[0] == 200:
                return port
        except OSError:
            time.sleep(0.05)
    sys.exit(f"the BMC of {name} ended with {process.returncode}")


class Front(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def forward(self):
        path, port, rename = self.path.rstrip("/"), next(iter(ports.values())), (b"", b"")
        if path.startswith(SYSTEMS):
            host, slash, rest = path.removeprefix(SYSTEMS).partition("/")
            if host not in ports:
                return self.send_error(404)
            path, port = SYSTEMS + "1" + slash + rest, ports[host]
            rename = (SYSTEMS + "1").encode(), (SYSTEMS + host).encode()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: self.headers[name] for name in ("Authorization", "Content-Type") if name in self.headers}
        status, kind, data = ask(port, self.command, path, body, headers)
        if rename[0]:
            data = data.replace(*rename)
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = forward

    def log_message(self, *_):
        pass


with open(os.environ["HOSTS"]) as file:
    machines = {host["name"]: kubevirt.Machine(host["name"], host["domain"]) for host in json.load(file)}
config = kubeconfig(kubevirt.serve(machines))
ports = {name: start(name, config) for name in machines}
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Front).serve_forever()
