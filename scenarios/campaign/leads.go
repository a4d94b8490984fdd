package campaign

import (
	"context"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/leads"
	"github.com/fencelab/fencelab/scenarios/play"
)

// Leads compares each run that held with a reference.
type Leads struct {
	// Reference plays the schedule of a plan with other controllers, or finds what came of that
	// before. It returns nil if there is nothing to compare with.
	Reference func(context.Context, *scenarios.Plan) (*play.Outcome, error)
	// Retold, unless it is nil, stands in the place of Reference: it replays the story of a
	// plan, each time with something changed that must not matter.
	Retold func(context.Context, *scenarios.Plan) ([]play.Retold, error)
	// Accepted are the leads that are known.
	Accepted []leads.Accepted

	all leads.All
}

// Compare seeks leads in a run, unless it didn't hold: then there is a verdict to read. The error
// has an exit code.
func (s *Session) Compare(ctx context.Context, o *play.Outcome) error {
	if s.Leads == nil {
		return nil
	}
	if verdict, _ := o.VerdictOfSchedule(); verdict != invariant.Held {
		return nil
	}
	if s.Leads.Retold != nil {
		return s.compareRetold(ctx, o)
	}
	reference, err := s.Leads.Reference(ctx, o.Plan)
	if err != nil {
		return exit.Coded(exit.Internal, err)
	}
	if reference == nil {
		s.Leads.all.Apart++
		return nil
	}
	return s.add(o, reference, leads.Compare(o.Side(), reference.Side()))
}

// compareRetold compares a default schedule with each retelling of its story.
func (s *Session) compareRetold(ctx context.Context, o *play.Outcome) error {
	if len(o.Plan.Deviations) > 0 {
		s.Leads.all.Apart++
		return nil
	}
	told, err := s.Leads.Retold(ctx, o.Plan)
	if err != nil {
		return exit.Coded(exit.Internal, err)
	}
	for i := range told {
		if err := s.add(o, told[i].Outcome, told[i].Leads(o)); err != nil {
			return err
		}
	}
	return nil
}

// add adds the leads of a run, and saves it with its reference if one of them is new.
func (s *Session) add(o, reference *play.Outcome, found []leads.Lead) (err error) {
	var where string
	for _, g := range s.Leads.all.Add(o.Plan.Metadata.Name, found) {
		if where == "" {
			if where, err = s.To.Lead(o, reference); err != nil {
				return exit.Coded(exit.Internal, err)
			}
		}
		g.Where = where
	}
	return nil
}

// Led hands over the leads of all runs, and returns how many are not accepted.
func (s *Session) Led() int {
	if s.Leads == nil {
		return 0
	}
	fresh, known := s.Leads.all.Groups(s.Leads.Accepted)
	s.To.Leads(&s.Leads.all, fresh, known)
	return len(fresh)
}
