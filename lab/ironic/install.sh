#!/bin/sh
# Installs an Ironic, which package ironic starts as a child process.
#
#   lab/ironic/install.sh          Debian's own, with apt (12: 21.4.4), as root
#   lab/ironic/install.sh SUITE    that of another suite of Debian, such as sid, into .cache/ironic, as anybody
#
# Debian's one package has every executable; no service comes with it or with what it needs (ironic-api and ironic-conductor,
# which are init scripts around the same executables, would bring TFTP, xinetd and uWSGI as well), so nothing is started here.
#
# That of another suite comes with its own Python and C library, unpacked beside each other and not installed: no maintainer
# script runs. The mirror is the one that apt has, and what comes from there is verified as apt does. How old it is doesn't
# matter: a mirror that is behind its suite will do.
set -eu

fail() { echo "lab/ironic/install.sh: $*" >&2; exit 4; }
command -v apt-get >/dev/null || fail "no apt-get here: install Ironic 21.4 as /usr/bin/ironic yourself"

if [ $# -gt 0 ]; then
	suite=$1
	keys=/usr/share/keyrings/debian-archive-keyring.gpg
	[ -r "$keys" ] || fail "no $keys here: install the package debian-archive-keyring"
	site=$(apt-get indextargets --format '$(SITE) $(ORIGIN) $(RELEASE)' 'Created-By: Packages' | awk '$2 == "Debian" && $3 !~ /-/ {print $1; exit}')
	[ -n "$site" ] || fail "apt has no mirror of Debian configured"
	cd "$(dirname "$0")/../.."
	mkdir -p .cache
	new=$(pwd)/.cache/ironic.new
	rm -rf "$new"
	trap 'rm -rf "$new"' EXIT
	apt=$new/apt
	mkdir -p "$apt/etc/apt.conf.d" "$apt/etc/preferences.d" "$apt/etc/trusted.gpg.d" "$apt/lists/partial" "$apt/archives/partial" "$new/root" "$new/bin"
	: >"$apt/status"
	echo "deb [check-valid-until=no signed-by=$keys] $site $suite main" >"$apt/etc/sources.list"
	cat >"$apt/apt.conf" <<-EOF
		Dir::Etc "$apt/etc";
		Dir::State "$apt";
		Dir::State::lists "$apt/lists";
		Dir::State::status "$apt/status";
		Dir::Cache "$apt";
		Dir::Cache::archives "$apt/archives";
		APT::Install-Recommends "false";
		APT::Sandbox::User "";
		Acquire::Languages "none";
	EOF
	echo "ironic: fetching it from Debian $suite (95 MB to download, 500 MB on disk, 290 packages: some minutes)"
	APT_CONFIG=$apt/apt.conf apt-get update --quiet
	APT_CONFIG=$apt/apt.conf apt-get install --quiet --yes --download-only ironic-common
	for package in "$apt"/archives/*.deb; do dpkg-deb --extract "$package" "$new/root"; done
	rm -rf "$apt"

	# The machine's own loader would find the machine's own libraries. Python starts itself again, and must come the same way.
	cat >"$new/bin/python3" <<-'EOF'
		#!/bin/sh
		root=$(cd "$(dirname "$0")/../root/usr" && pwd)
		for loader in "$root"/lib*/ld-linux*.so.*; do :; done
		for libc in "$root"/lib/*-linux-*/libc.so.6; do :; done
		PYTHONHOME=$root exec "$loader" --library-path "$(dirname "$libc")" "$root/bin/$(readlink "$root/bin/python3")" "$@"
	EOF
	echo "import os, sys; sys.executable = os.path.normpath(os.path.join(sys.prefix, '../../bin/python3'))" >"$new/root/usr/lib/python3/dist-packages/fencelab.pth"
	for name in ironic ironic-dbsync; do
		cat >"$new/bin/$name" <<-EOF
			#!/bin/sh
			bin=\$(dirname "\$0")
			exec "\$bin/python3" -W ignore "\$bin/../root/usr/bin/$name" "\$@"
		EOF
	done
	chmod +x "$new"/bin/*
	echo "ironic: compiling it"
	"$new/bin/python3" -m compileall -q "$new/root/usr/lib" >/dev/null 2>&1 || true # of what it can't compile it makes no use
	version=$("$new/bin/ironic" --version 2>/dev/null) || fail "what came from Debian $suite doesn't run here"
	rm -rf .cache/ironic
	mv "$new" .cache/ironic
	echo "ironic: $version is in .cache/ironic/bin"
	exit 0
fi

if [ -x /usr/bin/ironic ] && [ -x /usr/bin/ironic-dbsync ]; then
	exit 0
fi

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"
	elif command -v sudo >/dev/null; then sudo "$@"
	else fail "needs root for: $*; run that as root, then start again"
	fi
}

apt_install() {
	# The questions of the package, about a database and Keystone, are answered with no by default.
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends --no-upgrade \
		-o DPkg::Lock::Timeout=600 ironic-common
}
echo "ironic: installing it from Debian (28 MB to download, 147 MB on disk, 160 packages: about a minute)"
apt_install || { as_root apt-get update --quiet; apt_install; }
