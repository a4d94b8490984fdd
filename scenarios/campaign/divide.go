package campaign

import (
	"fmt"
	"slices"

	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// Fact is something that was true in a schedule.
type Fact struct {
	Point Point
	// Words are a clause: "reboot's read of X came before user's patch of X".
	Words string
	// Needs are points that some schedule that held has to have reached, or else the fact says only
	// that the schedules that failed went another way.
	Needs []Point
}

const (
	// Schedules that failed alike, those that held, kinds of failures, and facts, as many as are
	// looked at for what divides them.
	dividedFailed, dividedHeld, dividedKinds, dividedFacts = 200, 1000, 6, 600
	// Pairs are made of the first pairedFacts facts.
	pairedFacts = 60
)

// cameOut is a schedule that was played and how it came out.
type cameOut struct {
	Schedule
	verdict invariant.Verdict
	// of is the group that it belongs to, if it failed: a signature and a cause.
	of Failure
}

// Divide looks for what divides the failures of a search from the schedules that held, and notes it
// in the tally. It has both played again, to ask what was true in them.
func (s *Search) Divide(workers Workers, t *Tally) error {
	if s.Explain == nil || len(t.Failed) == 0 {
		return nil
	}
	of := func(most int, which func(cameOut) bool) (some []Schedule) {
		var all []Schedule
		for _, p := range s.played {
			if which(p) {
				all = append(all, p.Schedule)
			}
		}
		for i := range min(most, len(all)) {
			some = append(some, all[i*len(all)/min(most, len(all))])
		}
		return some
	}
	slices.SortFunc(s.played, func(a, b cameOut) int { return a.Number - b.Number })
	failures := t.Failures()
	failures = failures[:min(dividedKinds, len(failures))]
	facts, asked := make([][]Fact, len(failures)), Points{}
	for i, f := range failures {
		all, err := s.Explain(f.Schedule)
		if err != nil {
			return err
		}
		facts[i] = all[:min(dividedFacts, len(all))]
		for _, fact := range facts[i] {
			asked = append(append(asked, fact.Point), fact.Needs...)
		}
	}
	slices.Sort(asked)
	asked = slices.Compact(asked)
	held := s.ask(workers, asked, of(dividedHeld, func(p cameOut) bool { return p.verdict == invariant.Held }))
	for i, f := range failures {
		failed := s.ask(workers, asked, of(dividedFailed, func(p cameOut) bool { return f.alike(p.of) }))
		at := slices.IndexFunc(t.Failed, f.alike)
		t.Failed[at].Divides = divides(facts[i], failed, held)
		if shrunk := t.Failed[at].Schedule.Shrunk; shrunk != nil {
			shrunk.Divides = t.Failed[at].Divides
		}
	}
	return nil
}

// divides puts into words which of these facts, or else which two, are true in each schedule that
// failed and in none that held.
func divides(facts []Fact, failed, held []Points) string {
	if len(failed) == 0 || len(held) == 0 {
		return ""
	}
	has := func(p Points, point Point) bool { _, ok := slices.BinarySearch(p, point); return ok }
	count := func(all []Points, points ...Point) (n int) {
		for _, p := range all {
			if !slices.ContainsFunc(points, func(point Point) bool { return !has(p, point) }) {
				n++
			}
		}
		return n
	}
	say := func(words string) string {
		return fmt.Sprintf("failed in %d of %s in which %s, and held in %d of %d others", len(failed), phrase.Count(len(failed), "schedule"), words, len(held), len(held))
	}
	var always []Fact
	for _, f := range facts {
		if count(failed, f.Point) < len(failed) || len(f.Needs) > 0 && count(held, f.Needs...) == 0 {
			continue
		}
		if count(held, f.Point) == 0 {
			return say(f.Words)
		}
		always = append(always, f)
	}
	always = always[:min(pairedFacts, len(always))]
	for i, f := range always {
		for _, g := range always[:i] {
			if count(held, f.Point, g.Point) == 0 {
				return say(g.Words + ", and " + f.Words)
			}
		}
	}
	return fmt.Sprintf("no order, nothing unknown and no fault, nor any two of these, divides %s from %d that held", phrase.Count(len(failed), "schedule"), len(held))
}

// ask has schedules played again, and returns which of these points each of them reached.
func (s *Search) ask(workers Workers, points Points, schedules []Schedule) (all []Points) {
	base, given := s.variants+1, 0
	all = make([]Points, len(schedules))
	for come := 0; come < len(schedules); {
		for given < len(schedules) && s.waiting < Ahead {
			next := schedules[given]
			s.variants++
			next.Variant, next.Ask, next.Shrunk = s.variants, points, nil
			s.waiting++
			workers.Give(next)
			given++
		}
		result, ok := workers.Take()
		if !ok {
			return nil
		}
		s.waiting--
		if result.Variant >= base { // else it is left over
			all[result.Variant-base] = result.Reached
			come++
		}
	}
	return all
}
