package search

import (
	"fmt"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/sim/steps"
)

// portfolio shares a budget among other strategies by what they newly cover. Those that have an end
// are played to it if the budget suffices. It implements campaign.Covering.
type portfolio struct {
	arms []*arm
	// total is the budget.
	total int
	bound time.Duration
	// reached has every point that a schedule reached; of has the arm of each schedule under way.
	reached map[campaign.Point]bool
	of      map[int]*arm
}

// arm is a strategy of a portfolio.
type arm struct {
	campaign.Strategy
	name string
	// size is how many schedules it has, 0 for any number; given is how many it was asked for.
	size, given int
	// played counts the schedules that came back, and fresh those of them that reached what none
	// had before.
	played, fresh int
	// last says that its turn comes when all single deviations were given, and ended that it has no
	// more schedules. About is how many it may have, with a deviation.
	last, ended      bool
	about, deviation float64
	// reached has the points of each of its schedules, if it doesn't learn.
	reached []campaign.Points
	// even has the deviations of a list in an order of which any prefix is spread evenly, and at
	// has the place of each in reached.
	even []scenarios.Deviation
	at   map[scenarios.Deviation]int
}

// left is how many schedules an arm still has, if it has an end.
func (a *arm) left() int { return max(0, a.size-a.given) }

// yield is the share of the arm's schedules that reached something new. One that was tried little
// is taken to be good.
func (a *arm) yield() float64 { return float64(a.fresh+1) / float64(a.given+1) }

const (
	// 1 in turnOneIn schedules goes to the arms in turn, so that none starves.
	turnOneIn = 4
	// A list of no more schedules than 1 in littleOneIn is played first.
	littleOneIn = 10
	// Where no budget is given, 1 in endlessOneIn schedules goes to the arms that have no end.
	endlessOneIn = 5
)

func newPortfolio(from *space) chosen {
	a := arrange(from.steps, from.bound)
	p := &portfolio{bound: from.bound, reached: make(map[campaign.Point]bool), of: make(map[int]*arm)}
	all := 0
	for _, list := range []struct {
		name string
		of   func(i int) []scenarios.Deviation
	}{{"orders", a.orders}, {"faults", a.faults}, {"lengths", a.lengths}, {"ages", a.ages}} {
		order, even := ordered(from.steps, list.of)
		all += len(order)
		if len(order) > 0 {
			p.arms = append(p.arms, &arm{
				Strategy: campaign.Listed{Order: order}, name: list.name, size: len(order),
				even: even, at: make(map[scenarios.Deviation]int),
			})
		}
	}
	total := all + all/(endlessOneIn-1)
	if from.depth > 1 {
		order, _ := ordered(from.steps, a.of)
		combinations := newTree(from, a, order)
		of := &arm{Strategy: combinations, name: "combinations", last: true}
		if p.arms = append(p.arms, of); from.whole {
			of.about, of.deviation = combinations.forecast(descents)
			total = campaign.Endless
		}
	}
	if !from.whole {
		p.arms = append(p.arms, &arm{Strategy: newGuided(from).Strategy, name: "coverage"}, &arm{Strategy: newRandom(from).Strategy, name: "random"})
	}
	return chosen{
		Strategy: p, total: total, endless: true, learns: true, budget: func(total int) { p.total = total },
		what: fmt.Sprintf("schedules around %d steps from seed %d", len(from.steps), from.seed),
	}
}

// Next implements campaign.Strategy.
func (p *portfolio) Next(n int) (campaign.Schedule, bool) {
	for a := p.choose(n); a != nil; a = p.choose(n) {
		if s, ok := a.Next(a.given); ok {
			a.given++
			s.Number, p.of[n] = n, a
			return s, true
		}
		a.ended = true
	}
	return campaign.Schedule{}, false
}

// choose returns the arm of the n-th schedule, or nil if none has any more: the one that yields
// most, and now and then each in turn. What takes little of the budget comes first. When the budget
// is no more than what is left of the arms that have an end, it is theirs.
func (p *portfolio) choose(n int) *arm {
	left, listed := 0, 0
	for _, a := range p.arms {
		left, listed = left+a.left(), listed+a.size
	}
	only := p.total >= listed && p.total-n <= left
	var may []*arm
	for _, a := range p.arms {
		if a.left() > 0 && a.size <= p.total/littleOneIn {
			return a
		}
		if a.left() > 0 || a.size == 0 && !only && !a.ended && (left == 0 || !a.last) {
			may = append(may, a)
		}
	}
	if len(may) == 0 {
		return nil
	}
	if n%turnOneIn == 0 {
		return may[n/turnOneIn%len(may)]
	}
	best := may[0]
	for _, a := range may[1:] {
		if a.yield() > best.yield() {
			best = a
		}
	}
	return best
}

