#!/bin/sh
# Builds metal-operator's manager, unmodified, from its Go module, in each of the versions of which there is a go.mod here, into
# .cache/metal-operator, where system.yaml and its like find them:
#
#   systems/metal-operator/build.sh [VERSION...]
#
# It needs Go and a module proxy. Two minutes from nothing, seconds with warm caches.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || set -- $(cd "$here" && ls -d v*/ | tr -d /)
cd "$here/../.."

export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off
for version; do
	out=$(pwd)/.cache/metal-operator/$version
	mkdir -p "$out/crds"
	go build -C "$here/$version" -trimpath -ldflags "-s -w" -o "$out/manager" github.com/ironcore-dev/metal-operator/cmd
	# Only now does the module's cache have its source.
	source=$(go list -C "$here/$version" -m -f '{{.Dir}}' github.com/ironcore-dev/metal-operator)
	rm -f "$out"/crds/*.yaml
	cp "$source"/config/crd/bases/*.yaml "$out/crds"
	cp "$source/config/manager/ignition-template.yaml" "$out"
	chmod u+w "$out"/crds/*.yaml "$out/ignition-template.yaml"
	echo "metal-operator: the manager $version is in .cache/metal-operator/$version"
done
