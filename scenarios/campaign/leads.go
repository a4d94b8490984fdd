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
	reference, err := s.Leads.Reference(ctx, o.Plan)
	if err != nil {
		return exit.Coded(exit.Internal, err)
	}
	if reference == nil {
		s.Leads.all.Apart++
		return nil
	}
	var where string
	for _, g := range s.Leads.all.Add(o.Plan.Metadata.Name, leads.Compare(o.Side(), reference.Side())) {
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
