package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim/steps"
)

// Twin plays a plan with fencelab's own controllers in place of the others. Because these take
// other steps, it names deviations by deeds.
func (s *Simulator) Twin(ctx context.Context, plan *scenarios.Plan) (*play.Twin, error) {
	other, instead, err := plan.Twin()
	if err != nil {
		return nil, err
	}
	return s.Beside(ctx, plan, other, instead)
}

// Reference plays a plan with fencelab's own controllers. It returns nil if the plan has no twin,
// or if its twin did not hold in the same schedule.
func (s *Simulator) Reference(ctx context.Context, plan *scenarios.Plan) (*play.Outcome, error) {
	other, instead, err := plan.Twin()
	if err != nil {
		return nil, nil
	}
	return s.ReferenceAs(ctx, plan, other, instead)
}

// ReferenceAs is Reference with the twin that Beside is given.
func (s *Simulator) ReferenceAs(ctx context.Context, plan, other *scenarios.Plan, instead map[string]string) (*play.Outcome, error) {
	twin, err := s.Beside(ctx, plan, other, instead)
	if err != nil {
		return nil, err
	}
	if verdict, _ := twin.Outcome.VerdictOfSchedule(); verdict != invariant.Held || len(twin.Missed) > 0 {
		return nil, nil
	}
	return twin.Outcome, nil
}

// Retold plays the story of a plan with each change that must not matter to it.
func (s *Simulator) Retold(ctx context.Context, plan *scenarios.Plan) (all []play.Retold, err error) {
	tellings, err := plan.Retold(func(c *scenarios.Controller) (json.RawMessage, error) {
		chosen, err := s.set.Select(objects.Registered(s.set, c.Name), c.Settings, nil)
		if err != nil {
			return nil, err
		}
		return json.Marshal(chosen.Settings)
	})
	for _, t := range tellings {
		o, err := play.Run(ctx, t.Plan, s.Backend(), nil)
		if err != nil {
			return nil, fmt.Errorf("tell %s again, %s: %w", plan.Metadata.Name, t.Told, err)
		}
		all = append(all, play.Retold{Retelling: t, Outcome: o})
	}
	return all, err
}

// Beside plays another plan in the schedule of a plan, whose controllers have the names that
// instead gives them.
func (s *Simulator) Beside(ctx context.Context, plan, other *scenarios.Plan, instead map[string]string) (*play.Twin, error) {
	deviations, err := s.Named(ctx, plan, instead)
	if err != nil {
		return nil, err
	}
	t := &play.Twin{Instead: instead}
	t.Outcome, t.Missed, err = s.PlayNamed(ctx, other, deviations)
	return t, err
}

// Named is a deviation whose step is named by its deed, or by the simulator's own name if the step
// is not seen outside the process. Was is the deviation as the plan words it.
type Named struct {
	scenarios.Deviation
	Was string
}

// Named names the deviating steps of a plan by their deeds, with the actors renamed. To do so, it
// plays the plan.
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
		n := Named{Deviation: d.At(d.Step), Was: d.String()}
		n.AfterDeed = ""
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
		if actor, rest, ok := strings.Cut(d.After, "/"); ok {
			process, stream := cutStream(actor)
			n.After = scenarios.Renamed(process, names) + stream + "/" + rest
		}
		named = append(named, n)
		return scenarios.Deviation{}, false
	})
	return named, err
}

// cutStream splits an actor's name into its process and its stream of a kind, which begins with a
// capital letter: remediation.Node.
func cutStream(actor string) (process, stream string) {
	i := strings.LastIndexByte(actor, '.')
	if i < 0 || i+1 == len(actor) || actor[i+1] < 'A' || actor[i+1] > 'Z' {
		return actor, ""
	}
	return actor[:i], actor[i:]
}

// PlayNamed plays a plan without deviations, and applies deviations that are named by deeds.
// Missed lists the deviations whose deeds never happened, or can't fail in that way.
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
