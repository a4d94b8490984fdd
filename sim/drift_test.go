package sim

import (
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim/simtest"
)

// TestDeedFindsTheStep: a saved plan has the deed of each deviation that passes a gate, and the
// step is found by it when its number belongs to another one, as after its actor has gained steps.
func TestDeedFindsTheStep(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	plan := simtest.Plan(t, "../scenarios/catalog/machine-remediation/cut-off-host.yaml")
	run := func(d scenarios.Deviation) (*play.Outcome, history.Event) {
		t.Helper()
		backend := s.Backend()
		backend.Evidence = true
		o, err := play.Run(t.Context(), plan.With([]scenarios.Deviation{d}), backend, nil)
		if err != nil || o.Err != nil {
			t.Fatal(err, o.Err)
		}
		for _, e := range o.History.Events() {
			if e.Kind == history.Deviated {
				return o, e
			}
		}
		return o, history.Event{}
	}
	found := scenarios.Deviation{Step: "remediation/api/9", Fault: scenarios.FaultErrorBefore}
	o, at := run(found)
	deed := o.Plan.Deviations[0].Deed
	if at.Kind == "" || deed == "" {
		t.Fatalf("the step deviates at %v, and its deed is %q", at, deed)
	}
	if id := o.Plan.ID(); id != plan.With([]scenarios.Deviation{found}).ID() {
		t.Errorf("the deed changes the plan's name to %s", id)
	}
	moved := found
	moved.Step = "remediation/api/7"
	if _, other := run(moved); other.At == at.At && other.Seq == at.Seq {
		t.Errorf("another step deviates at the same time, %s", other)
	}
	moved.Deed = deed
	if o, again := run(moved); again.At != at.At || again.Seq != at.Seq || o.Plan.Deviations[0].Deed != deed {
		t.Errorf("by its deed %s the step deviates at %s, want %s", deed, again, at)
	}
	moved.Deed = "remediation/delete Node/worker-2/1"
	if o, never := run(moved); never.Kind != "" || len(o.Injected.Idle) != 1 {
		t.Errorf("a deed that is never done deviates: %s, and idle is %q", never, o.Injected.Idle)
	}

	order := scenarios.Deviation{Step: "healthcheck/api/6", After: "remediation/api/4", Delay: scenarios.Duration(time.Minute)}
	o, _ = run(order)
	if order.AfterDeed = o.Plan.Deviations[0].AfterDeed; order.AfterDeed == "" || len(o.Injected.Idle) > 0 {
		t.Fatalf("the step waits for %q: %q", order.AfterDeed, o.Injected.Idle)
	}
	digest := o.History.Digest()
	if o, _ = run(order); o.History.Digest() != digest {
		t.Error("by its deed the order comes out differently")
	}
	order.After = "remediation/api/900"
	if o, _ = run(order); len(o.Injected.Idle) > 0 {
		t.Errorf("an order by its deed doesn't come about: %s", o.Injected.Idle[0])
	}
	order.AfterDeed = "remediation/delete Node/worker-2/1"
	if o, _ = run(order); len(o.Injected.Idle) != 1 {
		t.Error("a step waits for a deed that is never done, and its order comes about")
	}
}
