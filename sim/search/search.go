// Package search looks for a schedule of a scenario that breaks a guarantee, in the simulator,
// which takes the steps and knows all of them. Its strategies choose schedules, which are the
// default one with deviations, and a [Player] plays them. Package campaign runs the search itself.
package search

import (
	"cmp"
	"context"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim"
)

// Options configure a search.
type Options struct {
	// Strategy is the name of one of [Strategies].
	Strategy string
	// Seed is the seed of a strategy's choices.
	Seed uint64
	// Schedules is how many to try. A strategy that ends by itself tries all that it has if this is
	// 0.
	Schedules int
	// Depth is how many deviations are combined, with a strategy that combines any: 0 is two if the
	// number of schedules or the time is given, and else one.
	Depth int
	// Within is how late a step comes at most; 0 stands for [apart].
	Within time.Duration
	// Reach is an edge in words that the search is to bring about, in place of its strategy; or "".
	Reach string
	// For is how long to search, in place of a number of schedules; 0 is for as long as it takes.
	For time.Duration
	// Resume is a directory that keeps what came of each schedule, or "".
	Resume string
}

// New plays the benign schedule of a scenario and plans a search around it. The outcome is that of
// the benign schedule.
func New(ctx context.Context, simulator *sim.Simulator, scenario *scenarios.Scenario, plan *scenarios.Plan, o Options) (*campaign.Search, *play.Outcome, error) {
	t, err := Tell(ctx, simulator, plan)
	if err != nil {
		return nil, nil, err
	}
	s, err := t.Around(ctx, scenario, plan, o)
	return s, t.Benign, err
}

// Told is the benign schedule of a plan, around which searches are planned.
type Told struct {
	Benign *play.Outcome

	simulator *sim.Simulator
	steps     []told
}

// Tell plays the benign schedule of a plan.
func Tell(ctx context.Context, simulator *sim.Simulator, plan *scenarios.Plan) (*Told, error) {
	steps, benign, err := tell(ctx, simulator, plan)
	return &Told{benign, simulator, steps}, err
}

// Around plans a search around the benign schedule of a plan, which may have another seed than the
// plan that was played.
func (t *Told) Around(ctx context.Context, scenario *scenarios.Scenario, plan *scenarios.Plan, o Options) (*campaign.Search, error) {
	story := &campaign.Story{Plan: plan}
	if scenario.HasRanges() {
		for _, step := range scenario.Spec.Steps {
			story.Spans = append(story.Spans, step.After)
		}
	}
	return t.Again(ctx, story, o)
}

// Again plans a search of a story.
func (t *Told) Again(ctx context.Context, story *campaign.Story, o Options) (*campaign.Search, error) {
	if o.Depth == 0 && (o.Schedules > 0 || o.For > 0) {
		o.Depth = 2
	}
	from := &space{
		seed: o.Seed, steps: t.steps, singles: Singles(plain(t.steps)), bound: cmp.Or(o.Within, apart),
		depth: o.Depth, whole: o.Depth > 1 && o.Schedules == 0 && o.For == 0,
		runOf: func(deviations []scenarios.Deviation) ([]told, error) {
			// Of schedules that go on for as long as most do.
			steps, outcome, err := tell(ctx, t.simulator, story.PlanOf(campaign.Schedule{Number: 1, Deviations: deviations}))
			if err == nil {
				err = outcome.Err
			}
			return steps, err
		},
	}
	chosen, err := choose(o.Strategy, from)
	if err != nil {
		return nil, err
	}
	var known *edges
	if chosen.learns || o.Reach != "" {
		if known, err = edgesOf(ctx, t.simulator, story.Plan); err != nil {
			return nil, err
		}
	}
	if o.Reach != "" {
		if chosen, err = known.reach(o.Reach, from); err != nil {
			return nil, err
		}
	}
	story.Cover = story.Cover || chosen.learns
	s := &campaign.Search{
		Strategy: chosen.Strategy, Story: story, Total: o.Schedules, What: chosen.what, Branching: chosen.branching, Edges: known.list(), Aim: o.Reach,
	}
	s.Explainer = newExplainer(t, s.Story)
	switch {
	case o.For > 0:
		s.Total = campaign.Endless
	case !chosen.endless:
		s.Bound(chosen.total, o.Schedules)
	case o.Schedules == 0:
		s.Total = chosen.total
	}
	if chosen.budget != nil {
		chosen.budget(s.Total)
	}
	return s, nil
}

// Alone plays schedules in this process, one after the other.
type Alone struct {
	// Seen, which may be nil, is called with each schedule, as it was chosen, and what came of it.
	Seen func(campaign.Schedule, *play.Outcome)

	player  *Player
	waiting []campaign.Schedule
	// err is the reason why it stopped early.
	err error
}

// NewAlone returns a pool that plays schedules in this process.
func NewAlone(simulator *sim.Simulator, story *campaign.Story) *Alone {
	return &Alone{player: NewPlayer(simulator, story)}
}

// Give implements Workers.
func (a *Alone) Give(s campaign.Schedule) { a.waiting = append(a.waiting, s) }

// Take implements Workers. Behind a schedule that could not be played it plays no other one.
func (a *Alone) Take() (result campaign.Result, ok bool) {
	next := a.waiting[0]
	a.waiting = a.waiting[1:]
	if a.err == nil {
		a.player.seen = a.Seen
		result, a.err = a.player.Try(next)
	}
	return result, a.err == nil
}

// Close returns the reason why it stopped early, or nil.
func (a *Alone) Close() error { return a.err }
