package sim_test

import (
	"context"
	"testing"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/invariant"
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
