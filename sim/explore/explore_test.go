package explore_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/explore"
)

func TestSweepDebug(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	file := "../../scenarios/catalog/" + os.Getenv("DBG")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Skip(err)
	}
	sc, err := scenarios.Load(file, data, objects.Vocabulary())
	if err != nil {
		t.Fatal(err)
	}
	plan, _ := scenarios.Compile(sc, 1)
	steps, benign, err := explore.Steps(context.Background(), s, plan)
	if err != nil {
		t.Fatal(err)
	}
	var begins time.Duration
	for _, e := range benign.History.Events() {
		if e.Kind == history.RunStarted {
			begins = e.At
		}
	}
	devs := explore.Sweep(steps, begins)
	var tally explore.Tally
	began := time.Now()
	for _, d := range devs {
		one := []scenarios.Deviation{d}
		o, err := explore.Play(context.Background(), s, plan, one)
		if err != nil {
			t.Fatal(err)
		}
		tally.Add(o, one)
	}
	t.Logf("%d steps, %d tried %d held %d violated %d unknown, %.0f/s, %s", len(steps), tally.Tried, tally.Held, tally.Violated, tally.Unknown, float64(tally.Tried)/time.Since(began).Seconds(), tally.Simulated)
	for _, f := range tally.Failed {
		t.Logf("%d: %s: %s: %v", f.Count, f.Invariant, f.Reason, f.Deviations)
	}
}
