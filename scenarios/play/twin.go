package play

import (
	"slices"

	"github.com/fencelab/fencelab/scenarios"
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

// Retold is a run of a story with something changed that must not matter.
type Retold struct {
	scenarios.Retelling
	Outcome *Outcome
}

// Leads are the differences of a run that held from its retelling: in what those under test do,
// unless others do it in their place. How often something is tried depends on moments that the
// story doesn't choose, and is none.
func (r *Retold) Leads(o *Outcome) []leads.Lead {
	verdict, reason := r.Outcome.VerdictOfSchedule()
	var found []leads.Lead
	if verdict != invariant.Held {
		found = []leads.Lead{{How: leads.Unlike, Deed: "verdict", Mine: string(invariant.Held), Reference: string(verdict) + ": " + reason}}
	} else {
		mine, told := o.Side(), r.Outcome.Side()
		told.Host, told.Pace = r.Host, r.Pace
		found = leads.Compare(mine, told)
		mine.Tested = func(string) bool { return true }
		told.Tested = mine.Tested
		anybody := leads.Compare(mine, told)
		found = slices.DeleteFunc(found, func(l leads.Lead) bool {
			return l.Recurs() || !slices.ContainsFunc(anybody, func(other leads.Lead) bool { return other.Name() == l.Name() && other.Host == l.Host })
		})
	}
	for i := range found {
		found[i].Told = r.Told
	}
	return found
}
