#!/bin/sh
# Installs Debian's standalone Ironic (12: 21.4.4), which package ironic starts as a child process.
# The one package has every executable; no service comes with it or with what it needs (ironic-api and ironic-conductor, which
# are init scripts around the same executables, would bring TFTP, xinetd and uWSGI as well), so nothing is started here.
set -eu

if [ -x /usr/bin/ironic ] && [ -x /usr/bin/ironic-dbsync ]; then
	exit 0
fi

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"
	elif command -v sudo >/dev/null; then sudo "$@"
	else echo "ci/ironic/install.sh: needs root for: $*; run that as root, then start again" >&2; exit 4
	fi
}
command -v apt-get >/dev/null || { echo "ci/ironic/install.sh: no apt-get here: install Ironic 21.4 as /usr/bin/ironic yourself" >&2; exit 4; }

apt_install() {
	# The questions of the package, about a database and Keystone, are answered with no by default.
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends --no-upgrade \
		-o DPkg::Lock::Timeout=600 ironic-common
}
echo "ironic: installing it from Debian (28 MB to download, 147 MB on disk, 160 packages: about a minute)"
apt_install || { as_root apt-get update --quiet; apt_install; }
