package search

import (
	"fmt"
	"hash/fnv"
	"iter"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
)

// tree chooses combinations: the schedules of two up to depth deviations that may have an effect
// together, each once.
//
// A node is a schedule. Its children add a deviation of a step that is scheduled behind the last
// step that deviates in it. Two runs are the same until a step is scheduled that deviates in one of
// them only, so there is one path to each set of deviations that all come about. Left out are
// children that
//
//   - lie apart: neither the added step nor the one that it waits for depends on a step of the
//     node's deviations. Both effects were seen, each by itself. A child stays if the node makes it
//     possible: its step follows at once from one of the node's, or no step of its kind can deviate
//     so in the default schedule.
//   - sleep: a sibling of the same step has led to the same class of runs, and has the same child.
//     Its step is scheduled when both siblings have had their effect, and so does the same behind
//     either.
//   - those rules leave out that hold for single deviations: see [arrangement.of].
type tree struct {
	*space
	// usual are the deviations of the default schedule, by kind.
	usual map[trait]bool
	// open are the branches that have schedules yet to be given, and first all behind the root.
	first, open []*branch
	// of has the branches that a schedule speaks for, until it was learned of.
	of      map[string][]*branch
	reached map[campaign.Point]bool
}

// branch is all deviations of one step behind a node.
type branch struct {
	behind, step []scenarios.Deviation
	// next are the schedules yet to be given, and below the branches that begin with those, once
	// the branch was expanded.
	expanded bool
	next     []combination
	below    []*branch
	// given is how many schedules of the branch were given, with those of its own step, and fresh
	// how many of them reached what none had before.
	given, fresh int
}

// combination is a schedule, and the branch that begins with it, if one does.
type combination struct {
	deviations []scenarios.Deviation
	below      *branch
}

// trait identifies deviations of the same kind.
type trait struct {
	step, after kind
	fault       scenarios.StepFault
	delay       scenarios.Duration
}

// newTree makes the tree behind these single deviations, which are in the order of their branches.
func newTree(from *space, a *arrangement, singles []scenarios.Deviation) *tree {
	t := &tree{space: from, usual: make(map[trait]bool), of: make(map[string][]*branch), reached: make(map[campaign.Point]bool)}
	at := make(map[string]*branch)
	for _, d := range singles {
		b := at[d.Step]
		if b == nil {
			b = new(branch)
			at[d.Step], t.first = b, append(t.first, b)
		}
		b.step = append(b.step, d)
		b.given++
		t.of[fmt.Sprint([]scenarios.Deviation{d})], t.usual[a.trait(d)] = []*branch{b}, true
	}
	t.open = slices.Clone(t.first)
	return t
}

func (a *arrangement) trait(d scenarios.Deviation) trait {
	of := func(step string) (k kind) {
		if i, ok := a.index[step]; ok {
			k = a.story[i].kind()
		}
		k.phase = 0
		return k
	}
	t := trait{step: of(d.Step), fault: d.Fault, delay: d.Delay}
	if d.After != "" {
		t.after, t.delay = of(d.After), 0
	}
	return t
}

// class identifies a run by the steps that were taken, the faults that they had, and the order of
// those that depend on each other. Each step adds the sum of those before it on which it depends,
// so that swapping independent neighbours changes nothing.
func (a *arrangement) class(planned []scenarios.Deviation) (sum uint64) {
	before := make([]uint64, len(a.depend))
	for _, i := range a.taken {
		s, h, past := &a.story[i], fnv.New64a(), uint64(0)
		for print, depends := range a.depend[a.prints[i]] {
			if depends {
				past += before[print]
			}
		}
		fmt.Fprint(h, s.Name(), s.Verb, s.Object, past)
		for _, d := range planned {
			if d.Step == s.Name() {
				fmt.Fprint(h, d.Fault)
			}
		}
		before[a.prints[i]] += h.Sum64()
		sum += h.Sum64()
	}
	return sum
}

// child is a deviation that may be added to a schedule.
type child struct {
	scenarios.Deviation
	// settled says that its step is scheduled when the last deviation has had its effect, and meets
	// that it doesn't lie apart.
	settled, meets bool
}

// children returns what can be added to a schedule behind a step, step by step, and its class.
func (t *tree) children(schedule []scenarios.Deviation, behind string) (all [][]child, class uint64) {
	story, err := t.runOf(schedule)
	if err != nil {
		return nil, 0 // the same error ends the search, since the schedule itself is played, too
	}
	a := arrange(story, t.bound)
	var mine []int
	for _, d := range schedule {
		for _, name := range []string{d.Step, d.After} {
			if i, ok := a.index[name]; ok {
				mine = append(mine, i)
			}
		}
	}
	meets := func(i int) bool {
		return slices.ContainsFunc(mine, func(m int) bool { return a.depend[a.prints[m]][a.prints[i]] || story[i].cause == m })
	}
	last := a.index[behind]
	for i := last + 1; i < len(story); i++ {
		settled := story[last].taken >= 0 && story[i].since > story[last].taken
		here := meets(i)
		var some []child
		for _, d := range a.of(i) {
			some = append(some, child{d, settled, here || d.After != "" && meets(a.index[d.After]) || !t.usual[a.trait(d)]})
		}
		if len(some) > 0 {
			all = append(all, some)
		}
	}
	return all, a.class(schedule)
}

