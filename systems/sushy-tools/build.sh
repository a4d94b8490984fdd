#!/bin/sh
# Puts the emulator of a checkout of sushy-tools, unmodified, into .cache/sushy-tools, where system.yaml finds it, and
# installs what it needs from Debian (as root or with sudo):
#
#   systems/sushy-tools/build.sh CHECKOUT
set -eu

[ $# -eq 1 ] || { echo "usage: systems/sushy-tools/build.sh CHECKOUT" >&2; exit 3; }
source=$(cd "$1" && pwd)
[ -f "$source/sushy_tools/emulator/main.py" ] || { echo "systems/sushy-tools/build.sh: $1 is no checkout of sushy-tools: it has no sushy_tools/emulator/main.py" >&2; exit 3; }
cd "$(dirname "$0")/../.."

packages=
for module in flask:python3-flask libvirt:python3-libvirt requests:python3-requests tenacity:python3-tenacity \
	bcrypt:python3-bcrypt webob:python3-webob; do
	/usr/bin/python3 -c "import ${module%:*}" 2>/dev/null || packages="$packages ${module#*:}"
done
if [ -n "$packages" ]; then
	[ "$(id -u)" = 0 ] || { echo "installing$packages needs root: run this script with sudo" >&2; exit 1; }
	export DEBIAN_FRONTEND=noninteractive
	# shellcheck disable=SC2086
	apt-get install --quiet --yes --no-install-recommends $packages ||
		{ apt-get update --quiet && apt-get install --quiet --yes --no-install-recommends $packages; }
fi

out=.cache/sushy-tools
rm -rf "$out.new"
mkdir -p "$out.new"
cp -R "$source/sushy_tools" "$out.new"
# All of it or nothing: what is there is taken for complete.
rm -rf "$out"
mv "$out.new" "$out"
echo "sushy-tools: the emulator is in $out"
