package sim_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/leads"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search"
)

// TestTwinOfTheRight: the twin of a run with fencelab's own controllers is that run, whatever
// deviates in it.
func TestTwinOfTheRight(t *testing.T) {
	for _, file := range []string{
		"../scenarios/catalog/machine-remediation/cut-off-host.yaml",
		"../scenarios/catalog/deletion-hooks/both-points.yaml",
		"../scenarios/catalog/poison-pill/survivors-release-a-cut-off-host.yaml",
	} {
		plan := planOf(t, file)
		s, err := sim.New()
		if err != nil {
			t.Fatal(err)
		}
		steps, _, err := search.Benign(context.Background(), s, plan)
		if err != nil {
			t.Fatal(err)
		}
		singles := search.Singles(steps)
		for i := 0; i < len(singles); i += len(singles) / 40 {
			deviant := plan.With(singles[i : i+1])
			o, err := play.Run(context.Background(), deviant, s.Backend(), nil)
			if err != nil {
				t.Fatal(err)
			}
			twin, err := s.Twin(context.Background(), deviant)
			if err != nil {
				t.Fatal(err)
			}
			if len(twin.Missed) > 0 || twin.Outcome.History.Digest() != o.History.Digest() {
				t.Errorf("%s with %s: its twin is another run, which missed %v", plan.Metadata.Name, singles[i], twin.Missed)
			}
		}
	}
}

// TestTwinOfTheWrong: the twin holds where a wrong controller doesn't, in its schedule.
func TestTwinOfTheWrong(t *testing.T) {
	plan := planOf(t, "../scenarios/catalog/machine-remediation/wrong-deletes-node-before-power-off.yaml")
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	twin, err := s.Twin(context.Background(), plan)
	if err != nil {
		t.Fatal(err)
	}
	if verdict, reason := twin.Outcome.Verdict(); verdict != invariant.Held {
		t.Errorf("%s: %s", verdict, reason)
	}
}

// TestLeadsOfTheWrong: what a wrong controller does shows beside its reference, though nothing else
// objects to it; what deviates in a schedule of right ones shows nothing.
func TestLeadsOfTheWrong(t *testing.T) {
	const story = "../scenarios/catalog/machine-remediation/cut-off-host.yaml"
	for name, c := range map[string]struct {
		overlay string
		want    []string
	}{
		"right":                     {"", nil},
		"reboots before it deletes": {`[{"when": {"rebootAnnotation": true, "nodeExists": true}, "then": "RemoveReboot"}]`, []string{"never node-deleted"}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planOf(t, story)
			for i := range plan.Spec.Controllers {
				if of := &plan.Spec.Controllers[i]; of.Name == "remediation" && c.overlay != "" {
					if err := json.Unmarshal([]byte(c.overlay), &of.Overlay); err != nil {
						t.Fatal(err)
					}
				}
			}
			s, err := sim.New()
			if err != nil {
				t.Fatal(err)
			}
			o, err := play.Run(context.Background(), plan, s.Backend(), nil)
			if err != nil {
				t.Fatal(err)
			}
			reference, err := s.Reference(context.Background(), plan)
			if err != nil || reference == nil {
				t.Fatalf("there is no reference: %v", err)
			}
			found := leads.Compare(o.Side(), reference.Side())
			for _, want := range c.want {
				if !slices.ContainsFunc(found, func(l leads.Lead) bool { return l.Name() == want }) {
					t.Errorf("%+v has no lead %s", found, want)
				}
			}
			if len(c.want) == 0 && len(found) > 0 {
				t.Errorf("right controllers give leads: %+v", found)
			}
		})
	}
}

func planOf(t *testing.T, path string) *scenarios.Plan {
	t.Helper()
	loaded, err := file.LoadFiles([]string{path}, objects.Vocabulary(), nil)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := scenarios.Compile(loaded[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}
