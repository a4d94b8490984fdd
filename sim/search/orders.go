package search

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/sim/steps"
)

// apart is how far from each other two steps are at most that are tried in the other order, unless
// a search is bounded more narrowly. It is the longest of [Delays].
const apart = 90 * time.Second

// newOrders makes the strategy orders: each order of two dependent steps that don't descend from
// one another, each fault of each step, and what moves the clocks that steps wait for.
//
// A delay of a step matters where it takes the step past another one that depends on it. So all
// delays between two such steps are alike, and one schedule stands for them: the step right after
// the first of the two. A recurring step (a Lease, a poll, a resync) has as many places as rounds;
// of those in which no controller decides anything new, the first and the last stand for all.
//
// When a step takes its time by itself (a boot, a timer, a time-out), the length of that is not
// only an order: whatever is timed from its end moves along. Such a step also gets the fixed delays
// of a sweep. Nor does the last answer before a controller decides on an effect move an order only:
// the controller decides by how old things are by then. So that answer also comes late by seconds.
func newOrders(from *space) chosen {
	o := arrange(from.steps, from.bound)
	order, _ := ordered(from.steps, o.of)
	c := chosen{
		Strategy: campaign.Listed{Order: order}, total: len(order),
		what: fmt.Sprintf("orders, faults and durations of %d steps", len(from.steps)),
	}
	if from.whole {
		c.branching = newTree(from, o, order)
	}
	return c
}

// arrangement holds what there is to try of each step of a story.
type arrangement struct {
	story []told
	// bound is how late a step comes at most.
	bound time.Duration
	// index has the places of steps in the story, by name.
	index map[string]int
	// taken are the indices of the steps that were taken, in that order.
	taken []int
	// prints has the places of the steps' footprints in likes, came those of what came of them in
	// the story, and depend says which of them depend on each other.
	prints, came []int
	likes        []steps.Footprint
	depend       [][]bool
	// ends says which steps are the first or the last of their kind that were taken.
	ends []bool
	// decides says which steps bring the last answer before a controller decides on an effect.
	decides []bool
	// descends is room for the steps that descend from one.
	descends []bool
}

func arrange(story []told, bound time.Duration) *arrangement {
	a := &arrangement{
		story: story, bound: bound, index: make(map[string]int, len(story)),
		prints: make([]int, len(story)), came: make([]int, len(story)), ends: make([]bool, len(story)), decides: make([]bool, len(story)), descends: make([]bool, len(story)),
	}
	known, first, last := make(map[string]int), make(map[kind]int), make(map[kind]int)
	number := func(f steps.Footprint) int {
		print := fmt.Sprint(f)
		n, ok := known[print]
		if !ok {
			n = len(a.likes)
			known[print], a.likes = n, append(a.likes, f)
		}
		return n
	}
	for i := range story {
		a.index[story[i].Name()] = i
		a.prints[i] = number(story[i].Footprint())
		if a.came[i] = a.prints[i]; story[i].May()&^story[i].came != 0 {
			a.came[i] = number(story[i].FootprintOf(story[i].came))
		}
		if story[i].taken >= 0 {
			a.taken = append(a.taken, i)
		}
	}
	slices.SortFunc(a.taken, func(i, j int) int { return story[i].taken - story[j].taken })
	for _, like := range a.likes {
		row := make([]bool, len(a.likes))
		for j := range a.likes {
			row[j] = like.Meets(a.likes[j])
		}
		a.depend = append(a.depend, row)
	}
	for _, i := range a.taken {
		if _, ok := first[story[i].kind()]; !ok {
			first[story[i].kind()] = i
		}
		last[story[i].kind()] = i
		if s := &story[i]; s.Effect && s.Class.Sends() && s.cause >= 0 && story[s.cause].Actor == s.Actor {
			a.decides[s.cause] = story[s.cause].Class.Sends()
		}
	}
	for k, i := range first { // order does not matter: each has its own
		a.ends[i], a.ends[last[k]] = true, true
	}
	return a
}

// of returns what to try of a step.
func (a *arrangement) of(i int) []scenarios.Deviation {
	return slices.Concat(a.orders(i), a.faults(i), a.lengths(i), a.ages(i))
}

// orders returns the orders in which a step comes after another one that depends on it. One that
// is idle where it is may not be so behind an operation, or behind a step that changes what it
// goes by.
func (a *arrangement) orders(i int) (all []scenarios.Deviation) {
	if !a.ends[i] {
		return nil
	}
	s := &a.story[i]
	most := a.bound
	if latest := s.Latest(); latest > 0 {
		most = min(most, latest)
	}
	clear(a.descends)
	a.descends[i] = true
	print := a.came[i]
	others := make(map[kind]int) // the place in all of the last of each kind
	for _, j := range a.taken[s.taken+1:] {
		other := &a.story[j]
		if other.at > s.at+most {
			break
		}
		if other.cause >= 0 && a.descends[other.cause] || inTurn(&s.Step, &other.Step) {
			a.descends[j] = true
			continue
		}
		if s.over(other) {
			break
		}
		if other.by != s.before && len(a.likes[a.came[i]].Reads) > 0 {
			print = a.prints[i]
		}
		if !a.depend[print][a.came[j]] {
			continue
		}
		if a.likes[a.prints[j]].Changes(a.likes[a.came[i]]) {
			print = a.prints[i]
		}
		d := scenarios.Deviation{Step: s.Name(), After: other.Name(), Delay: scenarios.Duration(most)}
		k := other.kind()
		switch at, seen := others[k]; {
		case !seen:
			others[k] = -1
			all = append(all, d)
		case at < 0:
			others[k] = len(all)
			all = append(all, d)
		default:
			all[at] = d
		}
	}
	return all
}

// over reports whether nothing comes any more of a step that comes behind the other one: its
// process has started anew, or the request that it would put into a queue is there already.
func (t *told) over(other *told) bool {
	return other.Class == steps.ClassStart && other.Place == t.Place && t.Class != steps.ClassLate ||
		t.Class == steps.ClassTimer && t.Object.Kind == "Request" && slices.Contains(other.queues, queued{t.Actor, t.Object.Name})
}

// inTurn reports whether the second step can't overtake the first because their actor takes one
// after the other: a stream of changes, a process with one worker, or one of several workers with
// the same request. A request to a BMC can be overtaken, for its client may give up and go on.
func inTurn(first, second *steps.Step) bool {
	works := func(c steps.Class) bool { return c == steps.ClassWork || c == steps.ClassAPI || c == steps.ClassBMC }
	switch {
	case first.Actor != second.Actor:
		return false
	case first.Class == steps.ClassDeliver || second.Class == steps.ClassDeliver:
		return first.Class == second.Class
	}
	return first.Class != steps.ClassBMC && (first.Alone || first.Request != "" && first.Request == second.Request) && works(first.Class) && works(second.Class)
}
