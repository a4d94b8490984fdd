package campaign

import (
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// Story holds all that a worker needs to know to play the schedules of a search. It is plain data.
type Story struct {
	Plan *scenarios.Plan `json:"plan"`
	// Spans are the ranges that the scenario gives for the steps' after.
	Spans []scenarios.Span `json:"spans,omitempty"`
	// Cover says that the strategy learns from what schedules reach.
	Cover bool `json:"cover,omitempty"`
}

const (
	// Once nothing is missing any more, every patient-th schedule goes on for as long as a
	// single run does; the others go on for brief.
	patient = 8
	brief   = 15 * time.Second
)

// PlanOf is the plan of a schedule, with those of its deviations that are known.
func (s *Story) PlanOf(schedule Schedule) *scenarios.Plan {
	plan := *s.Plan
	if schedule.Plan != nil {
		plan = *schedule.Plan
	}
	if len(s.Spans) > 0 && schedule.Seed != 0 {
		plan.Redraw(s.Spans, schedule.Seed)
	}
	if quiet := &plan.Spec.Limits.Quiet; *quiet == 0 && schedule.Number%patient != 0 {
		*quiet = scenarios.Duration(brief)
	}
	planned := plan.With(schedule.Deviations)
	planned.Shrunk = schedule.Shrunk
	return planned
}

// Result is the outcome of one schedule, as plain data.
type Result struct {
	// Number is the schedule's, and Variant too.
	Number  int               `json:"number"`
	Variant int               `json:"variant,omitempty"`
	Verdict invariant.Verdict `json:"verdict"`
	// Idle says that a fault, a crash or a deviation had no effect.
	Idle bool `json:"idle,omitempty"`
	// Disordered says that an order did not come about, and Audited that steps were swapped which
	// are said to be independent.
	Disordered bool `json:"disordered,omitempty"`
	Audited    bool `json:"audited,omitempty"`
	// Limited says that the schedule ended while something was missing, and not at rest.
	Limited bool `json:"limited,omitempty"`
	// Bypassed says that the schedule led past a step of the story.
	Bypassed bool `json:"bypassed,omitempty"`
	// Rulings are how often each guarantee was put to the test.
	Rulings map[string]Rulings `json:"rulings,omitempty"`
	// Simulated is the virtual time that was played.
	Simulated time.Duration `json:"simulated"`
	// Invariant is the guarantee that was broken, if one was, and Broke are all that were:
	// one event can break several.
	Invariant string   `json:"invariant,omitempty"`
	Broke     []string `json:"broke,omitempty"`
	// Signature groups schedules that failed in the same way.
	Signature string `json:"signature,omitempty"`
	// Cause names the trouble of a schedule that broke a guarantee with a single deviation.
	Cause string `json:"cause,omitempty"`
	// Missing says that the guarantee was broken by what never came.
	Missing bool `json:"missing,omitempty"`
	// Drawn are the deviations that were drawn, recorded where a schedule didn't hold and where
	// the strategy learns.
	Drawn []scenarios.Deviation `json:"drawn,omitempty"`
	// Reached holds the points that the schedule covered, where the strategy learns.
	Reached Points `json:"reached,omitempty"`
	// Edges holds the edges that came about, likewise.
	Edges Points `json:"edges,omitempty"`
}
