package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim/steps"
)

// Tells returns the process that owns the cache, and the event that the delivery being scheduled
// brings it.
func (s *stream) Tells() (process, of string) {
	behind := s.p.cache.view.Behind(s.kind)
	if s.table == nil || len(behind) == 0 {
		return s.p.actor.name, ""
	}
	change := behind[min(s.expected, len(behind)-1)]
	return s.p.actor.name, objects.Delivery(s.table, meta(change.Old), meta(change.New))
}

// Told is a plan of the simulator whose deviations are named by deeds.
type Told struct {
	// Plan is the plan with its deviations named by deeds, in the order in which their steps are
	// scheduled.
	Plan *scenarios.Plan
	// Untold explains why certain deviations, in the simulator's words, have no name by deed.
	Untold []string
	// Outcome is the outcome of the plan in the simulator.
	Outcome *play.Outcome
}

// Deeds plays a plan and names its deviations by deeds.
func (s *Simulator) Deeds(ctx context.Context, plan *scenarios.Plan) (*Told, error) {
	t := &Told{}
	wanted := make(map[string]scenarios.Deviation)
	for _, d := range plan.Deviations {
		wanted[cmp.Or(d.Deed, d.Step)] = d
	}
	var deviations []scenarios.Deviation
	untold := func(d scenarios.Deviation, why string) {
		k := slices.IndexFunc(plan.Deviations, func(other scenarios.Deviation) bool { return other.Step == d.Step })
		t.Untold = append(t.Untold, fmt.Sprintf("step %d of %d (%s): %s", k+1, len(plan.Deviations), d, why))
	}
	var err error
	t.Outcome, err = s.playDeeds(ctx, plan, func(step steps.Step, deed scenarios.Deed, told bool) (scenarios.Deviation, bool) {
		called := deed.String()
		d, deviates := wanted[called]
		if !deviates {
			called = step.Name()
			d, deviates = wanted[called]
		}
		switch {
		case !deviates:
		case d.After != "":
			untold(d, "the lab's steps come when they come, and none waits for another")
		case !told && step.Class == steps.ClassDeliver:
			untold(d, "what it tells of is no event")
		case !told:
			untold(d, hidden(step.Class))
		default:
			deviations = append(deviations, scenarios.Deviation{Step: deed.String(), Delay: d.Delay, Fault: d.Fault})
		}
		delete(wanted, called)
		return scenarios.Deviation{}, false
	})
	if err != nil {
		return nil, err
	}
	for _, d := range plan.Deviations {
		if _, never := wanted[cmp.Or(d.Deed, d.Step)]; never {
			untold(d, "the simulator comes to no such step")
		}
	}
	told := *plan
	told.Deviations, told.Digest = deviations, ""
	t.Plan = &told
	return t, nil
}

// playDeeds plays a plan and shows watch every step with its deed before it is scheduled. Told is
// false if the step is not seen outside the process. See [Backend.Watch].
func (s *Simulator) playDeeds(ctx context.Context, plan *scenarios.Plan,
	watch func(step steps.Step, deed scenarios.Deed, told bool) (scenarios.Deviation, bool)) (*play.Outcome, error) {
	var count scenarios.DeedCount
	backend := s.Backend()
	backend.Watch = func(step steps.Step) (scenarios.Deviation, bool) {
		deed, told := step.Deed()
		return watch(step, count.Next(deed.Actor, deed.Does, step.Effect), told)
	}
	outcome, err := play.Run(ctx, plan, backend, nil)
	if err == nil {
		err = outcome.Err
	}
	return outcome, err
}

// hidden explains why a step can't be seen from outside.
func hidden(class steps.Class) string {
	switch class {
	case steps.ClassWork, steps.ClassTimer:
		return "it happens within the process"
	case steps.ClassTimeout:
		return "it is the client's own patience"
	case steps.ClassLease:
		return "the lab runs one process of each controller"
	}
	return "it is not a controller's, but the world's: " + string(class)
}
