package campaign

import "github.com/fencelab/fencelab/scenarios"

// Strategy chooses the schedules of a search.
//
// A search calls it in one order, however many workers there are and however fast
// they are: Next for the schedules 0 to Ahead-1, and then in turns Learn for the
// schedule k and Next for the schedule k+Ahead. So what it chooses depends on
// nothing but what it is made of and what came of its schedules.
type Strategy interface {
	// Next returns the n-th schedule, or false when there is none any more.
	Next(n int) (Schedule, bool)
	// Learn takes in the result of a schedule.
	Learn(Schedule, Result)
}

// Schedule is one schedule of a story, as plain data: where it is played makes no
// difference.
type Schedule struct {
	// Number is its place in the search, from 0.
	Number int `json:"number"`
	// Seed draws values from the ranges of the scenario; 0 leaves them as the plan has them.
	Seed uint64 `json:"seed,omitempty"`
	// Draw says that deviations are drawn from the seed while it is played, and come
	// before those that it has.
	Draw bool `json:"draw,omitempty"`
	// Deviations are where it leaves the default; those that were drawn, when it was
	// played.
	Deviations []scenarios.Deviation `json:"deviations,omitempty"`
	// Plan takes the place of the story's, while that is shrunk, too.
	Plan *scenarios.Plan `json:"plan,omitempty"`
	// Variant numbers the schedules that are tried in place of this one while it is shrunk, from 1;
	// 0 is the schedule itself.
	Variant int `json:"variant,omitempty"`
	// Shrunk says how its deviations were reduced to these, if they were.
	Shrunk *scenarios.Shrunk `json:"-"`
}

// Unteachable is a strategy that learns nothing: its n-th schedule is the same whatever came of
// others, and whether those were asked for or not.
type Unteachable struct{}

// Learn does nothing.
func (Unteachable) Learn(Schedule, Result) {}

func (Unteachable) unteachable() {}

// Learns reports whether a strategy chooses by what came of its earlier schedules. Otherwise any of
// them can be played without the others.
func Learns(s Strategy) bool {
	_, unteachable := s.(interface{ unteachable() })
	return !unteachable
}

// Listed tries deviations one at a time, in the order of its list.
type Listed struct {
	Unteachable
	Order []scenarios.Deviation
}

func (s Listed) Next(n int) (Schedule, bool) {
	if n >= len(s.Order) {
		return Schedule{}, false
	}
	return Schedule{Number: n, Deviations: s.Order[n : n+1]}, true
}

// Over returns a search of single deviations that the caller has chosen, for worlds in which this
// package can't choose. It plays the given number of them, or all for 0. What describes them.
func Over(plan *scenarios.Plan, singles []scenarios.Deviation, schedules int, what string) *Search {
	s := &Search{Strategy: Listed{Order: singles}, Story: &Story{Plan: plan}, What: what}
	s.Bound(len(singles), schedules)
	return s
}
