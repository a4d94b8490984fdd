package search

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/kube"
	"github.com/fencelab/fencelab/sim/steps"
)

// edges may come about in a story's schedules, and don't in its default one: two steps that touch
// the same come in the other order, or a process decides on a version of an object that is older
// than somebody's write of it. They are the same wherever they are made.
type edges struct {
	all []edge
	// kinds numbers the kinds of steps that orders are about, orders has those of two kinds, and
	// olds the decisions on old versions.
	kinds  map[kind]int
	orders map[[2]int]campaign.Point
	olds   map[old]campaign.Point
}

// edge is one of them.
type edge struct {
	campaign.Edge
	// first and second are the kinds of an order: one of second comes before one of first.
	first, second kind
	// old is the decision on an old version; the zero one in an order.
	old old
	// rank puts the gravest first, and apart is how far the steps of an order are from
	// each other by default.
	rank  int
	apart time.Duration
}

// old is a decision of a process that rests on a version of an object that is older than the
// writer's write of it.
type old struct{ process, kind, name, writer string }

// The ranks of edges.
const (
	ownWrite = iota
	anothersWrite
	twoEffects
	oneEffect
	worldsWrite
	noEffect
)

func (o old) words() string { return o.process + " decided on " + o.version() }

func (o old) version() string {
	whose := o.writer + "'s write of it"
	if o.writer == o.process {
		whose = "its own write"
	}
	return fmt.Sprintf("%s/%s older than %s", o.kind, o.name, whose)
}

// edgesOf plays the default schedule and returns the edges that it leaves.
func edgesOf(ctx context.Context, s *sim.Simulator, plan *scenarios.Plan) (*edges, error) {
	type reader struct{ process, kind, name string }
	since, seen, processes := make(map[reader]kube.Reading), make(map[old]bool), make(map[string]bool)
	story, outcome, err := tell(ctx, s, plan, func(d sim.Decision) {
		processes[d.Process] = true
		for _, r := range d.Reads {
			at := reader{d.Process, r.Kind.Kind, r.Name}
			if _, known := since[at]; !known {
				since[at] = r
			}
		}
		unseen(d, func(o old) { seen[o] = true })
	})
	if err == nil {
		err = outcome.Err
	}
	if err != nil {
		return nil, fmt.Errorf("find out what may come about in %s: %w", plan.Metadata.Name, err)
	}
	e := &edges{kinds: make(map[kind]int), orders: make(map[[2]int]campaign.Point), olds: make(map[old]campaign.Point)}
	for at, r := range since { // order does not matter: sorted below
		unseen(sim.Decision{Process: at.process, Reads: []kube.Reading{r}}, func(o old) {
			if _, known := e.olds[o]; known || seen[o] {
				return
			}
			rank := anothersWrite
			switch {
			case o.writer == o.process:
				rank = ownWrite
			case !processes[o.writer]:
				rank = worldsWrite
			}
			e.add(edge{Edge: campaign.Edge{Words: o.words()}, old: o, rank: rank})
		})
	}
	e.order(arrange(story, apart))
	slices.SortFunc(e.all, func(a, b edge) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.apart, b.apart), strings.Compare(a.Words, b.Words))
	})
	return e, nil
}

// unseen calls yield with each write that a decision rests on an older version than.
func unseen(d sim.Decision, yield func(old)) {
	for _, r := range d.Reads {
		for _, c := range r.Unseen() {
			if (r.Name == "" || r.Name == c.Key.Name) && c.Actor != "" {
				yield(old{d.Process, r.Kind.Kind, c.Key.Name, c.Actor})
			}
		}
	}
}

func pointOf(words string) campaign.Point {
	h := fnv.New32a()
	h.Write([]byte(words))
	return campaign.Point(h.Sum32())
}

func (e *edges) add(one edge) {
	if one.Point = pointOf(one.Words); one.old != (old{}) {
		e.olds[one.old] = one.Point
	} else {
		number := func(k kind) int {
			n, known := e.kinds[k]
			if !known {
				n = len(e.kinds)
				e.kinds[k] = n
			}
			return n
		}
		e.orders[[2]int{number(one.first), number(one.second)}] = one.Point
	}
	e.all = append(e.all, one)
}

// like is the kind of a step, whenever it was scheduled.
func like(s *steps.Step) kind {
	return kind{actor: s.Actor, class: s.Class, verb: s.Verb, object: s.Object}
}

