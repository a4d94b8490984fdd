"""What programs have in common that make for a system what its administrator would: the API server, and when they are done."""
import http.server
import json
import os
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request

NAMESPACE = os.environ["NAMESPACE"]

context = ssl.create_default_context(cafile=os.environ["API_CA"])
context.load_cert_chain(os.environ["API_CERT"], os.environ["API_KEY"])


def ask(method, path, body=None, kind="application/json"):
    """Return the answer to a request, or None: what is to be made may be there already, and what is to be deleted gone."""
    request = urllib.request.Request(os.environ["API_SERVER"] + path, method=method)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", kind)
    while True:
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 409 or (method == "DELETE" and error.code == 404):
                return None
            if error.code != 429:  # that says to come again, and is no Status of the API
                raise OSError(f"{method} {path}: {json.load(error)['message']}") from error
            time.sleep(int(error.headers.get("Retry-After", 1)))


def within(kind):
    return f"/namespaces/{NAMESPACE}/{kind}"


class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def run(prepare, work=None):
    """Prepare the cluster, say that this is done, and work."""
    try:
        prepare()
    except OSError as error:
        sys.exit(str(error))
    server = http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Ready)
    if work:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        work()
    server.serve_forever()
