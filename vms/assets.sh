#!/bin/sh
# Makes what the VMs need: Debian's QEMU and libvirt, Debian's kernel (unpacked, never installed), the guest program.
# Usage: vms/assets.sh [DIR]. Takes about a minute on a fresh machine, a second when all is there.
set -eu
cd "$(dirname "$0")/.."
dir=${1:-.cache/lab}
mkdir -p "$dir"

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"
	elif command -v sudo >/dev/null; then sudo "$@"
	else echo "vms/assets.sh: needs root for: $*; run that as root, then start again" >&2; exit 4
	fi
}

plugin() { find /usr/lib /usr/lib64 -path '*libvirt/connection-driver/libvirt_driver_qemu.so' 2>/dev/null | grep -q .; }

if ! command -v qemu-system-x86_64 >/dev/null || ! plugin || ! command -v virsh >/dev/null || ! command -v xz >/dev/null || ! command -v cc >/dev/null; then
	# virsh is for who works in a lab that is kept.
	echo "vms: installing QEMU, libvirt, virsh, xz and a C compiler from Debian (about 40 s)"
	command -v apt-get >/dev/null || { echo "vms/assets.sh: no apt-get here: install QEMU (x86) and libvirt's QEMU driver yourself" >&2; exit 4; }
	as_root apt-get update -q
	# Without the -system package nothing of it runs by itself: the lab embeds the driver.
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
		qemu-system-x86 libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients xz-utils gcc libc6-dev
fi

# As root, libvirt's driver doesn't start unless its packaged user exists, although the lab's configuration doesn't use it.
if [ "$(id -u)" = 0 ]; then
	getent group libvirt-qemu >/dev/null || groupadd --system libvirt-qemu
	getent passwd libvirt-qemu >/dev/null || useradd --system --gid libvirt-qemu --no-create-home \
		--home-dir /var/lib/libvirt --shell /usr/sbin/nologin libvirt-qemu
fi

if [ ! -e "$dir/kernel" ] || [ ! -e "$dir/modules/fs/9p" ]; then
	echo "vms: fetching Debian's kernel (70 MB, about 20 s)"
	tmp=$(mktemp -d "$dir/kernel.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	# linux-image-amd64 only depends on the package of the current version.
	current() { apt-cache depends linux-image-amd64 2>/dev/null | awk '$1 == "Depends:" && $2 ~ /^linux-image-/ { print $2; exit }'; }
	package=$(current)
	[ -n "$package" ] || { as_root apt-get update -q; package=$(current); }
	[ -n "$package" ] || { echo "vms/assets.sh: apt knows no linux-image-amd64; a Debian mirror has it" >&2; exit 4; }
	(cd "$tmp" && apt-get download -q -o APT::Sandbox::User=root "$package")
	dpkg-deb --fsys-tarfile "$tmp"/*.deb | tar -x -C "$tmp" --wildcards \
		'*/boot/vmlinuz-*' '*/kernel/drivers/virtio/*' '*/kernel/drivers/char/virtio_console.ko*' '*/kernel/drivers/net/virtio_net.ko*' \
		'*/kernel/drivers/net/net_failover.ko*' '*/kernel/net/core/*' '*/kernel/drivers/watchdog/*' '*/kernel/drivers/acpi/button.ko*' \
		'*/kernel/drivers/input/evdev.ko*' \
		'*/kernel/drivers/block/virtio_blk.ko*' '*/kernel/fs/ext4/*' '*/kernel/fs/jbd2/*' '*/kernel/fs/mbcache.ko*' '*/kernel/lib/crc*' \
		'*/kernel/crypto/crc32c_generic.ko*' '*/kernel/fs/overlayfs/*' '*/kernel/drivers/net/veth.ko*' \
		'*/kernel/fs/9p/*' '*/kernel/fs/netfs/*' '*/kernel/fs/fscache/*' '*/kernel/net/9p/*'
	# Newer Debian compresses its modules.
	find "$tmp" -name '*.ko.xz' -exec xz -d {} +
	rm -rf "$dir/modules"
	mv "$(find "$tmp" -type d -path '*/modules/*/kernel' | head -n 1)" "$dir/modules"
	# Unpacking itself takes an emulated kernel three seconds at each boot, so it is unpacked here. Where its code lies is in
	# its header (Documentation/arch/x86/boot.rst: setup_sects, payload_offset, payload_length).
	image=$(echo "$tmp"/boot/vmlinuz-*)
	field() { od -A n -t "u$2" -j "$1" -N "$2" "$image" | tr -d ' '; }
	payload=$(( ($(field $((0x1f1)) 1) + 1) * 512 + $(field $((0x248)) 4) ))
	case $(od -A n -t x1 -j "$payload" -N 4 "$image" | tr -d ' ') in
	fd377a58) unpack="xz -d --single-stream" ;;
	28b52ffd) unpack="zstd -d" ;;
	*) unpack= ;;
	esac
	# The payload ends with its unpacked length, which isn't part of the compressed stream.
	if [ -z "$unpack" ] || ! tail -c +$((payload + 1)) "$image" | head -c $(($(field $((0x24c)) 4) - 4)) | $unpack >"$tmp/kernel"; then
		echo "vms: cannot unpack the kernel beforehand; guests boot some seconds slower"
		cp "$image" "$tmp/kernel"
	fi
	# Last, so that its presence means that all of it is there.
	mv "$tmp/kernel" "$dir/kernel"
fi

echo "vms: building the guest, and the agents and the CSI driver that run in some"
CGO_ENABLED=0 GOFLAGS= go build -trimpath -ldflags='-s -w' -o "$dir/guest.new" ./vms/guest
CGO_ENABLED=0 GOFLAGS= go build -trimpath -ldflags='-s -w' -o "$dir/agent.new" ./lab/inguest
CGO_ENABLED=0 GOFLAGS= go build -trimpath -ldflags='-s -w' -o "$dir/csi-node.new" ./lab/csi/node
mv "$dir/guest.new" "$dir/guest" # a lab may just be starting
mv "$dir/agent.new" "$dir/agent"
mv "$dir/csi-node.new" "$dir/csi-node"
