#!/usr/bin/env bash
# Builds the disk of a real node: Debian's C library, mount, runc, CNI plugins and busybox; containerd and kubelet from
# their Go modules; the node's half of a CSI driver (lab/csi/node); images of two containers, made of the guest program
# (vms/guest), and one of fencelab's agents (lab/inguest). Its kernel is the guests'.
# Needs no root and no container registry.
# Usage: vms/node/build.sh [DIR]. It leaves DIR/node/CONTENT.img, a raw ext4 file system that is never written again, and
# the link DIR/node/image to it. Half a minute when the commands are built (lab/cluster/build.sh), a second when all is there.
set -euo pipefail
cd "$(dirname "$0")/../.."
dir=${1:-.cache/lab}/node bin=.cache/bin guest=${1:-.cache/lab}/guest agent=${1:-.cache/lab}/agent csi=${1:-.cache/lab}/csi-node
mkdir -p "$dir"
lab/cluster/build.sh kubernetes containerd csi

if ! command -v qemu-img >/dev/null || ! command -v mkfs.ext4 >/dev/null; then
	echo "node: installing qemu-img and mkfs.ext4 from Debian"
	sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
	$sudo apt-get update -q
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends qemu-utils e2fsprogs
fi

exec 9>"$dir/lock"
flock 9 # two makes at once build once

# All that these need of each other is among them.
packages=(libc6 libgcc-s1 libseccomp2 libmount1 libblkid1 libselinux1 libpcre2-8-0 libsmartcols1 mount runc containernetworking-plugins busybox-static)
debs=$dir/packages-$(printf '%s ' "${packages[@]}" | sha256sum | head -c 12)
if [ ! -d "$debs" ]; then
	echo "node: fetching ${#packages[@]} Debian packages (17 MB)"
	mkdir -p "$debs.new"
	(cd "$debs.new" && rm -f -- *.deb && apt-get download -q -o APT::Sandbox::User=root "${packages[@]}")
	mv "$debs.new" "$debs"
fi

commands=(kubelet containerd containerd-shim-runc-v2 ctr)
content=$(cat "$0" "$debs"/*.deb "$guest" "$agent" "$csi" "${commands[@]/#/$bin/}" | sha256sum | head -c 16)
if [ -e "$dir/$content.img" ]; then
	ln -sfn "$content.img" "$dir/image"
	echo "the node's disk is up to date: $dir/$content.img"
	exit
fi

echo "node: making the disk"
work=$(mktemp -d "$dir/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{dev,proc,sys,run,tmp,root,opt/cni/bin,etc/cni/net.d,etc/containerd,var/lib/fencelab,usr/bin,usr/sbin,usr/lib,usr/lib64}
for merged in bin sbin lib lib64; do ln -s "usr/$merged" "$root/$merged"; done
for deb in "$debs"/*.deb; do
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$root" --no-same-owner --keep-directory-symlink \
		--exclude './usr/share/doc*' --exclude './usr/share/man*' --exclude './usr/share/locale*' --exclude './usr/share/lintian*' --exclude './usr/share/bash-completion*'
done
for plugin in loopback ptp host-local; do mv "$root/usr/lib/cni/$plugin" "$root/opt/cni/bin/"; done
rm -rf "$root/usr/lib/cni"
cp "${commands[@]/#/$bin/}" "$csi" "$root/usr/bin/"
echo 'root:x:0:0::/root:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"
: >"$root/etc/resolv.conf" # there is no name server, but a Pod needs the file

# Plugins that aren't used cost seconds of each start under emulation.
cat >"$root/etc/containerd/config.toml" <<'TOML'
version = 3
disabled_plugins = [
  'io.containerd.snapshotter.v1.blockfile', 'io.containerd.snapshotter.v1.btrfs', 'io.containerd.snapshotter.v1.devmapper',
  'io.containerd.snapshotter.v1.erofs', 'io.containerd.snapshotter.v1.zfs', 'io.containerd.differ.v1.erofs',
  'io.containerd.nri.v1.nri', 'io.containerd.tracing.processor.v1.otlp', 'io.containerd.internal.v1.tracing',
]
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = 'localhost/pause:1'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
    SystemdCgroup = false
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = '/etc/containerd/certs.d'
TOML

# A Pod has an address of its own, which nothing beyond its node knows.
cat >"$root/etc/cni/net.d/pods.conflist" <<'JSON'
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": "10.88.0.0/24"}]]}}
]}
JSON

# Docker's archive of two images of one layer with one file: that importing starts once counts under emulation.
reproducible=(--sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner)
mkdir -p "$work/layer" "$work/images"
cp "$guest" "$work/layer/guest"
tar -c "${reproducible[@]}" -C "$work/layer" -f "$work/images/layer.tar" guest
config() { # file, command as JSON
	printf '{"architecture": "amd64", "os": "linux", "config": {"Entrypoint": %s}, "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' \
		"$2" "$(sha256sum <"$(dirname "$work/images/$1")/layer.tar" | head -c 64)" >"$work/images/$1"
}
config pause.json '["/guest", "pause"]'
config exclusive.json '["/guest", "pod", "exclusive", "100ms"]'
cat >"$work/images/manifest.json" <<'JSON'
[{"Config": "pause.json", "RepoTags": ["localhost/pause:1"], "Layers": ["layer.tar"]},
 {"Config": "exclusive.json", "RepoTags": ["localhost/exclusive:1"], "Layers": ["layer.tar"]}]
JSON
tar -c "${reproducible[@]}" -C "$work/images" -f "$root/var/lib/fencelab/images.tar" manifest.json pause.json exclusive.json layer.tar

# The agents' image has an archive of its own, as only some nodes run them and it is large.
mkdir -p "$work/agent" "$work/images/agent"
cp "$agent" "$work/agent/agent"
tar -c "${reproducible[@]}" -C "$work/agent" -f "$work/images/agent/layer.tar" agent
config agent/agent.json '["/agent"]'
echo '[{"Config": "agent.json", "RepoTags": ["localhost/agent:1"], "Layers": ["layer.tar"]}]' >"$work/images/agent/manifest.json"
tar -c "${reproducible[@]}" -C "$work/images/agent" -f "$root/var/lib/fencelab/agent.tar" manifest.json agent.json layer.tar

# Nothing is left for the first boot to initialize.
truncate -s 2G "$work/image"
mkfs.ext4 -q -F -m 0 -N 20000 -E lazy_itable_init=0,lazy_journal_init=0 -d "$root" "$work/image"
mv "$work/image" "$dir/$content.img"
ln -sfn "$content.img" "$dir/image"
find "$dir" -maxdepth 1 -name '*.img' ! -name "$content.img" -mtime +2 -delete # a lab may still use yesterday's
echo "the node's disk: $dir/$content.img, $(du -h "$dir/$content.img" | cut -f 1) of it used, in $SECONDS s"