// order adds the orders: two kinds of steps of which all of one come before all of the other, not
// too far apart, touch the same beyond a process, and come neither one after the other in one actor
// nor one because of the other.
func (e *edges) order(a *arrangement) {
	type many struct {
		kind
		first, last int
		print       steps.Footprint
	}
	var kinds []*many
	known := make(map[kind]*many)
	for _, i := range a.taken {
		k := like(&a.story[i].Step)
		m := known[k]
		if m == nil {
			m = &many{kind: k, first: i, print: a.story[i].Footprint()}
			known[k], kinds = m, append(kinds, m)
		}
		m.last = i
	}
	for _, second := range kinds {
		s := &a.story[second.first]
		because := make(map[kind]bool)
		for c := s.cause; c >= 0; c = a.story[c].cause {
			because[like(&a.story[c].Step)] = true
		}
		for _, first := range kinds {
			f := &a.story[first.last]
			if f.taken >= s.taken || s.at-f.at > apart || f.Actor == s.Actor || because[first.kind] || inTurn(&f.Step, &s.Step) || !meet(first.print, second.print) {
				continue
			}
			rank := noEffect
			switch {
			case f.Effect && s.Effect:
				rank = twoEffects
			case f.Effect || s.Effect:
				rank = oneEffect
			}
			e.add(edge{
				Edge:  campaign.Edge{Words: s.words + " came before " + f.words},
				first: first.kind, second: second.kind, rank: rank, apart: s.at - f.at,
			})
		}
	}
}

// meet reports whether one of two steps changes what the other one reads or changes, beyond a
// process and the order of its news: what that process knew is another edge.
func meet(a, b steps.Footprint) bool {
	share := func(some, others []string) bool {
		return slices.ContainsFunc(some, func(x string) bool {
			return !strings.HasPrefix(x, "process") && !strings.HasPrefix(x, "watch/") &&
				slices.ContainsFunc(others, func(y string) bool { return steps.Overlap(x, y) })
		})
	}
	return share(a.Writes, b.Writes) || share(a.Writes, b.Reads) || share(a.Reads, b.Writes)
}

// list returns the edges as the package campaign knows them.
func (e *edges) list() (all []campaign.Edge) {
	if e == nil {
		return nil
	}
	for i := range e.all {
		all = append(all, e.all[i].Edge)
	}
	return all
}

// met notes which edges one schedule brings about.
type met struct {
	*edges
	// of has the numbers of the kinds of steps that were scheduled, and first and last when one of
	// each kind was taken, counted in steps.
	of          map[steps.Name]int
	first, last []int
	taken       int
	came        map[campaign.Point]bool
}

func (e *edges) watch() *met {
	return &met{
		edges: e, of: make(map[steps.Name]int), first: make([]int, len(e.kinds)), last: make([]int, len(e.kinds)),
		came: make(map[campaign.Point]bool),
	}
}

func (m *met) scheduled(s steps.Step) {
	if n, known := m.kinds[like(&s)]; known {
		m.of[steps.Name{Actor: s.Actor, Class: s.Class, N: s.N}] = n
	}
}

func (m *met) took(name steps.Name, _ time.Duration) {
	m.taken++
	n, known := m.of[name]
	if !known {
		return
	}
	if m.last[n] = m.taken; m.first[n] == 0 {
		m.first[n] = m.taken
	}
}

func (m *met) decided(d sim.Decision) {
	unseen(d, func(o old) {
		if p, known := m.edges.olds[o]; known {
			m.came[p] = true
		}
	})
}

// all returns the edges that came about.
func (m *met) all() map[campaign.Point]bool {
	for of, p := range m.orders { // order does not matter: a set
		if first := m.first[of[1]]; first > 0 && first < m.last[of[0]] {
			m.came[p] = true
		}
	}
	return m.came
}

// reach is a strategy that looks for a schedule that brings an edge about. It holds back the one
// step until the other, or what leads to it; or the news of a process until it goes on. Then it
// draws pairs of these, or of one of these and any other deviation.
type reach struct {
	*space
	point          campaign.Point
	direct, others []scenarios.Deviation
	by             *campaign.Schedule
}

const (
	// reachable is how many schedules are played to reach an edge, unless there is another budget.
	reachable = 1000
	// nearest is for how many of a process's steps each piece of news is held back.
	nearest = 4
)

