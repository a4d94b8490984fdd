package sim

import (
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim/simtest"
	"github.com/fencelab/fencelab/sim/steps"
)

// TestDeedsAreWhatHappens compares the deeds of a story's steps with its history.
func TestDeedsAreWhatHappens(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	plan := simtest.Plan(t, "../scenarios/catalog/machine-remediation/cut-off-host.yaml")
	said := make(map[scenarios.Deed]int)
	backend := s.Backend()
	backend.Watch = func(step steps.Step) (scenarios.Deviation, bool) {
		if deed, told := step.Deed(); told && (step.Effect || deed.IsDelivery()) {
			said[deed]++
		}
		return scenarios.Deviation{}, false
	}
	outcome, err := play.Run(t.Context(), plan, backend, nil)
	if err != nil || outcome.Err != nil {
		t.Fatal(err, outcome.Err)
	}
	done, changes, story := make(map[scenarios.Deed]int), make(map[string]int), false
	for _, e := range outcome.History.Events() {
		switch {
		case e.Kind == history.RunStarted:
			story = true
		case !story:
		case e.Kind == history.Healed:
			story = false
		case e.Kind == history.ControllerEffect:
			done[scenarios.Deed{Actor: e.Actor, Does: e.Value}]++
		case e.Kind.Layer() == history.API:
			changes[strings.TrimSpace("deliver "+string(e.Kind)+" "+e.Object+" "+e.Key)]++
		}
	}
	effects, deliveries := 0, 0
	for deed, n := range said {
		if !deed.IsDelivery() {
			effects += n
			if done[deed] != n {
				t.Errorf("%s is done %d times, and said to be %d times", deed.Does, done[deed], n)
			}
			continue
		}
		deliveries += n
		if changes[deed.Does] < n {
			t.Errorf("%s learns %d times: %s; that happened %d times", deed.Actor, n, deed.Does, changes[deed.Does])
		}
	}
	if effects < 10 || deliveries < 20 {
		t.Errorf("there were %d effects and %d deliveries", effects, deliveries)
	}
}

// TestPlansAreToldByDeeds names steps of each class, and steps that no gate sees.
func TestPlansAreToldByDeeds(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	plan := simtest.Plan(t, "../scenarios/catalog/machine-remediation/cut-off-host.yaml")
	names := make(map[string]string) // of steps, by the classes and deeds that they are the first of
	backend := s.Backend()
	backend.Watch = func(step steps.Step) (scenarios.Deviation, bool) {
		deed, _ := step.Deed()
		if key := string(step.Class) + " " + deed.Does; names[key] == "" && strings.HasPrefix(step.Actor, "remediation") {
			names[key] = step.Name()
		}
		return scenarios.Deviation{}, false
	}
	if _, err := play.Run(t.Context(), plan, backend, nil); err != nil {
		t.Fatal(err)
	}
	delay := scenarios.Duration(1_000_000)
	for key, want := range map[string]string{
		"api patch BareMetalHost/worker-1":           "remediation/patch BareMetalHost/worker-1/1",
		"api delete Node/worker-1":                   "remediation/delete Node/worker-1/1",
		"api get Node/worker-1":                      "remediation/get Node/worker-1/0.1",
		"deliver deliver node-deleted Node/worker-1": "remediation/deliver node-deleted Node/worker-1/1",
		"work ": "",
	} {
		told, err := s.Deeds(t.Context(), plan.With([]scenarios.Deviation{{Step: names[key], Delay: delay}}))
		if err != nil {
			t.Fatalf("%s (%s): %v", key, names[key], err)
		}
		var got []string
		for _, d := range told.Plan.Deviations {
			got = append(got, d.Step)
		}
		switch {
		case want == "" && len(told.Untold) != 1:
			t.Errorf("%s is told as %q, and untold is %q", names[key], got, told.Untold)
		case want != "" && (!slices.Equal(got, []string{want}) || len(told.Untold) > 0):
			t.Errorf("%s is told as %q, want %s; untold is %q", names[key], got, want, told.Untold)
		}
	}
	never, err := s.Deeds(t.Context(), plan.With([]scenarios.Deviation{{Step: "remediation/api/999", Delay: delay}}))
	if err != nil || len(never.Untold) != 1 || !strings.Contains(never.Untold[0], "step 1 of 1") {
		t.Errorf("a step that never comes: %v, %v", never, err)
	}
}
