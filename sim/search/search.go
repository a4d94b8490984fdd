// Package search looks for a schedule of a scenario that breaks a guarantee. A
// strategy chooses schedules, which are the default one with deviations; workers play
// them, and a tally is kept of what came of them. Begin with [Search.Run].
package search

import (
	"context"
	"fmt"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim"
)

// Options say what to search for.
type Options struct {
	// Strategy is the name of one of [Strategies].
	Strategy string
	// Seed is what a strategy's choices are drawn from.
	Seed uint64
	// Schedules is how many to try. A sweep tries no more than there are, and all of them
	// if this is 0.
	Schedules int
}

// Search is the schedules of one scenario that are to be tried.
type Search struct {
	Strategy
	Story *Story
	// Total is how many schedules are to be tried, and All how many there are with a
	// strategy that ends by itself: a sweep of a long story has more than anybody can wait
	// for.
	Total, All int
	// what is what they are.
	what string
}

// New plays the benign schedule of a scenario and plans a search around it. The
// outcome is the benign one's.
func New(ctx context.Context, simulator *sim.Simulator, scenario *scenarios.Scenario, plan *scenarios.Plan, o Options) (*Search, *play.Outcome, error) {
	steps, benign, err := tell(ctx, simulator, plan)
	if err != nil {
		return nil, nil, err
	}
	chosen, err := choose(o.Strategy, &space{seed: o.Seed, steps: steps, singles: Singles(plain(steps))})
	if err != nil {
		return nil, nil, err
	}
	s := &Search{Strategy: chosen.Strategy, Story: &Story{Plan: plan, Cover: chosen.learns}, Total: o.Schedules, what: chosen.what}
	if !chosen.endless {
		s.bound(chosen.total, o.Schedules)
	}
	if scenario.HasRanges() {
		for _, step := range scenario.Spec.Steps {
			s.Story.Spans = append(s.Story.Spans, step.After)
		}
	}
	return s, benign, nil
}

// bound has a search end after so many schedules of all that there are, or 0 for all.
func (s *Search) bound(all, schedules int) {
	s.All, s.Total = all, all
	if schedules > 0 {
		s.Total = min(all, schedules)
	}
}

// Partial reports whether there are schedules that were not to be tried.
func (s *Search) Partial() bool { return s.Total < s.All }

// Ahead is how many schedules a strategy chooses before it learns what came of the
// first one. It keeps workers busy that play several at a time and report in any
// order, and is the same for any number of them: see [Strategy].
const Ahead = 64

// Workers play schedules.
type Workers interface {
	// Give hands over a schedule to be played, and never waits. It is not called
	// more than Ahead times before a Take.
	Give(Schedule)
	// Take returns what came of any of them as soon as one has been played, or false
	// when there will be nothing more: the workers were told to stop, or failed.
	Take() (Result, bool)
}

// Run has the schedules played and adds up what came of them. Done, which may be nil,
// is told what has come of those that were played.
func (s *Search) Run(workers Workers, done func(Tally)) Tally {
	var tally Tally
	given, learned := 0, 0
	under := make(map[int]Schedule, Ahead) // under way, or played before their turn to be learned of
	early := make(map[int]Result)
	give := func() {
		if given == s.Total {
			return
		}
		if schedule, ok := s.Next(given); ok {
			under[given] = schedule
			given++
			workers.Give(schedule)
		}
	}
	for range Ahead {
		give()
	}
	for learned < given {
		result, ok := workers.Take()
		if !ok {
			break
		}
		schedule := under[result.Number].played(result)
		under[result.Number], early[result.Number] = schedule, result
		tally.Add(schedule, result)
		if done != nil {
			done(tally)
		}
		for result, ok := early[learned]; ok; result, ok = early[learned] {
			s.Learn(under[learned], result)
			delete(early, learned)
			delete(under, learned)
			learned++
			give()
		}
	}
	return tally
}

// played is the schedule with the deviations that were drawn, as far as the result
// tells.
func (s Schedule) played(r Result) Schedule {
	if s.Draw {
		s.Draw, s.Deviations = false, r.Drawn
	}
	return s
}

// Alone plays schedules in this process, one after the other.
type Alone struct {
	player  *Player
	waiting []Schedule
	// Err is why it stopped.
	Err error
}

// NewAlone returns workers of a search that need no process.
func NewAlone(simulator *sim.Simulator, story *Story) *Alone {
	return &Alone{player: NewPlayer(simulator, story)}
}

// Give implements Workers.
func (a *Alone) Give(s Schedule) { a.waiting = append(a.waiting, s) }

// Take implements Workers.
func (a *Alone) Take() (Result, bool) {
	next := a.waiting[0]
	a.waiting = a.waiting[1:]
	result, err := a.player.Try(next)
	a.Err = err
	return result, err == nil
}

// Describe says what a search has tried: "834 single deviations from 201 steps", or "500 of
// 71180 single deviations from 6960 steps".
func (s *Search) Describe(tried int) string {
	text := fmt.Sprintf("%d %s", tried, s.what)
	if s.Partial() {
		text = fmt.Sprintf("%d of %d %s", tried, s.All, s.what)
	}
	if tried < s.Total {
		text += fmt.Sprintf(" (interrupted, of %d)", s.Total)
	}
	return text
}
