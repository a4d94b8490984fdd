#!/bin/sh
# Builds baremetal-operator from a checkout of its source, unmodified, into .cache/metal3, where system.yaml finds it:
#
#   systems/metal3/build.sh CHECKOUT [IRONIC-STANDALONE-OPERATOR]
#
# It needs what the checkout needs: its version of Go, a C compiler (the provisioner is a plugin), and a module proxy. Where
# that doesn't have the module ironic-standalone-operator/api in the version that go.mod names, the second argument is a
# checkout of that version.
set -eu

[ $# -eq 1 ] || [ $# -eq 2 ] || { echo "usage: systems/metal3/build.sh CHECKOUT [IRONIC-STANDALONE-OPERATOR]" >&2; exit 3; }
source=$(cd "$1" && pwd)
definitions=$source/config/base/crds/bases
[ -d "$definitions" ] && [ -f "$source/go.mod" ] || { echo "systems/metal3/build.sh: $1 is no checkout of baremetal-operator: it has no config/base/crds/bases" >&2; exit 3; }
cd "$(dirname "$0")/../.."
out=$(pwd)/.cache/metal3
new=$out.new
mods=$(mktemp -d)
trap 'rm -rf "$mods" "$new"' EXIT
rm -rf "$new"
mkdir -p "$new/plugins" "$new/crds"

export CGO_ENABLED=1
if [ $# -eq 2 ]; then
	api=$(cd "$2/api" && pwd)
	cp "$source/go.mod" "$source/go.sum" "$mods"
	go mod edit -replace "github.com/metal3-io/ironic-standalone-operator/api=$api" "$mods/go.mod"
	export GOFLAGS="${GOFLAGS:-} -modfile=$mods/go.mod"
fi
go build -C "$source" -o "$new/baremetal-operator" .
go build -C "$source" -buildmode=plugin -o "$new/plugins/ironic-provisioner.so" ./pkg/provisioner/ironic/plugin
cp "$definitions"/*.yaml "$new/crds"
# All of it or nothing: what is there is taken for complete.
rm -rf "$out"
mv "$new" "$out"
echo "metal3: baremetal-operator is in .cache/metal3"
