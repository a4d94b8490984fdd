#!/usr/bin/env bash
# Has the image of a kind cluster's node ready: the one that kind publishes, where Docker or Podman runs and a registry answers.
# Else it is built here: Debian's systemd, runc and CNI plugins, kind's own
# files from its Go module, and Kubernetes' commands from theirs, each of the control plane's in a container image of its own.
# Installs Docker and debootstrap from Debian if they are missing.
# Usage: lab/cluster/kind/build.sh. It leaves .cache/kind/CONTENT.tar, the root file system, and the link .cache/kind/node.tar
# to it. Two to five minutes when the commands are built (lab/cluster/build.sh), a second when all is there. Its second half, node.sh,
# runs as root.
set -euo pipefail
cd "$(dirname "$0")/../../.."
here=$PWD/lab/cluster/kind dir=$PWD/.cache/kind bin=$PWD/.cache/bin
mkdir -p "$dir"

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"
	elif command -v sudo >/dev/null; then sudo "$@"
	else echo "$0: needs root for: $*; run that as root, then start again" >&2; exit 4
	fi
}

kind=$(go mod download -json sigs.k8s.io/kind | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
published=$(sed -n 's/^const Image = "\(.*\)"$/\1/p' "$kind/pkg/apis/config/defaults/image.go")
have() { # engine, what it puts before a name to ask a registry: has the published image in it
	command -v "$1" >/dev/null && timeout 20 "$1" ps -q >/dev/null 2>&1 || return 1
	"$1" image inspect "$published" >/dev/null 2>&1 && return
	timeout 20 "$1" manifest inspect "$2$published" >/dev/null 2>&1 || return 1
	echo "kind: pulling its image (minutes)"
	"$1" pull "$2$published"
}
if have docker '' || have podman docker://; then
	echo "the image of kind's node: $published"
	exit
fi

lacking=()
# Docker as it is, or Podman, will do. Newer Debian has Docker's command in a package of its own.
if ! command -v podman >/dev/null; then
	command -v dockerd >/dev/null || lacking+=(docker.io)
	command -v docker >/dev/null || ! apt-cache show docker-cli >/dev/null 2>&1 || lacking+=(docker-cli)
	command -v ip >/dev/null || lacking+=(iproute2)
fi
command -v debootstrap >/dev/null || lacking+=(debootstrap)
if [ ${#lacking[@]} -gt 0 ]; then
	echo "kind: installing ${lacking[*]} from Debian (about a minute)"
	command -v apt-get >/dev/null || { echo "$0: no apt-get here: install ${lacking[*]} yourself" >&2; exit 4; }
	as_root apt-get update -q
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${lacking[@]}"
fi

exec 9>"$dir/lock"
flock 9 # two makes at once build once
lab/cluster/build.sh controlplane kubernetes containerd kubeadm
for program in runc pause; do
	CGO_ENABLED=0 GOFLAGS= go build -trimpath -ldflags='-s -w' -o "$dir/$program.new" "./lab/cluster/kind/$program"
	mv "$dir/$program.new" "$dir/$program"
done

# All that the node's programs call, as in the image that kind publishes; storage beyond the node has no place here.
packages=systemd,systemd-sysv,dbus,conntrack,iptables,nftables,iproute2,ethtool,kmod,runc,containernetworking-plugins,jq,procps,ca-certificates
# The machine's own Debian, from where apt has it.
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' | awk -v suite="$suite" '$1 == suite { print $2; exit }')
[ -n "$mirror" ] || { echo "$0: apt has no mirror of $suite" >&2; exit 4; }
base=$dir/debian-$(echo "$suite $packages" | sha256sum | head -c 12).tar
if [ ! -e "$base" ]; then
	echo "kind: making a minimal Debian $suite (130 MB to download, 1 to 5 minutes)"
	work=$(mktemp -d "$dir/debian.XXXXXX")
	trap 'as_root rm -rf --one-file-system "$work"' EXIT
	if ! as_root debootstrap --variant=minbase --include="$packages" "$suite" "$work/root" "$mirror" >"$work/log" 2>&1; then
		tail -n 20 "$work/log" "$work/root/debootstrap/debootstrap.log" >&2 || true
		echo "$0: debootstrap $suite failed; its last lines are above" >&2
		exit 1
	fi
	as_root tar -c -C "$work/root" --exclude ./var/cache/apt/archives/'*' --exclude ./var/lib/apt/lists/'*' --exclude ./dev/'*' --exclude ./usr/share/doc/'*' \
		--exclude ./usr/share/man/'*' --exclude ./usr/share/locale/'*' . >"$base.new"
	mv "$base.new" "$base"
	as_root rm -rf --one-file-system "$work"
fi

commands=(etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubeadm kubectl containerd containerd-shim-runc-v2 ctr)
content=$(cat "$here"/{build,node}.sh "$base" "$dir"/{runc,pause} "${commands[@]/#/$bin/}" <(echo "$kind") | sha256sum | head -c 16)
if [ ! -e "$dir/$content.tar" ]; then
	echo "kind: making the node's image (half a minute)"
	# Whatever is mounted or still runs ends with the namespaces.
	as_root unshare --mount --pid --fork --kill-child "$here/node.sh" "$kind" "$base" "$dir" "$bin" "$dir/$content.tar"
fi
ln -sfn "$content.tar" "$dir/node.tar"
find "$dir" -maxdepth 1 -name '*.tar' ! -name "$content.tar" ! -name node.tar ! -samefile "$base" -mmin +60 -delete # a lab that is being made may still read one
echo "the image of kind's node: $dir/$content.tar, $(du -h "$dir/$content.tar" | cut -f 1)"
