package play

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// Reproduction says how another world's run compares with the simulator's run of the same plan.
type Reproduction string

// The reproductions.
const (
	// Reproduced: a guarantee was broken that was broken in the simulator, too.
	Reproduced Reproduction = "reproduced"
	// NotReproduced: all steps were taken as the plan says, and none of those guarantees was
	// broken.
	NotReproduced Reproduction = "not reproduced"
	// Diverged: a step of the plan never came, or this world can't take it so.
	Diverged Reproduction = "diverged"
)

// Broke are the guarantees that were violated.
func (o *Outcome) Broke() []string {
	var broke []string
	for _, r := range o.Results {
		if r.Verdict == invariant.Violated {
			broke = append(broke, r.Invariant)
		}
	}
	return broke
}

// Reproduces compares a run of a plan with the guarantees that the plan broke elsewhere. The text
// is a sentence without its end.
func (o *Outcome) Reproduces(elsewhere []string) (Reproduction, string) {
	broke := o.Broke()
	for _, id := range elsewhere {
		if slices.Contains(broke, id) {
			return Reproduced, id + " is broken, as in the simulator"
		}
	}
	if k, step := o.missed(); k > 0 {
		return Diverged, fmt.Sprintf("at step %d of %d: %s never came", k, len(o.Plan.Deviations), step)
	}
	verdict, reason := o.Verdict()
	switch {
	case verdict == invariant.Violated:
		return NotReproduced, fmt.Sprintf("broken is %s, and in the simulator %s", strings.Join(broke, ", "), cmp.Or(strings.Join(elsewhere, ", "), "nothing"))
	case verdict.Undecided():
		return NotReproduced, "there is no verdict: " + reason
	case len(elsewhere) == 0:
		return NotReproduced, "nothing is broken, nor is it in the simulator"
	}
	return NotReproduced, fmt.Sprintf("every step was taken, and nothing is broken; in the simulator %s is", strings.Join(elsewhere, ", "))
}

// missed is the first deviation of the plan, counted from 1, that was never taken; 0 if all were.
func (o *Outcome) missed() (k int, deviation string) {
	for i, d := range o.Plan.Deviations {
		taken := slices.ContainsFunc(o.History.Events(), func(e history.Event) bool { return e.Kind == history.Deviated && e.Value == d.String() })
		if !taken {
			return i + 1, d.String()
		}
	}
	return 0, ""
}
