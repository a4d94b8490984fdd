package sim

import (
	"context"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim/steps"
)

// Twin plays a plan with fencelab's own controllers in its parts. What deviates in it is named
// by what is done, since they take other steps.
func (s *Simulator) Twin(ctx context.Context, plan *scenarios.Plan) (*play.Twin, error) {
	other, instead, err := plan.Twin()
	if err != nil {
		return nil, err
	}
	deviations, err := s.Named(ctx, plan, instead)
	if err != nil {
		return nil, err
	}
	t := &play.Twin{Instead: instead}
	t.Outcome, t.Missed, err = s.PlayNamed(ctx, other, deviations)
	return t, err
}

// Named is a deviation whose step is named by its deed, or as the simulator names it if
// nobody outside of the process sees what is done, and what it was in its plan.
type Named struct {
	scenarios.Deviation
	Was string
}

// Named names the steps that deviate in a plan by their deeds, whose actors have other names. It
// has to play the plan for that.
func (s *Simulator) Named(ctx context.Context, plan *scenarios.Plan, names map[string]string) (named []Named, err error) {
	if len(plan.Deviations) == 0 {
		return nil, nil
	}
	wanted := make(map[string]scenarios.Deviation)
	for _, d := range plan.Deviations {
		wanted[d.Step] = d
	}
	_, err = s.playDeeds(ctx, plan, func(step steps.Step, deed scenarios.Deed, told bool) (scenarios.Deviation, bool) {
		d, deviates := wanted[step.Name()]
		if !deviates {
			return scenarios.Deviation{}, false
		}
		n := Named{Deviation: d, Was: d.String()}
		if told {
			deed.Actor = scenarios.Renamed(deed.Actor, names)
			if verb, process, starts := strings.Cut(deed.Does, " Process/"); starts {
				deed.Does = verb + " Process/" + scenarios.Renamed(process, names)
			}
			n.Step = deed.String()
		} else if actor, rest, ok := strings.Cut(d.Step, "/"); ok {
			process, stream := cutStream(actor)
			n.Step = scenarios.Renamed(process, names) + stream + "/" + rest
		}
		named = append(named, n)
		return scenarios.Deviation{}, false
	})
	return named, err
}

// cutStream parts the name of an actor into that of its process and that of its stream of a
// kind, which begins with a capital letter: remediation.Node.
func cutStream(actor string) (process, stream string) {
	i := strings.LastIndexByte(actor, '.')
	if i < 0 || i+1 == len(actor) || actor[i+1] < 'A' || actor[i+1] > 'Z' {
		return actor, ""
	}
	return actor[:i], actor[i:]
}

// PlayNamed plays a plan that has no deviations with some that are named by deeds. Missed are
// those at whose deeds it never came, or with which such a thing can't go wrong.
func (s *Simulator) PlayNamed(ctx context.Context, plan *scenarios.Plan, deviations []Named) (outcome *play.Outcome, missed []string, err error) {
	wanted := make(map[string]Named)
	for _, d := range deviations {
		wanted[d.Step] = d
	}
	outcome, err = s.playDeeds(ctx, plan, func(step steps.Step, deed scenarios.Deed, told bool) (scenarios.Deviation, bool) {
		name := step.Name()
		if told {
			name = deed.String()
		}
		n, deviates := wanted[name]
		if !deviates || n.Fault != "" && !slices.Contains(step.Faults(), n.Fault) {
			return scenarios.Deviation{}, false
		}
		delete(wanted, name)
		d := n.Deviation
		d.Step = step.Name()
		return d, true
	})
	for _, d := range deviations {
		if _, left := wanted[d.Step]; left {
			missed = append(missed, d.Was)
		}
	}
	return outcome, missed, err
}
