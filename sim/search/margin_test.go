package search

import (
	"testing"
	"time"

	"github.com/fencelab/fencelab/controllers/reboot"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim"
)

// TestSettingsOf: what a scenario says takes the place of the defaults, and only times count.
func TestSettingsOf(t *testing.T) {
	defaults := reboot.DefaultSettings()
	all, err := settingsOf(&defaults, []byte(`{"pollInterval": "3s", "bootTimeout": "0s"}`))
	if err != nil {
		t.Fatal(err)
	}
	if all.times["pollInterval"].Seconds() != 3 || all.times["softTimeout"].Seconds() != 180 || all.times["bootTimeout"] != 0 || len(all.keys) != 6 {
		t.Errorf("the times are %v, %v", all.keys, all.times)
	}
}

// TestMarginBreaks: of a story in which single steps may come so late that its claim is broken, the
// least lateness breaks it, and a millisecond less does not.
func TestMarginBreaks(t *testing.T) {
	const text = `
apiVersion: fencelab.dev/v1alpha1
kind: Scenario
metadata: {name: fed-in-time, description: An agent feeds its host's watchdog while the API server is away.}
spec:
  topology: {hosts: [{name: worker-1, watchdog: 6s}]}
  controllers:
    - {name: poisonpill, settings: {interval: 2s, requestTimeout: 1500ms, peerTimeout: 2s, recreateAfter: 1s}}
  steps:
    - after: 2s
      do: {apiOutage: {}}
    - after: 20s
      do: {apiRestore: {}}
    - after: 10s
  assumes: [watchdogs-fire]
  expect:
    events:
      - {never: {event: boot-ended}}
`
	scenario, err := file.Load("fed-in-time.yaml", []byte(text), objects.Vocabulary())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := scenarios.Compile(scenario, 1)
	if err != nil {
		t.Fatal(err)
	}
	simulator, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	found, _, err := Margin(t.Context(), simulator, plan)
	if err != nil || found == nil {
		t.Fatalf("%v, %v", found, err)
	}
	broken := func(step string, seconds float64) bool {
		late := scenarios.Duration(time.Duration(seconds*1e9 + 0.5))
		o, _, err := NewPlayer(simulator, &campaign.Story{Plan: plan}).Play(campaign.Schedule{Number: 1, Deviations: []scenarios.Deviation{{Step: step, Delay: late}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range o.Results {
			if r.Invariant == play.AsTold {
				return r.Verdict == invariant.Violated
			}
		}
		return false
	}
	n := 0
	for _, g := range found.Guarantees {
		for _, b := range g.Breaks {
			if g.Guarantee != play.AsTold {
				t.Errorf("%s is broken by %s", g.Guarantee, b.Step)
				continue
			}
			if n++; b.Late < 1 || b.Late > 6 || b.Late-b.Held > 0.0011 || !broken(b.Step, b.Late) || broken(b.Step, b.Held) {
				t.Errorf("%s: broken from %.4f s on, and holds with %.4f", b.Step, b.Late, b.Held)
			}
		}
	}
	if n == 0 {
		t.Error("no late look at the API server lets the watchdog fire")
	}
}
