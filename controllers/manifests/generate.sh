#!/bin/sh
# Regenerates crds/ and deep copies from the Go types: go generate ./controllers/manifests
set -eu
cd "$(dirname "$0")"
generate="go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0"
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
$generate object paths=../api/...
(cd ../../docs/examples/cluster-api && $generate object paths=.)
$generate crd paths=../api/... output:crd:artifacts:config="$made"
# Cluster API's own, of which we use two. Its documentation is Cluster API's to give.
$generate crd:maxDescLen=0,generateEmbeddedObjectMeta=true \
	paths=sigs.k8s.io/cluster-api/api/core/v1beta2 output:crd:artifacts:config="$made"
mkdir -p crds
for plural in fencelab.dev_nodefences fencelab.dev_storagefences metal3.io_baremetalhosts cluster.x-k8s.io_machines cluster.x-k8s.io_machinehealthchecks; do
	mv "$made/$plural.yaml" crds/
done
