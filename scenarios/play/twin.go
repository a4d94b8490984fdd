package play

import (
	"slices"

	"github.com/fencelab/fencelab/scenarios/invariant"
)

// Excused are the guarantees that a run would have violated if nothing had held anybody up,
// and hasn't.
func (o *Outcome) Excused() ([]invariant.Result, error) {
	chosen, err := chosen(o.Plan)
	if err != nil {
		return nil, err
	}
	var excused []invariant.Result
	for _, r := range invariant.JudgeStrictly(o.History, chosen, params(o.Plan, o.Timings)) {
		lenient := slices.ContainsFunc(o.Results, func(mine invariant.Result) bool {
			return mine.Invariant == r.Invariant && mine.Verdict != invariant.Violated
		})
		if r.Verdict == invariant.Violated && lenient {
			excused = append(excused, r)
		}
	}
	return excused, nil
}

// Twin is a run with fencelab's own controllers in the parts of those of another run, in a
// schedule that is as much like that one's as there can be.
type Twin struct {
	Outcome *Outcome
	// Instead are the controllers of the other run, and who is in the place of each.
	Instead map[string]string
	// Missed are the deviations of the other run at whose deeds this one never came.
	Missed []string
}
