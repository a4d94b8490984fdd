package campaign

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// Suite runs scenarios one after the other, each with a plan of its own that is compiled
// from the ledger's seed, sums up, and keeps the ledger of them. One plays a plan and returns
// an exit code, or why the whole suite ends. The error has an exit code.
func (s *Session) Suite(ctx context.Context, ledger *Ledger, all []*scenarios.Scenario, one func(*scenarios.Scenario, *scenarios.Plan) (int, error)) error {
	ended := s.suite(ctx, ledger, all, one)
	s.entry = nil
	ledger.close(exit.Code(ended), s.Time().Sub(ledger.Began))
	return ended
}

// unfit says why a scenario is not played; empty if it is.
func (s *Session) unfit(scenario *scenarios.Scenario) string {
	if worlds := scenario.Spec.Worlds; len(worlds) > 0 && !slices.Contains(worlds, s.World) {
		return "it can be told in " + strings.Join(worlds, " and ") + " only"
	}
	if s.Unfit == nil {
		return ""
	}
	return s.Unfit(scenario)
}

// suite runs the scenarios, and keeps a ledger of them.
func (s *Session) suite(ctx context.Context, ledger *Ledger, all []*scenarios.Scenario, one func(*scenarios.Scenario, *scenarios.Plan) (int, error)) error {
	ran, unexpected, worst := 0, 0, exit.Held
	plans, failed := make([]*scenarios.Plan, len(all)), make([]error, len(all))
	var played []*scenarios.Plan
	for i, scenario := range all {
		if s.unfit(scenario) != "" {
			continue
		}
		if plans[i], failed[i] = scenarios.Compile(scenario, ledger.Seed); failed[i] == nil {
			played = append(played, plans[i])
		}
	}
	if s.Early != nil {
		early, stop := context.WithCancel(ctx)
		defer stop()
		s.early = s.Early(early, played)
		defer func() { s.early = nil }()
	}
	var ended error
	for i, scenario := range all {
		s.entry = ledger.begin(scenario)
		if ctx.Err() != nil || ended != nil {
			s.entry.skip("the invocation ended before")
			continue
		}
		if why := s.unfit(scenario); why != "" {
			s.entry.skip(why)
			s.To.Say("skipped   %s: %s\n", scenario.Metadata.Name, s.entry.Reason)
			continue
		}
		began := s.Time()
		plan, err := plans[i], failed[i]
		if err != nil {
			err = exit.Coded(exit.Internal, err)
		}
		code := exit.Held
		if err == nil {
			code, err = one(scenario, plan)
		}
		if err != nil {
			s.entry.Reason = err.Error()
			s.entry.end(exit.Code(err), s.Time().Sub(began))
			ended = err
			continue
		}
		s.entry.end(code, s.Time().Sub(began))
		ran++
		if code != exit.Held {
			unexpected++
		}
		worst = exit.Worse(worst, code)
	}
	if ended != nil {
		return ended
	}
	summary := "as expected"
	if unexpected > 0 {
		summary = fmt.Sprintf("%d not as expected", unexpected)
	}
	left := ""
	if ctx.Err() != nil && ran < len(all) {
		left = fmt.Sprintf(", interrupted before the other %d", len(all)-ran)
	}
	s.To.Say("%s in %s: %s%s\n", phrase.Count(ran, "scenario"), s.Time().Sub(ledger.Began).Round(time.Millisecond), summary, left)
	if ran == 0 && worst == exit.Held {
		return exit.Coded(exit.Unknown, fmt.Errorf("none of the scenarios can be told in the %s", s.World))
	}
	return exit.Ended(worst)
}
