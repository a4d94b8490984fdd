package sim_test

import (
	"strings"
	"testing"

	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/simtest"
)

// TestFieldsThatAreSo: a field counts as having a value even if it got it before the step, or
// before the time from which a claim counts. A change has to come after.
func TestFieldsThatAreSo(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	const head = `
apiVersion: fencelab.dev/v1alpha1
kind: Scenario
metadata: {name: fields, description: x}
spec:
  topology: {hosts: [{name: worker-1}]}
  controllers: [{name: reboot, settings: {steadyInterval: 2s}}]
  invariants: [power-restored]
  limits: {step: 20s}
  steps:
    - {do: {powerLoss: {host: worker-1}}}
    - {when: {event: boot-complete, host: worker-1}}
`
	const field = "{event: field-is, object: BareMetalHost/worker-1, key: spec.online, "
	for _, tc := range []struct {
		name, rest string
		steps      int
		told       string // the verdict about its claims
	}{
		{"it is so", "    - when: " + field + "value: 'true'}\n", 3, ""},
		{"it is another", "    - when: " + field + "value: 'false'}\n", 2, ""},
		{"once more", "    - when: " + field + "value: 'true', occurrence: 2}\n", 2, ""},
		{"any change", "    - when: " + field + "}\n", 2, ""},
		{"it is so, and something comes", "    - when: {allOf: [" + field + "value: 'true'}, {event: node-ready, host: worker-1}]}\n", 3, ""},
		{"a claim of what is so", "  expect: {events: [{happens: " + field + "value: 'true'}}]}\n", 2, "held"},
		{"a claim that it never is", "  expect: {events: [{never: " + field + "value: 'true'}}]}\n", 2, "violated"},
		{"a claim that it never is later", "  expect: {events: [{never: " + field + "value: 'true'}, after: {event: power-off}}]}\n", 2, "violated"},
		{"a claim of a value that it never has", "  expect: {events: [{never: " + field + "value: 'false'}}]}\n", 2, "held"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := head + strings.ReplaceAll(tc.rest, ", }", "}")
			outcome := playOn(t, s, simtest.Compile(t, "fields.yaml", text))
			told := ""
			for _, r := range outcome.Results {
				if r.Invariant == play.AsTold {
					told = string(r.Verdict)
				}
			}
			if outcome.Broken == nil && outcome.Steps != tc.steps || told != tc.told {
				t.Errorf("%d steps, %q (%s), want %d and %q", outcome.Steps, told, outcome.Stuck, tc.steps, tc.told)
			}
		})
	}
}
