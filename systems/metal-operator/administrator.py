"""Plays the boot operator, which stands beside metal-operator: whatever is to be booted is ready to be."""
import time

from kube import ask, run

METAL = "/apis/metal.ironcore.dev/v1alpha1"


def boot():
    for config in ask("GET", METAL + "/serverbootconfigurations")["items"]:
        if config.get("status", {}).get("state") != "Ready":
            meta = config["metadata"]
            ask("PATCH", f"{METAL}/namespaces/{meta['namespace']}/serverbootconfigurations/{meta['name']}/status", {"status": {"state": "Ready"}}, "application/merge-patch+json")


def watch():
    while True:
        try:
            boot()
        except OSError as error:  # the API server is away, or one of them is gone
            print(error, flush=True)
        time.sleep(0.5)


run(lambda: None, watch)
