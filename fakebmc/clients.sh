#!/bin/sh
# Installs the BMC clients that the tests drive, none of them written here, from
# Debian: ipmitool, ipmipower (freeipmi), fence_redfish, fence_ipmilan (fence-agents),
# sushy, and Ansible with its Redfish modules. 33 MB to download and 360 MB on disk with what they need. It does nothing when
# all are there.
set -eu

packages=
command -v ipmitool >/dev/null || packages="$packages ipmitool"
command -v ipmipower >/dev/null || packages="$packages freeipmi-tools"
command -v fence_redfish >/dev/null && command -v fence_ipmilan >/dev/null || packages="$packages fence-agents"
command -v ansible-playbook >/dev/null || packages="$packages ansible"
/usr/bin/python3 -c 'import sushy' 2>/dev/null || packages="$packages python3-sushy"
[ -n "$packages" ] || exit 0

if [ "$(id -u)" != 0 ]; then
	echo "installing$packages needs root: run this script with sudo" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
apt-get install --quiet --yes --no-install-recommends $packages ||
	{ apt-get update --quiet && apt-get install --quiet --yes --no-install-recommends $packages; }
