package play_test

import (
	"strings"
	"testing"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/play"
)

// TestReproduces judges runs of a plan with two deviations against what it broke elsewhere.
func TestReproduces(t *testing.T) {
	plan := &scenarios.Plan{Deviations: []scenarios.Deviation{
		{Step: "a/delete Node/x/1", Fault: scenarios.FaultLate, Delay: 1}, {Step: "a/get Node/x/0.1", Fault: scenarios.FaultErrorBefore},
	}}
	plan.Spec.Steps = []scenarios.Step{{}}
	for name, c := range map[string]struct {
		taken  int // of the deviations
		broke  []string
		before []string // broken elsewhere
		want   play.Reproduction
		says   string
	}{
		"the same":             {2, []string{"one", "two"}, []string{"two"}, play.Reproduced, "two is broken"},
		"before all was taken": {1, []string{"two"}, []string{"two"}, play.Reproduced, "two is broken"},
		"another":              {2, []string{"one"}, []string{"two"}, play.NotReproduced, "broken is one, and in the simulator two"},
		"nothing":              {2, nil, []string{"two"}, play.NotReproduced, "every step was taken, and nothing is broken"},
		"nothing in either":    {2, nil, nil, play.NotReproduced, "nor is it in the simulator"},
		"a step never came":    {1, nil, []string{"two"}, play.Diverged, "at step 2 of 2: a/get Node/x/0.1 error-before never came"},
		"neither came":         {0, []string{"one"}, []string{"two"}, play.Diverged, "at step 1 of 2"},
	} {
		o := &play.Outcome{Plan: plan, History: new(history.History), Results: []invariant.Result{{Invariant: "zero", Verdict: invariant.Held, Judged: 1}}}
		for _, d := range plan.Deviations[:c.taken] {
			o.History.Append(history.Event{Kind: history.Deviated, Value: d.String()})
		}
		for _, id := range c.broke {
			o.Results = append(o.Results, invariant.Result{Invariant: id, Verdict: invariant.Violated, Violation: &invariant.Violation{Invariant: id}})
		}
		if word, reason := o.Reproduces(c.before); word != c.want || !strings.Contains(reason, c.says) {
			t.Errorf("%s: %s: %s; want %s: %s", name, word, reason, c.want, c.says)
		}
	}
}
