#!/bin/sh
# Installs what the page is tried in: Chromium from Debian, and axe-core,
# which looks for what keeps people with a screen reader or a keyboard out, from npm.
# About 120 MB to download. It does nothing when all are there.
#
#   install.sh DIR    axe.min.js goes to DIR
set -eu

dir=$1 axe=4.10.2
if ! command -v chromium >/dev/null; then
	if [ "$(id -u)" != 0 ]; then
		echo "installing chromium needs root: run this script with sudo" >&2
		exit 1
	fi
	export DEBIAN_FRONTEND=noninteractive
	set -- chromium fonts-dejavu-core
	apt-get install --quiet --yes --no-install-recommends "$@" ||
		{ apt-get update --quiet && apt-get install --quiet --yes --no-install-recommends "$@"; }
fi
[ ! -e "$dir/axe-$axe.min.js" ] || exit 0
mkdir -p "$dir"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && npm pack --silent "axe-core@$axe" >/dev/null && tar xzf "axe-core-$axe.tgz" package/axe.min.js)
mv "$work/package/axe.min.js" "$dir/axe-$axe.min.js"
