package sim_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/backendtest"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/sim"
)

func catalog(t testing.TB) []*scenarios.Scenario {
	t.Helper()
	files, err := filepath.Glob("../scenarios/catalog/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("find the catalog: %v, %d files", err, len(files))
	}
	var all []*scenarios.Scenario
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := scenarios.Load(file, data, objects.Vocabulary())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

func play(t testing.TB, s *sim.Simulator, plan *scenarios.Plan) *scenarios.Outcome {
	t.Helper()
	outcome, err := scenarios.Run(context.Background(), plan, s.Backend(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if outcome.Err != nil {
		t.Fatal(outcome.Err)
	}
	return outcome
}

// TestCatalog plays every scenario twice: it must come out as it says, and the
// same both times.
func TestCatalog(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, scenario := range catalog(t) {
		t.Run(scenario.Metadata.Name, func(t *testing.T) {
			plan, err := scenarios.Compile(scenario, 1)
			if err != nil {
				t.Fatal(err)
			}
			first := play(t, s, plan)
			if mismatch := first.Meets(); mismatch != "" {
				t.Errorf("%s\n%s", mismatch, first.Text(""))
			}
			second := play(t, s, plan)
			if at := history.Diff(first.History, second.History); at >= 0 {
				t.Errorf("played twice, event %d differs", at+1)
			}
		})
	}
}

func TestBackend(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, scenario := range catalog(t) {
		if scenario.Metadata.Name != "plain-power-cycle" {
			continue
		}
		plan, err := scenarios.Compile(scenario, 1)
		if err != nil {
			t.Fatal(err)
		}
		backendtest.Run(t, func(testing.TB) scenarios.Backend { return s.Backend() }, plan, nil)
	}
}

// TestBadDeviation: a deviation that names no step is a mistake, not
// a schedule.
func TestBadDeviation(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := scenarios.Compile(catalog(t)[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"", "remediation", "remediation/api", "remediation/api/0", "remediation/api/x", "remediation/api/01", "a/b/c/1"} {
		bad := plan.With([]scenarios.Deviation{{Step: step}})
		if _, err := s.Backend().Start(context.Background(), bad); err == nil {
			t.Errorf("the step %q was accepted", step)
		}
	}
}

// TestPresetsHaveStories counts the misbehaviours of real BMCs that the catalogue
// tells a story of.
func TestPresetsHaveStories(t *testing.T) {
	told := map[string]bool{}
	for _, scenario := range catalog(t) {
		for _, step := range scenario.Spec.Steps {
			if step.Do == nil || step.Do.AddFault == nil {
				continue
			}
			var rule fakebmc.Rule
			if err := json.Unmarshal(step.Do.AddFault.Rule, &rule); err != nil {
				t.Fatal(err)
			}
			if rule.Preset != "" {
				told[rule.Preset] = true
			}
		}
	}
	if len(told) < 30 {
		t.Errorf("%d presets of fakebmc have a scenario, want 30", len(told))
	}
}
