// Package campaign plays many runs and says what came of them: single plans and their nearest
// neighbours, searches of schedules, and suites of scenarios. Begin with [Session] and
// [Search.Run]. What comes of them goes to a Sink; nothing here prints.
package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/leads"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/version"
)

// Session plays plans in a world, one after the other, and hands over what came of each.
type Session struct {
	// World is the world's name in reports.
	World string
	// To takes over what came of the runs.
	To Sink
	// Now is the wall clock, which measures how long a run took. Nil measures nothing.
	Now func() time.Time
	// Unfit says why a scenario is not played beside what it says itself, or nothing. It may
	// be nil.
	Unfit func(*scenarios.Scenario) string
	// Bare makes a world that keeps no evidence. A run whose evidence is not looked at is played in
	// one; nil has every run played with its evidence.
	Bare func() play.Backend
	// Early, which may be nil, has the plans of a suite played ahead of their turn, by PlayEarly.
	// It returns a function that waits for the result of the next one.
	Early func(ctx context.Context, plans []*scenarios.Plan) (take func() Played)
	// Another makes a world in which a variant of a run's plan is played, to be shown beside the
	// run; nil in the lab, where no two runs are alike.
	Another func() play.Backend
	// Twin plays a plan again with fencelab's own controllers. Nil plays none.
	Twin func(context.Context, *scenarios.Plan) (*play.Twin, error)

	// Leads compares runs with those of a reference. Nil compares none.
	Leads *Leads

	// AsFound says that the schedules of failures are not shrunk.
	AsFound bool

	// entry is the ledger's entry for the running scenario; nil outside of a suite.
	entry *Entry
	// early waits for the result of the running scenario; nil unless it was played early.
	early func() Played
}

// Played is the result of a plan that was played before its turn.
type Played struct {
	Outcome *play.Outcome
	Took    time.Duration
	Err     error
}

// PlayEarly plays a plan in one of two worlds: a bare one if that suffices, see [Session.Bare].
// Several goroutines may call it, each with worlds of its own.
func (s *Session) PlayEarly(ctx context.Context, plan *scenarios.Plan, bare, evident func() play.Backend) Played {
	began := s.Time()
	outcome, err := s.single(ctx, plan, bare, evident)
	return Played{outcome, s.Time().Sub(began), err}
}

// Sink takes over what comes of runs: a terminal and a directory, for one.
type Sink interface {
	// Listen returns a function that receives the events of a run as they happen. Both may be nil.
	Listen() func(history.Event)
	// Outcome takes over what came of a run that took so long, and returns how it was shown.
	// The error is that it could not be saved.
	Outcome(o *play.Outcome, took time.Duration) (*Shown, error)
	// Keeps reports whether runs that come out as expected are looked at, too.
	Keeps() bool
	// Beside takes over a run together with its twin.
	Beside(o *play.Outcome, twin *play.Twin)
	// Lead takes over a run with a new lead, and its reference, and returns where it can be read.
	Lead(o, reference *play.Outcome) (where string, err error)
	// Leads takes over the leads of all runs: those that are not accepted, and how many are.
	Leads(all *leads.All, fresh []*leads.Group, known int)
	// Progress returns the progress of a search of total schedules.
	Progress(name string, total int) Progress
	// Searched takes over what came of a search in all.
	Searched(s *Search, t Tally)
	// Print takes over what there is to say among results, and Say what there is to say beside
	// them.
	Print(format string, args ...any)
	Say(format string, args ...any)
}

// Progress shows how far a search has come.
type Progress interface {
	// At is the tally so far.
	At(Tally)
	// Explaining gives the number of schedules tried to explain a failure, and their limit.
	Explaining(tried, most int)
	// Done takes the progress back.
	Done()
}

// Time returns the wall clock's time, or zero without a clock.
func (s *Session) Time() time.Time {
	if s.Now == nil {
		return time.Time{}
	}
	return s.Now()
}

// Play plays a plan. The error has an exit code.
func (s *Session) Play(ctx context.Context, plan *scenarios.Plan, backend play.Backend) (*play.Outcome, error) {
	return s.play(ctx, plan, backend, s.To.Listen())
}

func (s *Session) play(ctx context.Context, plan *scenarios.Plan, backend play.Backend, listen func(history.Event)) (*play.Outcome, error) {
	outcome, err := play.Run(ctx, plan, backend, listen)
	if err != nil {
		switch name, code := plan.Metadata.Name, play.CodeOfUnplayed(err); {
		case code == exit.Environment:
			return nil, exit.Coded(code, err)
		case code == exit.Internal && ctx.Err() != nil:
			return nil, exit.Coded(exit.Unknown, fmt.Errorf("%s: interrupted", name))
		default:
			return nil, exit.Coded(code, fmt.Errorf("%s: %w", name, err))
		}
	}
	outcome.World, outcome.Version = s.World, version.Built()
	return outcome, nil
}

