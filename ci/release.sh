#!/usr/bin/env bash
# Writes the archives of a release to dist: fencelab without virtual machines, a static program for each platform, with what
# it was built from in its build information (go version -m). On macOS it has the simulator and the BMCs, and refuses labs. Of a
# commit without a tag it is a snapshot.
set -euo pipefail
cd "$(dirname "$0")/.."

if tag=$(git describe --tags --exact-match 2>/dev/null); then
	grep -q "^## ${tag#v} " CHANGELOG.md || { echo "release $tag: CHANGELOG.md has no section \"## ${tag#v} (date)\"; write it, and move the tag" >&2; exit 1; }
	[ -z "$(git status --porcelain)" ] || { echo "release $tag: the tree has changes; commit them, and move the tag" >&2; exit 1; }
else
	tag=snapshot-$(git rev-parse --short=12 HEAD)
fi
rm -rf dist
time=$(git log -1 --format=%ct)
for platform in ${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}; do
	name=fencelab_${tag#v}_${platform/\//_}
	mkdir -p "dist/$name"
	GOOS=${platform%/*} GOARCH=${platform#*/} ci/static.sh "dist/$name/fencelab"
	cp LICENSE README.md CHANGELOG.md "dist/$name"
	tar --sort=name --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw --mtime="@$time" -C dist -cf - "$name" | gzip -9n >"dist/$name.tar.gz"
	rm -r "dist/$name"
done
(cd dist && sha256sum -- *.tar.gz >SHA256SUMS && cat SHA256SUMS)
