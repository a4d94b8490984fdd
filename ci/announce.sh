#!/bin/sh
# Says what make e2e is about to install and build on this machine, and how long that and the tests take here.
set -u
cd "$(dirname "$0")/.."
cores=$(nproc)
kvm=no
[ -w /dev/kvm ] && kvm=yes
missing=
for tool in qemu-system-x86_64 virsh xz debootstrap ipmitool chromium; do
	command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
done
install=0
[ -z "$missing" ] || install=5
[ -x .cache/bin/kube-apiserver ] || install=$((install + 6))
[ -d .cache/nodes ] || install=$((install + 9))
# 25 minutes were measured on two cores without KVM; other work beside it takes its share.
load=$(cut -d. -f1 /proc/loadavg)
tests=$((25 * (cores + load) / cores))
[ "$cores" -lt 4 ] || tests=$((tests * 3 / 4))
[ "$kvm" = no ] || tests=$((tests * 3 / 4))
echo "make e2e: $cores cores, KVM: $kvm, load $load. About $tests minutes of tests${install:+, after $install of installing and building}."
if [ -n "$missing" ]; then
	echo "  with apt, as root or with sudo:$missing, and what they need"
fi
echo "  into .cache, which make clean removes: etcd, kube-apiserver, kubelet, containerd, a guest kernel, images of nodes"
if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null 2>&1 && [ -n "$missing" ]; then
	echo "  this user can't install them: make run and make test need none of it, and run whole"
fi
