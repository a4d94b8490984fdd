package play

import (
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/leads"
)

// Side is the run as it is compared with another one.
func (o *Outcome) Side() leads.Side {
	roles := params(o.Plan, o.Timings).Roles
	return leads.Side{Events: o.History.Events(), Tested: roles.UnderTest}
}

// Excuses are the guarantees that a run would have violated but for what held somebody up. The
// first call judges the run again, some times for each of them.
func (o *Outcome) Excuses() []invariant.Excuse {
	if o.excuses == nil {
		return nil // it was not played
	}
	return o.excuses()
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
