#!/bin/sh
# Builds self-node-remediation of medik8s from a checkout of its source into .cache/self-node-remediation, where system.yaml
# finds it:
#
#   systems/self-node-remediation/build.sh SELF-NODE-REMEDIATION
#
# It needs Go in the version that its go.mod names, or newer: all that it needs is vendored. node-healthcheck, which tells it
# what to do, is built by systems/medik8s/build.sh.
#
# The manager and the agent are one program. The manager is built as the other operators of medik8s are, so that the port of
# its webhooks can be set; the agent is as it is, alone in an image, because no base image is pulled here.
set -eu

fail() { echo "systems/self-node-remediation/build.sh: $*" >&2; exit "${code:-4}"; }
[ $# -eq 1 ] || { code=3; fail "usage: systems/self-node-remediation/build.sh SELF-NODE-REMEDIATION"; }
[ -d "$1/config/crd/bases" ] && [ -d "$1/vendor" ] && [ -d "$1/install" ] || { code=3; fail "$1 is no checkout of it: it has no config/crd/bases, no vendor, or no install"; }
source=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
port=$(pwd)/systems/medik8s/port.go.txt
out=$(pwd)/.cache/self-node-remediation
new=$out.new
trap 'rm -rf "$new"' EXIT
rm -rf "$new"
mkdir -p "$new/bin" "$new/manifests" "$new/install" "$new/work"

# build PROGRAM [FLAG...]
build() {
	program=$1
	shift
	CGO_ENABLED=0 GOWORK=off go build -C "$source" -mod=vendor -trimpath -ldflags='-s -w' -o "$program" "$@" ./cmd
}
main=$source/cmd/main.go
sed '/^[[:space:]]*Port: *9443,$/d' "$main" >"$new/work/main.go"
grep -q 9443 "$new/work/main.go" && fail "$main says 9443 where it didn't"
echo "{\"Replace\": {\"$main\": \"$new/work/main.go\", \"$source/cmd/fencelab.go\": \"$port\"}}" >"$new/work/overlay.json"
build "$new/bin/self-node-remediation" -overlay "$new/work/overlay.json"
build "$new/work/manager"
go run ./ci/image "$new/work/manager" self-node-remediation:1 "$new/agent.tar"

cp "$source"/config/crd/bases/*.yaml "$new/manifests"
# The prefix is the one that its kustomization gives them.
prefix=self-node-remediation
sed "s/^  name: manager-role$/  name: $prefix-manager-role/" "$source/config/rbac/role.yaml" >"$new/manifests/$prefix-role.yaml"
sed "s/^  name: ext-remediation$/  name: $prefix-ext-remediation/" "$source/config/rbac/external_remediation_clusterrole.yaml" >"$new/manifests/$prefix-ext-remediation.yaml"

# Agents ask each other, and there is no network of Pods; nobody reads their metrics, which would take a key of RSA.
cp "$source"/install/*.yaml "$new/install"
sed -i 's/^      hostPID: true$/&\n      hostNetwork: true/; s/^        - --is-manager=false$/&\n        - --metrics-bind-address=0/' "$new"/install/*.yaml
for line in '      hostNetwork: true' '        - --metrics-bind-address=0'; do
	[ "$(cat "$new"/install/*.yaml | grep -cx -e "$line")" = 1 ] || fail "$source/install is not what it was: it can't be given \"$line\""
done
rm -rf "$new/work"

# All of it or nothing: what is there is taken for complete.
rm -rf "$out"
mv "$new" "$out"
echo "self-node-remediation: the manager and the agent's image are in .cache/self-node-remediation"
