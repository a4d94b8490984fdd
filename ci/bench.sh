#!/usr/bin/env bash
# Measures what docs/performance.md reports. Each benchmark runs six times on one core; compare medians, since a machine that is
# shared with others is noisy. About three minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
echo "== schedules of a remediation on three hosts, one core (scenarios/catalog/machine-remediation/three-hosts.yaml)"
GOMAXPROCS=1 go test ./sim/search -run '^$' -bench Schedules -benchtime 2s -count 6 -benchmem
echo "== what a step is made of"
GOMAXPROCS=1 go test ./sim/kube ./scenarios/guarantee ./controllers/... -run '^$' -bench . -benchtime 1s -benchmem
echo "== what the lab's gates add to a request, and to an event of a watch"
go test ./lab/gate -run '^$' -bench . -benchtime 2s
echo "== the hosts' network: a guest's way to a service, and to another guest"
go test ./vms/network -run '^$' -bench . -benchtime 2s
echo "== BMCs over HTTP, client and server on the same cores (docs/fakebmc.md)"
go test ./fakebmc ./fakebmc/redfish -run '^$' -bench 'PowerRead|Do' -benchtime 2s -benchmem
go test ./fakebmc/redfish -run '^$' -bench 'Memory/.*true' -benchtime 1x # a process each: a heap that was used before tells nothing
go test ./fakebmc/redfish -run '^$' -bench 'Memory/.*false' -benchtime 1x
echo "== what an image adds to a start of a program"
go test ./lab/container -run '^$' -bench Start -benchtime 2s
echo "== whole commands, two worker processes"
for scenario in cut-off-host three-hosts; do
	bin/fencelab run "scenarios/catalog/machine-remediation/$scenario.yaml" --strategy sweep
done
bin/fencelab run scenarios/catalog/machine-remediation/three-hosts.yaml --strategy random --schedules 10000
