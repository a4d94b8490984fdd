#!/bin/sh
# Builds the BMC of a checkout of kubevirtbmc, unmodified, into .cache/kubevirtbmc, where system.yaml finds it:
#
#   systems/kubevirtbmc/build.sh CHECKOUT
#
# It needs Go and a module proxy, or a GOFLAGS=-modfile=FILE that says where the modules of kubevirt.io are.
set -eu

[ $# -eq 1 ] || { echo "usage: systems/kubevirtbmc/build.sh CHECKOUT" >&2; exit 3; }
source=$(cd "$1" && pwd)
[ -d "$source/cmd/virtbmc" ] || { echo "systems/kubevirtbmc/build.sh: $1 is no checkout of kubevirtbmc: it has no cmd/virtbmc" >&2; exit 3; }
cd "$(dirname "$0")/../.."

mkdir -p .cache/kubevirtbmc
out=$(pwd)/.cache/kubevirtbmc/virtbmc
CGO_ENABLED=0 go build -C "$source" -trimpath -ldflags '-s -w' -o "$out" ./cmd/virtbmc
echo "kubevirtbmc: the BMC is .cache/kubevirtbmc/virtbmc"