// expand finds out what is behind a branch.
func (t *tree) expand(b *branch) {
	if b.expanded {
		return
	}
	b.expanded = true
	type run struct {
		class uint64
		has   map[scenarios.Deviation]bool
	}
	of := func(schedule []scenarios.Deviation) ([][]child, run) {
		steps, class := t.children(schedule, b.step[0].Step)
		r := run{class, make(map[scenarios.Deviation]bool)}
		for _, step := range steps {
			for _, c := range step {
				r.has[c.Deviation] = c.settled
			}
		}
		return steps, r
	}
	_, without := of(b.behind)
	runs := []run{without}
	var all []combination
	for _, d := range b.step {
		schedule := append(slices.Clone(b.behind), d)
		steps, mine := of(schedule)
		for _, step := range steps {
			below := &branch{behind: schedule}
			for _, c := range step {
				asleep := c.settled && slices.ContainsFunc(runs, func(r run) bool { return r.class == mine.class && r.has[c.Deviation] })
				if c.meets && !asleep {
					below.step = append(below.step, c.Deviation)
				}
			}
			deeper := len(schedule)+1 < t.depth && len(below.step) > 0
			for _, d := range below.step {
				one := combination{deviations: append(slices.Clone(schedule), d)}
				if deeper {
					one.below = below
				}
				all = append(all, one)
			}
			if deeper {
				below.given, b.below = len(below.step), append(b.below, below)
			}
		}
		runs = append(runs, mine)
	}
	for _, i := range spread(len(all)) {
		b.next = append(b.next, all[i])
	}
}

// Next implements campaign.Strategy: the next schedule comes from the branch most of whose
// schedules reached something new.
func (t *tree) Next(int) (campaign.Schedule, bool) {
	for len(t.open) > 0 {
		best, most := 0, 0.0
		for i, b := range t.open {
			if yield := float64(b.fresh+1) / float64(b.given+1); yield > most {
				best, most = i, yield
			}
		}
		b := t.open[best]
		if t.expand(b); len(b.next) == 0 {
			t.open = append(slices.Delete(t.open, best, best+1), b.below...)
			continue
		}
		next := b.next[0]
		b.next = b.next[1:]
		b.given++
		of := []*branch{b}
		if next.below != nil {
			of = append(of, next.below)
		}
		t.of[fmt.Sprint(next.deviations)] = of
		return campaign.Schedule{Deviations: next.deviations}, true
	}
	return campaign.Schedule{}, false
}

// Learn implements campaign.Strategy.
func (t *tree) Learn(s campaign.Schedule, r campaign.Result) {
	fresh := 0
	for _, point := range r.Reached {
		if !t.reached[point] {
			fresh, t.reached[point] = 1, true
		}
	}
	key := fmt.Sprint(s.Deviations)
	for _, b := range t.of[key] {
		b.fresh += fresh
	}
	delete(t.of, key)
}

// Branches, Branch and Forecast implement campaign.Branching. A branch has its single deviations,
// too.
func (t *tree) Branches() int { return len(t.first) }

func (t *tree) Branch(i int) iter.Seq[campaign.Schedule] {
	return func(yield func(campaign.Schedule) bool) {
		b, n := t.first[i], 0
		give := func(deviations []scenarios.Deviation) bool {
			n++
			return yield(campaign.Schedule{Number: i<<branchBits + n - 1, Deviations: deviations})
		}
		for _, d := range b.step {
			if !give([]scenarios.Deviation{d}) {
				return
			}
		}
		t.each(b, give)
		*b = branch{behind: b.behind, step: b.step, given: len(b.step)} // it is large
	}
}

// branchBits is where the number of a branch stands in those of its schedules.
const branchBits = 24

// each gives all combinations of a branch, until one isn't wanted.
func (t *tree) each(b *branch, give func([]scenarios.Deviation) bool) bool {
	t.expand(b)
	return !slices.ContainsFunc(b.next, func(c combination) bool { return !give(c.deviations) }) &&
		!slices.ContainsFunc(b.below, func(below *branch) bool { return !t.each(below, give) })
}

func (t *tree) Forecast() int {
	singles := 0
	for _, b := range t.first {
		singles += len(b.step)
	}
	combinations, _ := t.forecast(descents)
	for _, b := range t.first {
		*b = branch{behind: b.behind, step: b.step, given: len(b.step)}
	}
	return singles + int(combinations)
}

const (
	// A forecast takes the fewest descents at least, and as many as it may at most. Between these
	// it ends when its deviation is this share of the mean.
	precise          = 0.1
	fewest, descents = 10, 64
)

// forecast estimates how many schedules the tree has, with the deviation of that, by random
// descents: at each level one branch stands for all. With two deviations the branches are all
// different, and it is exact when there are no more of them.
func (t *tree) forecast(descents float64) (mean, deviation float64) {
	stream := scenarios.Stream(t.seed, "forecast")
	n, sum, squares := float64(len(t.first)), 0.0, 0.0
	order := stream.Perm(len(t.first))
	for k := 1.0; len(order) > 0; k++ {
		at := order[0]
		left := 1.0 // the share of the variance that what was not seen has
		if order = order[1:]; t.depth > 2 {
			at, order = stream.IntN(len(t.first)), append(order, at)
		} else {
			left = 1 - k/n
		}
		size := t.descend(t.first[at], stream)
		sum, squares = sum+size, squares+size*size
		if mean = n * sum / k; k > 1 {
			deviation = n * math.Sqrt(max(0, squares-sum*sum/k)/(k-1)/k*left)
		}
		if k >= fewest && deviation <= precise*mean || k >= descents {
			break
		}
	}
	return mean, deviation
}

func (t *tree) descend(b *branch, stream *rand.Rand) float64 {
	t.expand(b)
	size := float64(len(b.next))
	if n := len(b.below); n > 0 {
		size += float64(n) * t.descend(b.below[stream.IntN(n)], stream)
	}
	return size
}
