package search

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim"
)

// Explore searches the schedules of a scenario, reports its findings and returns the exit code.
// Workers makes the pool that plays them. When the context ends, the findings so far count.
func Explore(ctx context.Context, session *campaign.Session, simulator *sim.Simulator, scenario *scenarios.Scenario, plan *scenarios.Plan,
	o Options, workers func(*campaign.Search) (campaign.Pool, error)) (code int, err error) {
	show := func(ctx context.Context, plan *scenarios.Plan) (int, error) {
		return session.Single(ctx, plan, simulator.Evident())
	}
	s, benign, err := New(ctx, simulator, scenario, plan, o)
	var coded *exit.Error
	if errors.As(err, &coded) {
		return 0, err
	}
	if err != nil {
		return 0, exit.Coded(exit.Internal, err)
	}
	if benign.Meets() != "" || plan.Spec.Expect.Violated != "" || benign.Err != nil {
		// Nothing to search for: the benign schedule breaks it already. It is
		// played again, for its evidence.
		if code, err = show(ctx, plan); err == nil && benign.Meets() != "" {
			session.To.Say("no other schedule was tried: the default one does not come out as expected\n")
		}
		return code, err
	}
	if covering, ok := s.Strategy.(campaign.Covering); ok {
		if err := forecast(session, simulator, s, covering, o); err != nil {
			return 0, exit.Coded(exit.Internal, err)
		}
	}
	pool, err := workers(s)
	if err == nil && o.Resume != "" {
		pool, err = campaign.Resume(pool, o.Resume, plan, benign.History.Digest())
	}
	if err != nil {
		return 0, exit.Coded(exit.Internal, err)
	}
	began := session.Time()
	if o.For > 0 {
		s.Over = func() bool { return session.Time().Sub(began) >= o.For }
	}
	tally, err := session.Search(ctx, s, pool)
	if err != nil {
		return 0, err
	}
	if s.Took > 0 {
		session.To.Say("  %.0f schedules/s\n", float64(tally.Tried)/s.Took.Seconds())
	}
	code = play.CodeOfVerdict(tally.Verdict(s.Total))
	if r, ok := s.Strategy.(*reach); ok && r.by == nil {
		code = exit.Worse(code, exit.Unknown)
	} else if ok {
		session.To.Print("  it came about first in schedule %d: %v\n", r.by.Number+1, r.by.Deviations)
	}
	if err := compare(ctx, session, simulator, s, benign); err != nil {
		return 0, err
	}
	// The findings of an interrupted search are still shown.
	ctx = context.WithoutCancel(ctx)
	err = session.Failures(s, tally, func(plan *scenarios.Plan) error {
		shown, err := show(ctx, plan)
		code = exit.Worse(code, shown)
		return err
	})
	return code, err
}

// compared is how many schedules of a search are compared with a reference, beside the default one.
const compared = 24

// compare seeks leads in some schedules of a search, spread over all.
func compare(ctx context.Context, session *campaign.Session, simulator *sim.Simulator, s *campaign.Search, benign *play.Outcome) error {
	if session.Leads == nil {
		return nil
	}
	if err := session.Compare(ctx, benign); err != nil {
		return err
	}
	var some []campaign.Schedule
	switch strategy := s.Strategy.(type) {
	case campaign.Covering:
		for _, d := range strategy.Sample(compared) {
			some = append(some, campaign.Schedule{Number: 1, Deviations: []scenarios.Deviation{d}})
		}
	case campaign.Listed:
		for i := range min(compared, len(strategy.Order)) {
			some = append(some, campaign.Schedule{Number: 1, Deviations: strategy.Order[i*len(strategy.Order)/compared:][:1]})
		}
	default:
		for i := range min(compared, s.Total) {
			some = append(some, campaign.Schedule{Number: i, Seed: uint64(i) + 1, Draw: true})
		}
	}
	player := NewPlayer(simulator, s.Story)
	for _, schedule := range some {
		o, played, err := player.Play(schedule)
		if err != nil {
			return exit.Coded(exit.Internal, err)
		}
		o.Plan, o.World = s.Story.PlanOf(played), session.World
		if err := session.Compare(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// Sampled is how many schedules are played to foretell how long a search takes.
const Sampled = 12

// Samples are schedules of a search with single deviations, spread over all.
func Samples(of campaign.Covering, n int) (some []campaign.Schedule) {
	for _, d := range of.Sample(n) {
		some = append(some, campaign.Schedule{Number: 1, Deviations: []scenarios.Deviation{d}})
	}
	return some
}

// stepsPerEvent is how many steps of a schedule take about as long as one of its events, which is
// recorded, judged and kept.
const stepsPerEvent = 4

// Each plays some schedules, which count for nothing, and returns what one takes: how long by a
// clock, and how much work it is on any machine, in events.
func (p *Player) Each(some []campaign.Schedule, now func() time.Time) (took time.Duration, work int, err error) {
	began, n, events := now(), max(1, len(some)), 0
	p.scheduled = new(int)
	for _, schedule := range some {
		o, _, err := p.Play(schedule)
		if err != nil {
			return 0, 0, err
		}
		events += o.History.Len()
	}
	work = (events + *p.scheduled/stepsPerEvent) / n
	p.scheduled = nil
	return now().Sub(began) / time.Duration(n), work, nil
}

// forecast says how many schedules a search has and about how long they take one worker.
func forecast(session *campaign.Session, simulator *sim.Simulator, s *campaign.Search, of campaign.Covering, o Options) error {
	var parts []string
	all := 0
	for _, share := range of.Shares() {
		switch all += share.Of + share.About; {
		case share.Of > 0:
			parts = append(parts, fmt.Sprintf("%d %s", share.Of, share.Name))
		case share.About > 0:
			parts = append(parts, fmt.Sprintf("%d ± %d %s", share.About, share.Deviation, share.Name))
		}
	}
	each, _, err := NewPlayer(simulator, s.Story).Each(Samples(of, Sampled), session.Time)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("  forecast: %s around the default schedule", strings.Join(parts, ", "))
	if each > 0 {
		text += fmt.Sprintf(", about %s for one worker", (time.Duration(all) * each).Round(100*time.Millisecond))
	}
	switch {
	case o.For > 0:
		text += fmt.Sprintf("; %s are given", o.For)
	case s.Total != all && s.Total != campaign.Endless:
		text += fmt.Sprintf("; %s are played", phrase.Count(s.Total, "schedule"))
	}
	session.To.Say("%s\n", text)
	return nil
}