func (e *edges) reach(words string, from *space) (chosen, error) {
	i := slices.IndexFunc(e.all, func(one edge) bool { return one.Words == words })
	if i < 0 {
		return chosen{}, exit.BadInput(fmt.Errorf("reach %q: the story has no such order or decision among its %d; search it, and take the words of one that never came about", words, len(e.all)))
	}
	a := arrange(from.steps, from.bound)
	r := &reach{space: from, point: e.all[i].Point}
	r.aim(a, &e.all[i])
	for i := range from.steps {
		r.others = append(r.others, a.of(i)...)
	}
	return chosen{Strategy: r, what: "schedules towards " + words, total: reachable, endless: true, learns: true}, nil
}

// aim collects the direct deviations.
func (r *reach) aim(a *arrangement, to *edge) {
	hold := func(i, j int) {
		s := &a.story[i]
		most := a.bound
		if latest := s.Latest(); latest > 0 {
			most = min(most, latest)
		}
		d := scenarios.Deviation{Step: s.Name(), After: a.story[j].Name(), Delay: scenarios.Duration(most)}
		if i != j && a.story[j].at <= s.at+most && !slices.Contains(r.direct, d) {
			r.direct = append(r.direct, d)
		}
	}
	// chain holds back a step until another one, and what leads to it, unless that leads to both.
	chain := func(i, j int) {
		leads := make(map[int]bool)
		for c := j; c >= 0; c = a.story[c].cause {
			leads[c] = true
		}
		for ; i >= 0 && !leads[i]; i = a.story[i].cause {
			hold(i, j)
		}
	}
	late := func(i int) {
		r.direct = append(r.direct, slices.DeleteFunc(Singles([]steps.Step{a.story[i].Step}), func(d scenarios.Deviation) bool { return time.Duration(d.Delay) > a.bound })...)
	}
	of := func(which func(*told) bool) (some []int) {
		for _, i := range a.taken {
			if which(&a.story[i]) {
				some = append(some, i)
			}
		}
		return some
	}
	if to.old == (old{}) {
		firsts, seconds := of(func(t *told) bool { return like(&t.Step) == to.first }), of(func(t *told) bool { return like(&t.Step) == to.second })
		for _, i := range slices.Backward(firsts) {
			for _, j := range seconds {
				chain(i, j)
			}
		}
		for _, i := range firsts {
			late(i) // what failed is done again
		}
		return
	}
	place := steps.PlaceProcess + to.old.process
	news := of(func(t *told) bool {
		return t.Class == steps.ClassDeliver && t.Place == place && t.Object.Kind == to.old.kind &&
			(t.cause < 0 || a.story[t.cause].Object == steps.Object{Kind: to.old.kind, Name: to.old.name})
	})
	works := of(func(t *told) bool { return t.Place == place && t.Class != steps.ClassDeliver })
	writes := of(func(t *told) bool { return t.Effect && t.Object == steps.Object{Kind: to.old.kind, Name: to.old.name} })
	// It learns late, or what it reads otherwise than from its cache is written late.
	for _, i := range news {
		behind := slices.DeleteFunc(slices.Clone(works), func(j int) bool { return a.story[j].taken < a.story[i].taken })
		for _, j := range behind[:min(nearest, len(behind))] {
			hold(i, j)
		}
		late(i)
	}
	for _, i := range works {
		for _, j := range writes {
			if a.story[j].taken > a.story[i].taken {
				hold(i, j)
			}
		}
	}
	for _, i := range works {
		late(i)
	}
}

// Next implements campaign.Strategy.
func (r *reach) Next(n int) (campaign.Schedule, bool) {
	s := campaign.Schedule{Number: n}
	switch {
	case r.by != nil || len(r.direct) == 0:
		return s, false
	case n < len(r.direct):
		s.Deviations = r.direct[n : n+1]
		return s, true
	}
	stream := scenarios.Stream(r.seedOf(n), "reach")
	for range 100 {
		from := r.direct
		if len(s.Deviations) > 0 && stream.IntN(2) == 0 {
			from = r.others
		}
		d := from[stream.IntN(len(from))]
		if s.Deviations = distinct(append(s.Deviations, d)); len(s.Deviations) == 2 {
			break
		}
	}
	return s, true
}

// Learn implements campaign.Strategy.
func (r *reach) Learn(s campaign.Schedule, result campaign.Result) {
	if _, came := slices.BinarySearch(result.Edges, r.point); came && r.by == nil {
		r.by = &s
	}
}