// Single plays a plan, hands over what came of it and returns the exit code.
func (s *Session) Single(ctx context.Context, plan *scenarios.Plan, backend play.Backend) (code int, err error) {
	take := s.early
	if take == nil {
		take = func() Played {
			return s.PlayEarly(ctx, plan, s.Bare, func() play.Backend { return backend })
		}
	}
	played := take()
	outcome, err := played.Outcome, played.Err
	if err == nil && outcome == nil {
		err = exit.Coded(exit.Unknown, fmt.Errorf("%s: interrupted", plan.Metadata.Name))
	}
	if err != nil {
		return 0, err
	}
	code = play.CodeOfOutcome(outcome)
	seen := outcome.Meets() != "" || s.To.Keeps()
	if verdict, _ := outcome.Verdict(); seen && verdict == invariant.Violated && s.Another != nil {
		outcome.Nearest = s.nearest(ctx, plan)
	}
	shown, failed := s.To.Outcome(outcome, played.Took)
	s.entry.ran(outcome, shown)
	if outcome.Meets() != "" {
		err = s.Beside(ctx, outcome)
	} else {
		err = s.Compare(ctx, outcome)
	}
	if err != nil {
		return 0, err
	}
	if failed != nil {
		s.To.Say("fencelab: %v\n", failed)
		if code == exit.Held {
			code = exit.Internal
		}
	}
	return code, nil
}

// single plays a plan, with its evidence only if that is looked at.
func (s *Session) single(ctx context.Context, plan *scenarios.Plan, bare, evident func() play.Backend) (*play.Outcome, error) {
	if bare != nil && !s.To.Keeps() {
		if outcome, err := s.Play(ctx, plan, bare()); err != nil || outcome.Meets() == "" {
			return outcome, err
		}
	}
	return s.Play(ctx, plan, evident())
}

// nearestTried is the number of deviations to leave out, one by one, before all are.
const nearestTried = 8

// nearest returns a run of the same story that held and whose schedule is near to the
// plan's: without one of its deviations, or without any.
func (s *Session) nearest(ctx context.Context, plan *scenarios.Plan) *play.Outcome {
	var fewer [][]scenarios.Deviation
	for i := range plan.Deviations[:min(nearestTried, len(plan.Deviations))] {
		fewer = append(fewer, slices.Delete(slices.Clone(plan.Deviations), i, i+1))
	}
	if len(plan.Deviations) > 1 {
		fewer = append(fewer, nil)
	}
	for _, deviations := range fewer {
		near, err := s.play(ctx, plan.With(deviations), s.Another(), nil)
		if err != nil {
			return nil // it is only for comparison
		}
		if verdict, _ := near.VerdictOfSchedule(); verdict == invariant.Held {
			return near
		}
	}
	return nil
}

// Beside plays the twin of a run, if Twin is set, and hands over both. The error has
// an exit code.
func (s *Session) Beside(ctx context.Context, o *play.Outcome) error {
	if s.Twin == nil {
		return nil
	}
	twin, err := s.Twin(ctx, o.Plan)
	if err != nil {
		return exit.Coded(exit.Invalid, err)
	}
	s.To.Beside(o, twin)
	return nil
}

// Pool is workers that end when they are closed, with what went wrong with them.
type Pool interface {
	Workers
	Close() error
}

// Search has the schedules of a search played by a pool, which it closes, and hands over what
// came of them. The error has an exit code.
func (s *Session) Search(ctx context.Context, search *Search, pool Pool) (Tally, error) {
	progress, began := s.To.Progress(search.Story.Plan.Metadata.Name, search.Total), s.Time()
	tally := search.Run(pool, progress.At)
	search.Took = s.Time().Sub(began)
	var err error
	if !s.AsFound {
		search.Explaining = progress.Explaining
		err = search.Explain(ctx, pool, &tally)
	}
	err = errors.Join(err, pool.Close())
	progress.Done()
	if err != nil {
		return tally, exit.Coded(exit.Internal, err)
	}
	if s.entry != nil {
		s.entry.Search = search.searched(tally)
	}
	s.To.Searched(search, tally)
	return tally, nil
}

// failuresShown bounds how many kinds of failures are shown.
const failuresShown = 10

// Failures shows the kinds of failures of a search. Show plays the first schedule of a kind
// alone and hands over what came of it.
func (s *Session) Failures(search *Search, t Tally, show func(*scenarios.Plan) error) error {
	failures := t.Failures()
	for i, f := range failures {
		if i == failuresShown {
			s.To.Print("\nand %s of failure\n", phrase.Count(len(failures)-i, "more kind"))
			break
		}
		when := "" // where another group broke the same
		if slices.ContainsFunc(failures, func(g Failure) bool { return g.Signature == f.Signature && !f.alike(g) }) && f.Cause != "" {
			when = ", in which " + f.Cause
		}
		s.To.Print("\n%s like this one, schedule %d%s:\n", phrase.Count(f.Count, "schedule"), f.Schedule.Number+1, when)
		if f.Divides != "" && f.Schedule.Shrunk == nil {
			s.To.Print("  %s\n", f.Divides)
		}
		if err := show(search.Story.PlanOf(f.Schedule)); err != nil {
			return err
		}
	}
	return nil
}
