package campaign

import (
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/fencelab/fencelab/scenarios"
)

// Search is the schedules of one scenario that are to be tried.
type Search struct {
	Strategy
	Story *Story
	// Total is how many schedules are to be tried, and All how many there are with a
	// strategy that ends by itself: a sweep of a long story has more than anybody can wait
	// for.
	Total, All int
	// What describes the schedules: "single deviations from 201 steps".
	What string
	// Edges may come about in its schedules, the gravest first, where the strategy learns. Aim has
	// the words of the one that is to come about, or "".
	Edges []Edge
	Aim   string
	// Over ends the search when it returns true: what was played is all then. Nil never does.
	Over func() bool
	// Until ends the search with the first schedule of which it returns true; nil: none does.
	Until func(Schedule, Result) bool

	// Branching, which is nil unless combinations are played to their end, has all schedules, and
	// the strategy those of a single deviation.
	Branching Branching

	// Explainer, which may be nil, says what the deviations of schedules come to.
	Explainer Explainer

	// Explaining, which may be nil, is called with the number of schedules tried so far to explain
	// a failure, and their limit.
	Explaining func(tried, most int)
	// Took is how long the search took, without its explanation.
	Took time.Duration

	// One says that only the first failure of a tally is shrunk.
	One bool

	// played are the schedules that can be played again as they were.
	played []cameOut
	// waiting counts the schedules that the workers have yet to report on, and variants counts
	// those of them that were tried in place of others.
	waiting, variants int
}

// Edge is something between two steps that the default schedule doesn't have: that they come in the
// other order, or that a decision rests on a version of an object that is older than a write of it.
type Edge struct {
	Point Point
	Words string
}

// Gaps are the edges that no schedule has brought about, in words, the gravest first.
func (s *Search) Gaps(t Tally) (words []string) {
	for _, e := range s.Edges {
		if t.Edges[e.Point] == 0 {
			words = append(words, e.Words)
		}
	}
	return words
}

// Endless is the Total of a search that ends otherwise.
const Endless = math.MaxInt32

// Branching is schedules in branches that need nothing of each other, each of any number.
type Branching interface {
	// Branches is how many there are.
	Branches() int
	// Branch returns the schedules of one.
	Branch(i int) iter.Seq[Schedule]
	// Forecast says about how many schedules there are in all.
	Forecast() int
}

// Covering is a strategy that says what it covers.
type Covering interface {
	// Shares are its parts, and how far each has come.
	Shares() []Share
	// Claims says in words what the parts with an end come to.
	Claims() []Claim
	// Sample returns single deviations, at most n, that are spread over those parts.
	Sample(n int) []scenarios.Deviation
}

// Claim is a part of a search in words, and whether the search has covered it.
type Claim struct {
	With  string
	Whole bool
	Text  string
}

// Share is a part of a search.
type Share struct {
	Name string `json:"name"`
	// Played is how many of its schedules came back, of all that there are; 0 for any number.
	Played int `json:"schedules"`
	Of     int `json:"outOf,omitempty"`
	// About is how many there may be, give or take a deviation, where that was foretold.
	About     int `json:"about,omitempty"`
	Deviation int `json:"deviation,omitempty"`
	// Fresh is how many of them reached what none had before.
	Fresh int `json:"fresh"`
	// Reached is how many points they reached, for a part that doesn't learn. Until its end, Likely
	// is how many all of them will, give or take a deviation; 0 where that can't be said.
	Reached    int     `json:"reached,omitempty"`
	Likely     float64 `json:"likely,omitempty"`
	GiveOrTake float64 `json:"giveOrTake,omitempty"`
}

// Bound limits a search to the given number of schedules, of all that there are; 0 plays all.
func (s *Search) Bound(all, schedules int) {
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
	// Take returns the result of a schedule as soon as one has been played. It returns false when
	// no more will come because the workers were stopped or failed.
	Take() (Result, bool)
}

// Run has the schedules played and adds up their results. Done, which may be nil, is called with
// the tally so far.
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
			s.waiting++
			workers.Give(schedule)
		} else {
			s.Total = given // there are no more
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
		s.waiting--
		chosen := under[result.Number]
		schedule := chosen.Played(result)
		under[result.Number], early[result.Number] = schedule, result
		tally.Add(chosen, result)
		s.note(chosen, result)
		if done != nil {
			done(tally)
		}
		if s.Over != nil && s.Over() {
			s.Total = tally.Tried
			break
		}
		if s.Until != nil && s.Until(schedule, result) {
			break
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

// note remembers a schedule that can be played again as it was, for what divides it from others.
func (s *Search) note(chosen Schedule, r Result) {
	if whole := !chosen.Draw || len(r.Drawn) > 0; whole && s.Explainer != nil {
		s.played = append(s.played, cameOut{chosen.Played(r), r.Verdict, Failure{Signature: r.Signature, Cause: r.Cause}})
	}
}

// Replay has schedules of the search played again, each with a number of its own.
func (s *Search) Replay(workers Workers, schedules []Schedule) (t Tally) {
	chosen, given := make(map[int]Schedule), 0
	for range schedules {
		for given < len(schedules) && s.waiting < Ahead {
			chosen[schedules[given].Number] = schedules[given]
			workers.Give(schedules[given])
			given, s.waiting = given+1, s.waiting+1
		}
		result, ok := workers.Take()
		if !ok {
			break
		}
		s.waiting--
		t.Add(chosen[result.Number], result)
		s.note(chosen[result.Number], result)
	}
	return t
}

// Played returns the schedule with the deviations that were drawn, as far as the result records
// them.
func (s Schedule) Played(r Result) Schedule {
	if s.Draw {
		s.Draw, s.Deviations = false, r.Drawn
	}
	return s
}

// Describe says what a search has tried: "834 single deviations from 201 steps", or "500 of
// 71180 single deviations from 6960 steps".
func (s *Search) Describe(tried int) string {
	text := fmt.Sprintf("%d %s", tried, s.What)
	if s.Partial() {
		text = fmt.Sprintf("%d of %d %s", tried, s.All, s.What)
	}
	switch {
	case tried < s.Total && s.Total == Endless:
		text += " (interrupted)"
	case tried < s.Total:
		text += fmt.Sprintf(" (interrupted, of %d)", s.Total)
	}
	return text
}
