#!/usr/bin/env bash
# Builds and tests the example of a fencer with the newest Kubernetes that docs/setup.md says a module may have. The oldest is what
# fencelab itself requires, with which `make test` builds both examples. It changes no file of theirs.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS=

row=$(grep '^| newest |' docs/setup.md) || { echo "docs/setup.md has no row of the newest versions" >&2; exit 1; }
kubernetes=$(cut -d'|' -f3 <<<"$row" | tr -d ' `') runtime=$(cut -d'|' -f4 <<<"$row" | tr -d ' `')
echo "Kubernetes $kubernetes, controller-runtime $runtime"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd docs/examples/team-fencer
sed "s#=> ../../..#=> $OLDPWD#" go.mod >"$scratch/go.mod"
cp go.sum "$scratch/go.sum"
modules=("sigs.k8s.io/controller-runtime@$runtime")
for module in api apimachinery client-go apiextensions-apiserver; do
	modules+=("k8s.io/$module@$kubernetes")
done
said=$(go get -modfile="$scratch/go.mod" "${modules[@]}" 2>&1) || { echo "$said" >&2; exit 1; }
said=$(go mod tidy -modfile="$scratch/go.mod" 2>&1) || { echo "$said" >&2; exit 1; }
go test -count=1 -timeout 20m -modfile="$scratch/go.mod" ./...
