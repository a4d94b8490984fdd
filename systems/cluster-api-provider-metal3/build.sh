#!/bin/sh
# Builds cluster-api-provider-metal3 from a checkout of its source, unmodified, into .cache/cluster-api-provider-metal3, where
# system.yaml finds it, with the definitions of the custom resources that it looks at:
#
#   systems/cluster-api-provider-metal3/build.sh CHECKOUT BAREMETAL-OPERATOR IP-ADDRESS-MANAGER
#
# The other two are checkouts of what it is released with; it is built with their types, so that no module proxy needs to
# have the release candidates that its go.mod names. It needs its version of Go, and a module proxy for the rest.
set -eu

fail() { echo "systems/cluster-api-provider-metal3/build.sh: $*" >&2; exit 3; }
[ $# -eq 3 ] || fail "usage: systems/cluster-api-provider-metal3/build.sh CHECKOUT BAREMETAL-OPERATOR IP-ADDRESS-MANAGER"
for needed in "$1/config/crd/bases" "$1/config/rbac/role.yaml" "$2/apis/go.mod" "$3/api/go.mod" "$3/config/crd/bases"; do
	[ -e "$needed" ] || fail "there is no $needed: what is named is no checkout of what it should be"
done
source=$(cd "$1" && pwd)
hosts=$(cd "$2" && pwd)
addresses=$(cd "$3" && pwd)
cd "$(dirname "$0")/../.."
out=$(pwd)/.cache/cluster-api-provider-metal3
new=$out.new
mods=$(mktemp -d)
trap 'rm -rf "$mods" "$new"' EXIT
rm -rf "$new"
mkdir -p "$new/manifests"

cp "$source/go.mod" "$source/go.sum" "$mods"
go mod edit -replace "github.com/metal3-io/cluster-api-provider-metal3/api=$source/api" \
	-replace "github.com/metal3-io/baremetal-operator/apis=$hosts/apis" \
	-replace "github.com/metal3-io/ip-address-manager/api=$addresses/api" "$mods/go.mod"
CGO_ENABLED=0 GOWORK=off go build -C "$source" -mod=mod -modfile="$mods/go.mod" -trimpath -o "$new/manager" .
cp "$source"/config/crd/bases/*.yaml "$addresses"/config/crd/bases/*.yaml "$new/manifests"
# The prefix is the one that its kustomization gives it.
sed 's/^  name: manager-role$/  name: capm3-manager-role/' "$source/config/rbac/role.yaml" >"$new/manifests/role.yaml"

# All of it or nothing: what is there is taken for complete.
rm -rf "$out"
mv "$new" "$out"
echo "cluster-api-provider-metal3: the manager is in .cache/cluster-api-provider-metal3"
