package search

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/sim/steps"
)

// space is the choice that a strategy has.
type space struct {
	seed uint64
	// steps is the story of the benign schedule, and singles all single deviations from it, step
	// by step.
	steps   []told
	singles []scenarios.Deviation
	// depth is how many deviations are combined, and bound how late a step comes at most.
	depth int
	bound time.Duration
	// whole says that combinations are played to the end, and nothing that has none.
	whole bool
	// runOf plays a schedule and returns its steps.
	runOf func([]scenarios.Deviation) ([]told, error)
}

// seedOf returns the seed of the n-th schedule. The seeds of two searches are unrelated, however
// close the searches' own seeds are.
func (s *space) seedOf(n int) uint64 {
	return scenarios.Stream(s.seed, fmt.Sprintf("schedule %d", n)).Uint64()
}

// strategies lists all strategies.
var strategies = []struct {
	name string
	// tries describes the strategy's schedules, for users who choose one.
	tries string
	new   func(*space) chosen
	Kind
}{
	{"sweep", "each single deviation from the benign schedule: every delay, every fault and every crash point; with --schedules, the N most telling ones, spread over the story", newSweep, Kind{Ends: true}},
	{"orders", "each order of two dependent steps, each fault of each step, other lengths of what takes its time by itself, and late answers before decisions", newOrders, Kind{Ends: true, Combines: true}},
	{"pairs", "random pairs of those", newPairs, Kind{}},
	{"random", "random schedules", newRandom, Kind{}},
	{"coverage", "variations of schedules that led a controller to a decision, or from one to another, that no earlier one had reached", newGuided, Kind{Learns: true}},
	{"portfolio", "orders, combinations of them, coverage and random, which share the budget by what they newly cover", newPortfolio, Kind{Ends: true, Combines: true, Learns: true}},
}

// chosen is a strategy for one search.
type chosen struct {
	campaign.Strategy
	// what describes the schedules of this search: "single deviations from 201 steps".
	what string
	// total is how many schedules it has; an endless one may have any number, and has these if it
	// was given none.
	total   int
	endless bool
	// budget, which may be nil, is given how many schedules will be asked for.
	budget func(total int)
	// learns says that the strategy uses the points that schedules reach.
	learns bool
	// branching has all schedules if combinations are played to the end and need not be learned of.
	branching campaign.Branching
}

// Strategies returns the names of all strategies.
func Strategies() []string {
	var names []string
	for _, s := range strategies {
		names = append(names, s.name)
	}
	return names
}

// Kind says what a strategy can be given.
type Kind struct {
	// Ends says that it ends by itself when it isn't given a number of schedules, Combines that it
	// takes a depth, and how late a step comes at most, and Learns that it chooses by what came of
	// earlier schedules.
	Ends, Combines, Learns bool
}

// KindOf is the kind of one of [Strategies]. The benign schedule, which is none, has the zero kind.
func KindOf(strategy string) (k Kind) {
	if i := slices.Index(Strategies(), strategy); i >= 0 {
		k = strategies[i].Kind
	}
	return k
}

// Described describes each strategy in a line.
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

func newSweep(from *space) chosen {
	order, _ := ordered(from.steps, func(i int) []scenarios.Deviation { return Singles([]steps.Step{from.steps[i].Step}) })
	return chosen{Strategy: campaign.Listed{Order: order}, what: fmt.Sprintf("single deviations from %d steps", len(from.steps)), total: len(order)}
}

// pairs tries random pairs of single deviations.
type pairs struct {
	campaign.Unteachable
	*space
}

func newPairs(from *space) chosen {
	return chosen{Strategy: pairs{space: from}, what: fmt.Sprintf("pairs of %d deviations from seed %d", len(from.singles), from.seed), endless: true}
}

// Next draws two deviations of different steps, if there are any.
func (p pairs) Next(n int) (campaign.Schedule, bool) {
	if len(p.singles) == 0 {
		return campaign.Schedule{}, false
	}
	seed := p.seedOf(n)
	stream := scenarios.Stream(seed, "explore pair")
	first := p.singles[stream.IntN(len(p.singles))]
	schedule := campaign.Schedule{Number: n, Seed: seed, Deviations: []scenarios.Deviation{first}}
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
	campaign.Unteachable
	*space
}

func newRandom(from *space) chosen {
	return chosen{Strategy: random{space: from}, what: fmt.Sprintf("random schedules from seed %d", from.seed), endless: true}
}

func (r random) Next(n int) (campaign.Schedule, bool) {
	return campaign.Schedule{Number: n, Seed: r.seedOf(n), Draw: true}, true
}
