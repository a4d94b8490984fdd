#!/usr/bin/env bash
# Makes the root file system of a kind node; build.sh starts it as root, in mount and process namespaces of its own.
# Usage: node.sh KIND BASE PROGRAMS BIN RESULT: the directory of kind's module, the tar of a minimal Debian, the directories
# of our programs and of Kubernetes', the tar to make.
set -euo pipefail
kind=$1 base=$2 programs=$3 bin=$4 result=$5
work=$(mktemp -d "$result.XXXXXX")
root=$work/root
trap 'umount -R "$root/dev" "$root/proc" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
mkdir "$root"
tar -x -C "$root" -f "$base"

# What kind's own base image is made of (its images/base/Dockerfile).
cp -r --no-preserve=mode "$kind"/images/base/files/{etc,kind,usr} "$root"
chmod 755 "$root"/kind/bin/* "$root"/usr/local/bin/*
units=$root/lib/systemd/system
rm -f "$units"/sysinit.target.wants/systemd-tmpfiles-setup.service "$units"/{multi-user,local-fs,basic}.target.wants/* \
	"$units"/sockets.target.wants/*{udev,initctl}* "$root"/etc/systemd/system/*.wants/*
echo ReadKMsg=no >>"$root/etc/systemd/journald.conf"
for service in kubelet containerd undo-mount-hacks; do
	ln -s "/etc/systemd/system/$service.service" "$root/etc/systemd/system/multi-user.target.wants/"
done
ln -s /dev/null "$root/etc/systemd/system/systemd-binfmt.service"
mkdir -p "$root"/etc/kubernetes/manifests "$root"/etc/cni/net.d "$root"/opt/cni/bin "$root"/kind/manifests
cp "$bin"/{containerd,containerd-shim-runc-v2,ctr} "$root/usr/local/bin/"
cp "$bin"/{kubelet,kubeadm,kubectl} "$root/usr/bin/"
mv "$root"/usr/lib/cni/* "$root/opt/cni/bin/"
"$bin/kubelet" --version | sed 's/^Kubernetes //' | tr -d '\n' >"$root/kind/version"

# Where a capability is missing that containers ask for, they do without (lab/cluster/kind/runc).
install -m 755 "$programs/runc" "$root/usr/local/sbin/runc"
sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$root/etc/containerd/config.toml"
sed -i '/^Limit/d; /^OOMScoreAdjust/d' "$root/etc/systemd/system/containerd.service"

# A Pod's network, which reaches no further than this one node.
cat >"$root/etc/cni/net.d/10-pods.conflist" <<'JSON'
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "dataDir": "/run/cni", "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": "10.244.0.0/24"}]]}}
]}
JSON

mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs run "$root/run"
chroot "$root" ctr oci spec | chroot "$root" jq \
	'.hooks.createContainer[.hooks.createContainer | length] |= . + {"path": "/kind/bin/mount-product-files.sh"} | del(.process.rlimits)' \
	>"$root/etc/containerd/cri-base.json"

# One image for each program of the control plane: one layer, with one file.
version=$(cat "$root/kind/version")
mapfile -t names < <(chroot "$root" kubeadm config images list --kubernetes-version "$version" 2>/dev/null)
sandbox=$(sed -n 's/^ *sandbox_image = "\(.*\)"/\1/p' "$root/etc/containerd/config.toml")
image() { # name, file, where it is in the image: adds to the archive of images
	local number=${#entries[@]} layer
	install -D -m 755 "$2" "$work/layer$3"
	tar -c --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$work/layer" -f "$work/images/$number.tar" .
	rm -r "$work/layer"
	layer=$(sha256sum <"$work/images/$number.tar" | head -c 64)
	printf '{"architecture": "%s", "os": "linux", "config": {"Entrypoint": ["%s"], "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]}, "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' \
		"$(dpkg --print-architecture)" "$3" "$layer" >"$work/images/$number.json"
	entries+=("{\"Config\": \"$number.json\", \"RepoTags\": [\"$1\"], \"Layers\": [\"$number.tar\"]}")
}
mkdir "$work/images"
entries=()
for name in "${names[@]}"; do
	program=${name##*/} program=${program%%:*}
	case $program in
	etcd | kube-apiserver | kube-controller-manager | kube-scheduler) image "$name" "$bin/$program" "/usr/local/bin/$program" ;;
	pause | kube-proxy | coredns) ;; # containerd has its own; the others aren't run
	*) echo "kubeadm wants the image $name, of which lab/cluster/kind/node.sh knows nothing" >&2; exit 1 ;;
	esac
done
image "$sandbox" "$programs/pause" /pause
(IFS=,; echo "[${entries[*]}]") >"$work/images/manifest.json"
tar -c -C "$work/images" -f "$root/run/images.tar" manifest.json $(cd "$work/images" && ls -- *.json *.tar | grep -v '^manifest')
chroot "$root" containerd >"$work/containerd.log" 2>&1 &
containerd=$!
for _ in $(seq 100); do
	chroot "$root" ctr version >/dev/null 2>&1 && break
	kill -0 $containerd 2>/dev/null || break
	sleep 0.1
done
# They are unpacked in the node: twice in the image would be too much.
if ! chroot "$root" ctr --namespace=k8s.io images import --label=io.cri-containerd.pinned=pinned --no-unpack --digests /run/images.tar >"$work/import.log" 2>&1; then
	tail -n 20 "$work/containerd.log" "$work/import.log" >&2
	exit 1
fi
kill $containerd
wait $containerd || true
umount "$root/run"
umount -R "$root/dev"
umount "$root/proc"
tar -c --numeric-owner -C "$root" -f "$work/result" .
mv "$work/result" "$result"