// Learn implements campaign.Strategy. What one strategy has found is there for all.
func (p *portfolio) Learn(s campaign.Schedule, r campaign.Result) {
	fresh := false
	for _, point := range r.Reached {
		if !p.reached[point] {
			fresh, p.reached[point] = true, true
		}
	}
	of := p.of[s.Number]
	if of.played++; fresh {
		of.fresh++
	}
	if !campaign.Learns(of.Strategy) {
		if of.reached = append(of.reached, r.Reached); of.at != nil {
			of.at[s.Deviations[0]] = len(of.reached) - 1
		}
	}
	delete(p.of, s.Number)
	for _, a := range p.arms {
		a.Strategy.Learn(s, r)
	}
}

// likely estimates how many points all schedules of a list reach; 0 if that can't be said. Those
// that are spread evenly stand for the ones that are left: the others were chosen for their kind.
func (a *arm) likely() (all, deviation float64) {
	var sample []campaign.Points
	probe := make(map[int]bool)
	for _, d := range a.even {
		i, ok := a.at[d]
		if !ok {
			break
		}
		sample, probe[i] = append(sample, a.reached[i]), true
	}
	for i, points := range a.reached {
		if !probe[i] {
			sample = append(sample, points)
		}
	}
	if e := campaign.Estimate(sample, len(probe), a.size); e.Can {
		return e.All, e.Deviation
	}
	return 0, 0
}

// Shares implements campaign.Covering.
func (p *portfolio) Shares() (all []campaign.Share) {
	for _, a := range p.arms {
		of := a.size
		if a.ended {
			of = a.given
		}
		share := campaign.Share{Name: a.name, Played: a.played, Of: of, Fresh: a.fresh, About: int(a.about), Deviation: int(a.deviation)}
		seen := make(map[campaign.Point]bool)
		for _, points := range a.reached {
			for _, point := range points {
				seen[point] = true
			}
		}
		share.Reached = len(seen)
		if of != a.played {
			share.Likely, share.GiveOrTake = a.likely()
		}
		all = append(all, share)
	}
	return all
}

// Sample implements campaign.Covering.
func (p *portfolio) Sample(n int) (some []scenarios.Deviation) {
	var all []scenarios.Deviation
	for _, a := range p.arms {
		if list, ok := a.Strategy.(campaign.Listed); ok {
			all = append(all, list.Order...)
		}
	}
	for i := range min(n, len(all)) {
		some = append(some, all[i*len(all)/n])
	}
	return some
}

// Claims implements campaign.Covering.
func (p *portfolio) Claims() (all []campaign.Claim) {
	single := campaign.Claim{
		With: "one deviation", Whole: true,
		Text: fmt.Sprintf("each step once after each that depends on it within %s, each fault of each step, other lengths of what takes its time by itself, and the last answer before each effect late; of what recurs while no controller decides anything new, the first and the last time", p.bound),
	}
	for _, a := range p.arms {
		single.Whole = single.Whole && a.left() == 0
		if t, ok := a.Strategy.(*tree); ok {
			all = append(all, campaign.Claim{
				With: fmt.Sprintf("up to %d deviations", t.depth), Whole: a.ended,
				Text: "each class of schedules at least once, of deviations whose footprints meet, or of which one makes the other possible",
			})
		}
	}
	return append([]campaign.Claim{single}, all...)
}

// faults, lengths and ages are the other single deviations of a step.
func (a *arrangement) faults(i int) []scenarios.Deviation {
	return a.singles(i, func(d scenarios.Deviation) bool { return d.Fault != "" })
}

func (a *arrangement) lengths(i int) []scenarios.Deviation {
	return a.singles(i, func(d scenarios.Deviation) bool { return d.Fault == "" && a.story[i].Class.Lasts() })
}

// ages are the last answers before effects, late by seconds: controllers have no finer limits for
// how old a thing may be.
func (a *arrangement) ages(i int) []scenarios.Deviation {
	return a.singles(i, func(d scenarios.Deviation) bool {
		return d.Fault == "" && a.decides[i] && time.Duration(d.Delay) >= time.Second
	})
}

func (a *arrangement) singles(i int, which func(scenarios.Deviation) bool) (some []scenarios.Deviation) {
	if a.ends[i] {
		for _, d := range Singles([]steps.Step{a.story[i].Step}) {
			if time.Duration(d.Delay) <= a.bound && which(d) {
				some = append(some, d)
			}
		}
	}
	return some
}
