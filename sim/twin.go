package sim

import (
	"context"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios"
)

// Twin plays a plan with fencelab's own controllers in its parts. What deviates in it is named
// by what is done, since they take other steps.
func (s *Simulator) Twin(ctx context.Context, plan *scenarios.Plan) (*scenarios.Twin, error) {
	other, instead, err := plan.Twin()
	if err != nil {
		return nil, err
	}
	deviations, _, err := s.Named(ctx, plan, instead)
	if err != nil {
		return nil, err
	}
	t := &scenarios.Twin{Instead: instead}
	t.Outcome, t.Missed, err = s.PlayNamed(ctx, other, deviations)
	return t, err
}

// Named is a deviation whose step is named by its deed, or as the simulator names it if
// nobody outside of the process sees what is done, and what it was in its plan.
type Named struct {
	scenarios.Deviation
	Was string
}

// Named plays a plan, and names the steps that deviate in it by their deeds, whose actors
// have other names.
func (s *Simulator) Named(ctx context.Context, plan *scenarios.Plan, names map[string]string) ([]Named, *scenarios.Outcome, error) {
	wanted := make(map[string]scenarios.Deviation)
	for _, d := range plan.Deviations {
		wanted[d.Step] = d
	}
	var named []Named
	var count scenarios.DeedCount
	backend := s.Backend()
	backend.Evidence = true
	backend.Watch = func(step Step) (scenarios.Deviation, bool) {
		deed, told := step.Deed()
		deed = count.Next(deed.Actor, deed.Does, step.Effect)
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
			process, stream, _ := cutStream(actor)
			n.Step = scenarios.Renamed(process, names) + stream + "/" + rest
		}
		named = append(named, n)
		return scenarios.Deviation{}, false
	}
	outcome, err := scenarios.Run(ctx, plan, backend, nil)
	if err == nil {
		err = outcome.Err
	}
	return named, outcome, err
}

// cutStream parts the name of an actor into that of its process and that of its stream of a
// kind, which begins with a capital letter: remediation.Node.
func cutStream(actor string) (process, stream string, ok bool) {
	i := strings.LastIndexByte(actor, '.')
	if i < 0 || i+1 == len(actor) || actor[i+1] < 'A' || actor[i+1] > 'Z' {
		return actor, "", false
	}
	return actor[:i], actor[i:], true
}

// PlayNamed plays a plan that has no deviations with some that are named by deeds. Missed are
// those at whose deeds it never came, or with which such a thing can't go wrong.
func (s *Simulator) PlayNamed(ctx context.Context, plan *scenarios.Plan, deviations []Named) (outcome *scenarios.Outcome, missed []string, err error) {
	wanted := make(map[string]Named)
	for _, d := range deviations {
		wanted[d.Step] = d
	}
	var count scenarios.DeedCount
	backend := s.Backend()
	backend.Evidence = true
	backend.Watch = func(step Step) (scenarios.Deviation, bool) {
		deed, told := step.Deed()
		deed = count.Next(deed.Actor, deed.Does, step.Effect)
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
	}
	outcome, err = scenarios.Run(ctx, plan, backend, nil)
	if err == nil {
		err = outcome.Err
	}
	for _, d := range deviations {
		if _, left := wanted[d.Step]; left {
			missed = append(missed, d.Was)
		}
	}
	return outcome, missed, err
}
