package campaign

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

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
	// looked at for what divides them. Of each kind, explained schedules beside the first have the
	// facts.
	dividedFailed, dividedHeld, dividedKinds, dividedFacts = 200, 1000, 6, 1500
	explained                                              = 2
	// 1 in dividedShare schedules of a large search is played again because it held, and as many
	// because they failed; dividedFew at least.
	dividedShare, dividedFew = 4, 200
	// Pairs are made of the first pairedFacts facts.
	pairedFacts = 400
	// Failures that have nothing in common are divided by up to dividedParts facts, each true in at
	// least two of them and in 1 in dividedOneIn.
	dividedParts, dividedOneIn = 3, 5
	// A fact that 1 in nearOneIn of the schedules that held have, too, is still worth a mention.
	nearOneIn = 20
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
	alike := func(most int, f Failure) []Schedule {
		return of(most, func(p cameOut) bool { return f.alike(p.of) })
	}
	usual := make(map[Point]int) // a fact of the default schedule divides nothing by itself
	told, err := s.Explain(Schedule{Number: 1})
	if err != nil {
		return err
	}
	for _, f := range told {
		usual[f.Point] = 1
	}
	failures := t.Failures()
	failures = failures[:min(dividedKinds, len(failures))]
	share := func(most, kinds int) int { return min(most, max(dividedFew, t.Tried/dividedShare)/kinds) }
	facts, asked := make([][]Fact, len(failures)), Points{}
	for i, f := range failures {
		in := make(map[Point]int)
		for _, schedule := range append([]Schedule{f.Schedule}, alike(explained, f)...) {
			all, err := s.Explain(schedule)
			if err != nil {
				return err
			}
			for _, fact := range all {
				if in[fact.Point]++; in[fact.Point] == 1 {
					facts[i] = append(facts[i], fact)
				}
			}
		}
		slices.SortStableFunc(facts[i], func(a, b Fact) int { return cmp.Or(in[b.Point]-in[a.Point], usual[a.Point]-usual[b.Point]) })
		facts[i] = facts[i][:min(dividedFacts, len(facts[i]))]
		for _, fact := range facts[i] {
			asked = append(append(asked, fact.Point), fact.Needs...)
		}
	}
	slices.Sort(asked)
	asked = slices.Compact(asked)
	held := s.ask(workers, asked, of(share(dividedHeld, 1), func(p cameOut) bool { return p.verdict == invariant.Held }))
	for i, f := range failures {
		failed := s.ask(workers, asked, alike(share(dividedFailed, len(failures)), f))
		at := slices.IndexFunc(t.Failed, f.alike)
		t.Failed[at].Divides = divides(facts[i], failed, held)
		if shrunk := t.Failed[at].Schedule.Shrunk; shrunk != nil {
			shrunk.Divides = t.Failed[at].Divides
		}
	}
	return nil
}

// divides puts into words which of these facts, or else which two, are true in each schedule that
// failed and in none that held. Where there is none, several of them may divide the parts of what
// failed.
func divides(facts []Fact, failed, held []Points) string {
	if len(failed) == 0 || len(held) == 0 {
		return ""
	}
	inFailed, inHeld := setsOf(failed), setsOf(held)
	facts = slices.DeleteFunc(slices.Clone(facts), func(f Fact) bool {
		together := whole(len(held))
		for _, need := range f.Needs {
			together = together.and(inHeld[need])
		}
		return together.count() == 0
	})
	var parts []string
	left := whole(len(failed))
	for len(parts) < dividedParts && left.count() > 0 {
		words, covered := divide(facts, inFailed, inHeld, left)
		if n := covered.count(); n < left.count() && (n < 2 || n < len(failed)/dividedOneIn) {
			break
		}
		parts, left = append(parts, words), left.without(covered)
	}
	others := fmt.Sprintf("held in %d of %d others", len(held), len(held))
	switch n, rest := len(failed)-left.count(), left.count(); {
	case len(parts) > 0 && rest == 0:
		return fmt.Sprintf("failed in %d of %s in which %s, and %s", n, phrase.Count(n, "schedule"), strings.Join(parts, ", or in which "), others)
	case len(parts) > 0:
		return fmt.Sprintf("failed in %d of %s in which %s, and %s; nothing divides %d more that failed from these", n, phrase.Count(n, "schedule"), strings.Join(parts, ", or in which "), others, rest)
	}
	text := fmt.Sprintf("no order, nothing unknown and no fault, nor any two of these, divides %s from %d that held", phrase.Count(len(failed), "schedule"), len(held))
	nearest, least := "", len(held)/nearOneIn+1
	for _, f := range facts {
		if n := inHeld[f.Point].count(); inFailed[f.Point].count() == len(failed) && n < least {
			nearest, least = f.Words, n
		}
	}
	if nearest != "" {
		text += fmt.Sprintf("; the nearest is that %s, as in %d of those", nearest, least)
	}
	return text
}

// divide returns the fact that is true in most of what is left of the schedules that failed, and in
// none that held; or two facts if both are true in all of them, and no single one is.
func divide(facts []Fact, inFailed, inHeld map[Point]set, left set) (words string, covered set) {
	most := 0
	for _, f := range facts {
		if inHeld[f.Point].count() > 0 {
			continue
		}
		if in := inFailed[f.Point].and(left); in.count() > most {
			words, covered, most = f.Words, in, in.count()
		}
	}
	if most == left.count() {
		return words, covered
	}
	var always []Fact
	for _, f := range facts {
		if len(always) < pairedFacts && inFailed[f.Point].and(left).count() == left.count() {
			always = append(always, f)
		}
	}
	for i, f := range always {
		for _, g := range always[:i] {
			if inHeld[f.Point].and(inHeld[g.Point]).count() == 0 {
				return g.Words + ", and " + f.Words, left
			}
		}
	}
	return words, covered
}

// set is a set of schedules, by their places.
type set []uint64

// setsOf returns in which schedules each point was reached.
func setsOf(schedules []Points) map[Point]set {
	of := make(map[Point]set)
	for i, points := range schedules {
		for _, p := range points {
			if of[p] == nil {
				of[p] = make(set, (len(schedules)+63)/64)
			}
			of[p][i/64] |= 1 << (i % 64)
		}
	}
	return of
}

// whole is the set of all n schedules.
func whole(n int) set {
	s := make(set, (n+63)/64)
	for i := range n {
		s[i/64] |= 1 << (i % 64)
	}
	return s
}

func (s set) count() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// and returns what is in both sets. One that is nil is empty.
func (s set) and(o set) set {
	both := make(set, min(len(s), len(o)))
	for i := range both {
		both[i] = s[i] & o[i]
	}
	return both
}

func (s set) without(o set) set {
	left := slices.Clone(s)
	for i := range o {
		left[i] &^= o[i]
	}
	return left
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
