#!/bin/sh
# Builds Cluster API's core manager, unmodified, from its Go module, with the versions of go.mod, and the infrastructure that
# stands in for a provider's, into .cache/cluster-api, where system.yaml finds them:
#
#   systems/cluster-api/build.sh
#
# It needs Go and a module proxy. A minute or two from nothing, seconds with warm caches.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
out=$(pwd)/.cache/cluster-api
mkdir -p "$out/crds"

export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off
version=$(go list -C "$here" -m -f '{{.Version}}' sigs.k8s.io/cluster-api)
stamp="-X sigs.k8s.io/cluster-api/version.gitVersion=$version -X sigs.k8s.io/cluster-api/version.gitTreeState=archive"
go build -C "$here" -trimpath -ldflags "-s -w $stamp" -o "$out/manager" sigs.k8s.io/cluster-api/core
go build -C docs/examples/cluster-api -trimpath -ldflags "-s -w" -o "$out/infrastructure" ./infrastructure
# Only now does the module's cache have its source.
source=$(go list -C "$here" -m -f '{{.Dir}}' sigs.k8s.io/cluster-api)
rm -f "$out"/crds/*.yaml
cp "$source"/core/config/crd/bases/*.yaml "$out/crds"
chmod u+w "$out"/crds/*.yaml
echo "cluster-api: the core manager $version is in .cache/cluster-api"
