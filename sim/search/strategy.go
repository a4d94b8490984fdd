package search

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios"
)

// Strategy chooses the schedules of a search.
//
// A search calls it in one order, however many workers there are and however fast
// they are: Next for the schedules 0 to Ahead-1, and then in turns Learn for the
// schedule k and Next for the schedule k+Ahead. So what it chooses depends on
// nothing but what it is made of and what came of its schedules.
type Strategy interface {
	// Next returns the n-th schedule, or false when there is none any more.
	Next(n int) (Schedule, bool)
	// Learn is told what came of a schedule.
	Learn(Schedule, Result)
}

// Schedule is one schedule of a story, as plain data: where it is played makes no
// difference.
type Schedule struct {
	// Number is its place in the search, from 0.
	Number int `json:"number"`
	// Seed is what the ranges of the scenario are drawn from; 0 leaves them as the
	// plan has them.
	Seed uint64 `json:"seed,omitempty"`
	// Draw says that deviations are drawn from the seed while it is played, and come
	// before those that it has.
	Draw bool `json:"draw,omitempty"`
	// Deviations are where it leaves the default; those that were drawn, when it was
	// played.
	Deviations []scenarios.Deviation `json:"deviations,omitempty"`
}

// space is what a strategy can choose from.
type space struct {
	seed uint64
	// steps are those of the benign schedule, and singles all single deviations from
	// it, step by step.
	steps   []told
	singles []scenarios.Deviation
}

// seedOf is that of the n-th schedule. Those of two searches have nothing to do with
// each other, however close their seeds are.
func (s *space) seedOf(n int) uint64 {
	return scenarios.Stream(s.seed, fmt.Sprintf("schedule %d", n)).Uint64()
}

// strategies are all there are.
var strategies = []struct {
	name string
	// tries says what it tries, for people who choose one.
	tries string
	new   func(*space) chosen
}{
	{"sweep", "each single deviation from the benign schedule: every delay, every fault and every crash point; with --schedules, the N most telling ones, spread over the story", newSweep},
	{"pairs", "random pairs of those", newPairs},
	{"random", "random schedules", newRandom},
	{"coverage", "variations of schedules that led a controller to a decision, or from one to another, that no earlier one had reached", newGuided},
}

// chosen is a strategy for one search.
type chosen struct {
	Strategy
	// what is what it tries here: "single deviations from 201 steps".
	what string
	// total is how many schedules it has, unless it is endless.
	total   int
	endless bool
	// learns says that it wants to know what schedules reach.
	learns bool
}

// Strategies are the names of all strategies.
func Strategies() []string {
	var names []string
	for _, s := range strategies {
		names = append(names, s.name)
	}
	return names
}

// Described says what each strategy tries, a line each.
func Described() string {
	var b strings.Builder
	for _, s := range strategies {
		fmt.Fprintf(&b, "  %-9s %s\n", s.name, s.tries)
	}
	return b.String()
}

func choose(name string, from *space) (chosen, error) {
	i := slices.Index(Strategies(), name)
	if i < 0 {
		return chosen{}, fmt.Errorf("there is no strategy %q; choose one of %s", name, strings.Join(Strategies(), ", "))
	}
	return strategies[i].new(from), nil
}

// unteachable is a strategy that learns nothing.
type unteachable struct{}

// Learn does nothing.
func (unteachable) Learn(Schedule, Result) {}

// sweep tries every single deviation from the benign schedule, or as many of them as there
// is time for.
type sweep struct {
	unteachable
	order []scenarios.Deviation
}

func newSweep(from *space) chosen {
	order := ordered(from.steps)
	return chosen{Strategy: sweep{order: order}, what: fmt.Sprintf("single deviations from %d steps", len(from.steps)), total: len(order)}
}

func (s sweep) Next(n int) (Schedule, bool) {
	if n >= len(s.order) {
		return Schedule{}, false
	}
	return Schedule{Number: n, Deviations: s.order[n : n+1]}, true
}

// pairs tries random pairs of single deviations.
type pairs struct {
	unteachable
	*space
}

func newPairs(from *space) chosen {
	return chosen{Strategy: pairs{space: from}, what: fmt.Sprintf("pairs of %d deviations from seed %d", len(from.singles), from.seed), endless: true}
}

// Next draws two deviations of different steps, if there are any.
func (p pairs) Next(n int) (Schedule, bool) {
	if len(p.singles) == 0 {
		return Schedule{}, false
	}
	seed := p.seedOf(n)
	stream := scenarios.Stream(seed, "explore pair")
	first := p.singles[stream.IntN(len(p.singles))]
	schedule := Schedule{Number: n, Seed: seed, Deviations: []scenarios.Deviation{first}}
	for range 100 {
		if second := p.singles[stream.IntN(len(p.singles))]; second.Step != first.Step {
			schedule.Deviations = append(schedule.Deviations, second)
			break
		}
	}
	return schedule, true
}

// random tries schedules in which any step may deviate.
type random struct {
	unteachable
	*space
}

func newRandom(from *space) chosen {
	return chosen{Strategy: random{space: from}, what: fmt.Sprintf("random schedules from seed %d", from.seed), endless: true}
}

func (r random) Next(n int) (Schedule, bool) {
	return Schedule{Number: n, Seed: r.seedOf(n), Draw: true}, true
}

// Over returns a search of the single deviations that somebody else has chosen, for worlds in which this package can't
// choose: of so many of them, or with 0 of all. What says what they are.
func Over(plan *scenarios.Plan, singles []scenarios.Deviation, schedules int, what string) *Search {
	s := &Search{Strategy: sweep{order: singles}, Story: &Story{Plan: plan}, what: what}
	s.bound(len(singles), schedules)
	return s
}
