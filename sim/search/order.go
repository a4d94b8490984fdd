package search

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/steps"
)

// told is a step of the benign schedule and the phase in which it was scheduled. A phase ends when
// a controller decides otherwise than it last did about the same object.
type told struct {
	steps.Step
	phase int
	// taken is its place among the steps that were taken, or -1; at is when it was. since is how
	// many were taken before it was scheduled.
	taken, since int
	at           time.Duration
	// came holds all that came of it and might not have.
	came steps.Outcome
	// queues are the requests that it put into queues, by the actors that take them from there.
	queues []queued
	// before and by are how many operations had been applied before it was taken, and at most by
	// then.
	before, by int
	// cause is the index of the step that led to it, or -1.
	cause int
	// words say what it does.
	words string
}

type queued struct{ actor, request string }

// kind identifies steps that are taken for the same reason. A story that waits has thousands of
// steps of a few kinds.
type kind struct {
	actor  string
	class  steps.Class
	verb   string
	object steps.Object
	phase  int
}

// plain returns the steps without their phases.
func plain(story []told) []steps.Step {
	all := make([]steps.Step, len(story))
	for i := range story {
		all[i] = story[i].Step
	}
	return all
}

func (t *told) kind() kind { return kind{t.Actor, t.Class, t.Verb, t.Object, t.phase} }

// tell plays the plan as it is and returns the steps of its story. Others may see its decisions.
func tell(ctx context.Context, s *sim.Simulator, plan *scenarios.Plan, decided ...func(sim.Decision)) ([]told, *play.Outcome, error) {
	var story []told
	known, last, phases, phase := make(rows), make(map[decider]campaign.Point), make(map[string]int), 0
	backend := s.Backend()
	backend.Decided = func(d sim.Decision) {
		for _, show := range decided {
			if len(story) > 0 {
				show(d)
			}
		}
		who, now := decider{d.Process, d.Key}, known.point(row{d.Controller, d.Facts, d.Action})
		if before, ok := last[who]; ok && before == now {
			return
		}
		last[who] = now
		at := fmt.Sprint(last) // a map is printed in order
		if _, ok := phases[at]; !ok {
			phases[at] = len(phases) + 1
		}
		phase = phases[at]
	}
	index, taken := make(map[steps.Name]int), 0
	backend.Watch = func(step steps.Step) (scenarios.Deviation, bool) {
		cause, ok := index[step.Cause]
		if !ok {
			cause = -1
		}
		index[steps.Name{Actor: step.Actor, Class: step.Class, N: step.N}] = len(story)
		story = append(story, told{Step: step, phase: phase, taken: -1, since: taken, cause: cause, words: wordsOf(step)})
		return scenarios.Deviation{}, false
	}
	backend.Took = func(step steps.Name, at time.Duration) {
		if i, ok := index[step]; ok {
			story[i].taken, story[i].at = taken, at
			taken++
		}
	}
	backend.Came = func(of steps.Name, what steps.Outcome) {
		if i, ok := index[of]; ok {
			story[i].came |= what
		}
	}
	backend.Queued = func(by steps.Name, actor, request string) {
		if i, ok := index[by]; ok {
			story[i].queues = append(story[i].queues, queued{actor, request})
		}
	}
	var applied []time.Duration
	outcome, err := play.Run(ctx, plan, backend, func(e history.Event) {
		if e.Kind == history.OpApplied {
			applied = append(applied, e.At)
		}
	})
	for i := range story {
		story[i].before, _ = slices.BinarySearch(applied, story[i].at)
		story[i].by, _ = slices.BinarySearch(applied, story[i].at+1)
	}
	return story, outcome, err
}

// everywhereOneIn sets the share of a sweep's deviations, 1 in everywhereOneIn, that are chosen
// only by their place in the story.
const everywhereOneIn = 4

// ordered returns all single deviations, those of each step, ordered so that any prefix makes a
// good sweep. Most are chosen for their kind: see [tellingFirst]. The others are spread evenly over
// the story, since one can't know beforehand which deviation reveals something. Even has all of
// them, spread evenly.
func ordered(story []told, of func(i int) []scenarios.Deviation) (order, even []scenarios.Deviation) {
	telling, even := tellingFirst(story, of), everywhere(story, of)
	evenly, taken := even, make(map[scenarios.Deviation]bool, len(even))
	for order = make([]scenarios.Deviation, 0, len(even)); len(order) < len(even); {
		from := &telling
		if len(order)%everywhereOneIn == everywhereOneIn-1 {
			from = &evenly
		}
		for taken[(*from)[0]] {
			*from = (*from)[1:]
		}
		order = append(order, (*from)[0])
		taken[(*from)[0]] = true
	}
	return order, even
}

// everywhere returns all single deviations, spread evenly over the story.
func everywhere(story []told, of func(i int) []scenarios.Deviation) []scenarios.Deviation {
	var all, even []scenarios.Deviation
	for i := range story {
		all = append(all, of(i)...)
	}
	for _, at := range spread(len(all)) {
		even = append(even, all[at])
	}
	return even
}

// tellingFirst returns all single deviations: first those of the first step of each kind; then of
// the last step, which is nearest to the end of the phase; then of the steps between, spread
// evenly. Each of these rounds begins with effects and deliveries to caches, and goes to and fro
// in the story, so that no part of it waits for another.
func tellingFirst(story []told, of func(i int) []scenarios.Deviation) []scenarios.Deviation {
	kinds := make(map[kind][]int) // indices of the story
	for i := range story {
		k := story[i].kind()
		kinds[k] = append(kinds[k], i)
	}
	type place struct{ round, rest int }
	places := make([]place, len(story))
	for _, alike := range kinds { // order does not matter: each has its steps to itself
		for round, at := range spread(len(alike)) {
			i := alike[at]
			if places[i].round = round; !story[i].Effect && story[i].Class != steps.ClassDeliver {
				places[i].rest = 1
			}
		}
	}
	type candidate struct {
		place
		scenarios.Deviation
	}
	var all []candidate
	for i := range story {
		for _, d := range of(i) {
			all = append(all, candidate{places[i], d})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(a.rest, b.rest))
	})
	deviations := make([]scenarios.Deviation, 0, len(all))
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(c candidate) bool { return c.place != all[0].place })
		if n < 0 {
			n = len(all)
		}
		for _, at := range spread(n) {
			deviations = append(deviations, all[at].Deviation)
		}
		all = all[n:]
	}
	return deviations
}

// spread returns the numbers below n in an order of which any prefix is spread evenly: the first,
// the last, and then the middles of the remaining gaps.
func spread(n int) []int {
	order := make([]int, 0, n)
	for i := range min(n, 2) {
		order = append(order, i*(n-1))
	}
	type gap struct{ from, to int }
	for gaps := []gap{{0, n - 1}}; len(gaps) > 0; gaps = gaps[1:] {
		g := gaps[0]
		if g.to-g.from < 2 {
			continue
		}
		middle := (g.from + g.to) / 2
		order = append(order, middle)
		gaps = append(gaps, gap{g.from, middle}, gap{middle, g.to})
	}
	return order
}
