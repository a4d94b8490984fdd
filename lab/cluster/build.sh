#!/usr/bin/env bash
# Builds the commands of a cluster from their Go modules into .cache/bin: the tools that MODULE/go.mod pins, for each
# MODULE beside this script. Usage: build.sh [MODULE...]; controlplane alone if none is named.
#
#   controlplane  etcd, kube-apiserver                               5 minutes from nothing
#   kubernetes    kube-controller-manager, kube-scheduler, kubelet   4 minutes more
#   containerd    containerd, its shim, ctr                          3 minutes
#
# Needs Go only. Seconds when Go's caches are warm; nothing is done for a module whose commands fit its go.sum, this
# script and the Go version.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$here/../../.cache/bin
mkdir -p "$bin"
bin=$(cd "$bin" && pwd)
export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off

# A module has no commit and no build machine. "archive" is Kubernetes' own word for a tree that isn't a git checkout, and
# the module's time keeps the binary the same whenever it is built.
stamps() { # of the module k8s.io/kubernetes
	local version time
	version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
	time=$(go list -m -f '{{with .Time}}{{.UTC.Format "2006-01-02T15:04:05Z"}}{{else}}1970-01-01T00:00:00Z{{end}}' k8s.io/kubernetes)
	IFS=.v read -r _ major minor _ <<<"$version"
	for stamp in gitVersion="$version" gitMajor="$major" gitMinor="$minor" gitCommit=unknown gitTreeState=archive buildDate="$time"; do
		printf ' -X k8s.io/component-base/version.%s' "$stamp"
	done
}

present() { # commands
	for command; do [[ -x $bin/$command ]] || return; done
}

build() { # module; changes the directory
	local package command commands flags wanted
	cd "$here/$1"
	exec 9>"$bin/$1.lock"
	flock 9 # two makes at once build once
	wanted=$(cat "$here/build.sh" go.{mod,sum} <(go version && go env GOOS GOARCH) | sha256sum)
	commands=()
	for package in $(go list tool); do
		command=${package##*/}
		[[ $package == go.etcd.io/etcd/server/* ]] && command=etcd # its path ends with a version
		commands+=("$command=$package")
	done
	if [[ $(cat "$bin/$1.stamp" 2>/dev/null) == "$wanted" ]] && present "${commands[@]%%=*}"; then
		echo "${commands[*]%%=*}: up to date in $bin"
		return
	fi
	rm -f "$bin/$1.stamp"
	for command in "${commands[@]}"; do
		package=${command#*=} command=${command%%=*} flags=
		[[ $package == k8s.io/kubernetes/* ]] && flags=$(stamps)
		echo "building $command ($package), which takes minutes from nothing and seconds with warm caches"
		go build -ldflags "-s -w$flags" -o "$bin/$command.new" "$package"
		mv "$bin/$command.new" "$bin/$command" # a running one keeps its file
	done
	echo "$wanted" >"$bin/$1.stamp"
	echo "built $1 in $SECONDS s"
}

for module in "${@:-controlplane}"; do
	(build "$module")
done
