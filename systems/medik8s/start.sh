#!/bin/sh
# Starts one of the operators with what it has in its Pod: fence agents in PATH, a certificate for webhooks, and what it reads
# from its working directory.
set -eu
bin=$(cd "$(dirname "$1")" && pwd)
operator=$bin/$(basename "$1")
shift
certificates=$TMPDIR/k8s-webhook-server/serving-certs
mkdir -p "$certificates"
ln -s "$API_CERT" "$certificates/tls.crt"
ln -s "$API_KEY" "$certificates/tls.key"
# Any port will do, because nobody asks.
WEBHOOK_PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
export PATH="$bin:$PATH" WEBHOOK_PORT
cd "$bin/.."
exec "$operator" "$@"
