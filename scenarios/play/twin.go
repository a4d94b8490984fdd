package play

import "github.com/fencelab/fencelab/scenarios/invariant"

// Excuses are the guarantees that a run would have violated but for what held somebody up.
func (o *Outcome) Excuses() ([]invariant.Excuse, error) {
	chosen, err := chosen(o.Plan)
	if err != nil {
		return nil, err
	}
	return invariant.Excuses(o.History, chosen, params(o.Plan, o.Timings), o.Results), nil
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
