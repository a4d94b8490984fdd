#!/usr/bin/env bash
# Generates what is made from the Go types: deep copies, CRDs and roles. With --check it only says whether that would change
# anything.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
generated=(controllers/api/zz_generated.deepcopy.go controllers/api/fence/zz_generated.deepcopy.go docs/examples/cluster-api/zz_generated.deepcopy.go controllers/manifests/crds)
if [[ ${1:-} == --check ]]; then
	before=$(mktemp -d)
	trap 'rm -rf "$before"' EXIT
	cp -r --parents "${generated[@]}" "$before"
	sh controllers/manifests/generate.sh
	for path in "${generated[@]}"; do
		if ! diff -r "$before/$path" "$path" >&2; then
			echo "$path was not up to date; it is now: commit it" >&2
			exit 1
		fi
	done
	exit
fi
sh controllers/manifests/generate.sh
