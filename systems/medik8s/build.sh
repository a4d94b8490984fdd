#!/bin/sh
# Builds two operators of medik8s from checkouts of their source into .cache/medik8s, where system.yaml finds them, with the
# fence agent that they run:
#
#   systems/medik8s/build.sh NODE-HEALTHCHECK-OPERATOR FENCE-AGENTS-REMEDIATION
#
# It needs Go in the versions that their go.mod names, or newer: all that they need is vendored. Where there is no
# fence_redfish, apt-get fetches Debian's, which is unpacked beside them and not installed; it is run by the python3 that is
# here.
#
# Their source is as it is, except for one thing. They listen for webhooks on port 9443, which is written there, and which two
# processes of one machine can't both have. So they are built without that line, and with one more file, which sets the port.
set -eu

fail() { echo "systems/medik8s/build.sh: $*" >&2; exit "${code:-4}"; }
[ $# -eq 2 ] || { code=3; fail "usage: systems/medik8s/build.sh NODE-HEALTHCHECK-OPERATOR FENCE-AGENTS-REMEDIATION"; }
for checkout; do
	[ -d "$checkout/config/crd/bases" ] && [ -d "$checkout/vendor" ] || { code=3; fail "$checkout is no checkout of such an operator: it has no config/crd/bases, or no vendor"; }
done
health=$(cd "$1" && pwd)
fence=$(cd "$2" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
out=$(pwd)/.cache/medik8s
new=$out.new
trap 'rm -rf "$new"' EXIT
rm -rf "$new"
mkdir -p "$new/bin" "$new/manifests" "$new/work"

# build NAME CHECKOUT PACKAGE
build() {
	main=$2/$3/main.go
	sed '/^[[:space:]]*Port: *9443,$/d' "$main" >"$new/work/$1.go"
	grep -q 9443 "$new/work/$1.go" && fail "$main says 9443 where it didn't"
	echo "{\"Replace\": {\"$main\": \"$new/work/$1.go\", \"$2/$3/fencelab.go\": \"$here/port.go.txt\"}}" >"$new/work/$1.json"
	CGO_ENABLED=0 GOWORK=off go build -C "$2" -mod=vendor -trimpath -overlay "$new/work/$1.json" -o "$new/bin/$1" "./$3"
	cp "$2"/config/crd/bases/*.yaml "$new/manifests"
	# The prefix is the one that their kustomization gives it.
	sed "s/^  name: manager-role$/  name: $1-manager-role/; s/^  namespace: system$/  namespace: default/" "$2/config/rbac/role.yaml" >"$new/manifests/$1-role.yaml"
}
build node-healthcheck "$health" cmd
build fence-agents-remediation "$fence" .
sed 's/^  name: ext-remediation$/  name: fence-agents-remediation-ext-remediation/' "$fence/config/rbac/external_remediation_clusterrole.yaml" >"$new/manifests/fence-agents-remediation-ext-remediation.yaml"

if agent=$(command -v fence_redfish); then
	ln -s "$agent" "$new/bin/fence_redfish"
else
	command -v apt-get >/dev/null || fail "no fence_redfish here, and no apt-get: install fence-agents yourself"
	packages="fence-agents-common fence-agents-redfish" # since Debian 13
	apt-cache show $packages >/dev/null 2>&1 || packages=fence-agents
	# What it needs of Python's libraries, without those of all other agents.
	for library in pexpect ptyprocess pycurl requests urllib3 certifi chardet charset-normalizer idna; do
		apt-cache show "python3-$library" >/dev/null 2>&1 && packages="$packages python3-$library"
	done
	mkdir -p "$new/work/packages" "$new/root"
	(cd "$new/work/packages" && apt-get download --quiet -o APT::Sandbox::User= $packages)
	for package in "$new"/work/packages/*.deb; do dpkg-deb --extract "$package" "$new/root"; done
	cat >"$new/bin/fence_redfish" <<-'END'
		#!/bin/sh
		root=$(cd "$(dirname "$0")/../root/usr" && pwd)
		export PYTHONPATH="$root/share/fence:$root/lib/python3/dist-packages"
		exec python3 -W ignore "$root/sbin/fence_redfish" "$@"
	END
	chmod +x "$new/bin/fence_redfish"
fi
version=$("$new/bin/fence_redfish" --version 2>&1) || fail "fence_redfish doesn't run here: $version"
rm -rf "$new/work"

# All of it or nothing: what is there is taken for complete.
rm -rf "$out"
mv "$new" "$out"
echo "medik8s: node-healthcheck, fence-agents-remediation and fence_redfish $version are in .cache/medik8s"
