#!/usr/bin/env bash
# Builds fencelab without virtual machines, as one static program: that of the image and of releases (PROGRAM; GOOS, GOARCH).
set -euo pipefail
program=$(realpath -m "$1")
cd "$(dirname "$0")/.."
GOFLAGS= CGO_ENABLED=0 GOOS=${GOOS:-linux} go build -trimpath -ldflags='-s -w' -buildvcs=true -o "$program" .
