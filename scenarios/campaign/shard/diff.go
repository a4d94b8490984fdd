package shard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// Difference says how what a campaign found differs from what an earlier one did.
type Difference struct {
	// New are findings that the earlier one hadn't, Gone those that it alone had, and Rarer those
	// that less than half as many of the schedules came to.
	New, Gone, Rarer []Finding
	// Less says what was played or put to the test less than half as often.
	Less []string
}

const (
	// lessBy is the factor by which something has to be less, so that chance doesn't make it so,
	// and enough is how often it has to have been before.
	lessBy = 2
	enough = 20
)

// Diff compares a campaign with an earlier one.
func Diff(before, after *Result) (d Difference) {
	known := func(r *Result, key string) int {
		return slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Key == key })
	}
	for _, f := range after.Findings {
		i := known(before, f.Key)
		switch {
		case i < 0:
			d.New = append(d.New, f)
		case f.Count*before.Findings[i].Schedules*lessBy < before.Findings[i].Count*f.Schedules:
			d.Rarer = append(d.Rarer, f)
		}
	}
	for _, f := range before.Findings {
		if known(after, f.Key) < 0 {
			d.Gone = append(d.Gone, f)
		}
	}
	was, is := before.played(), after.played()
	for _, story := range slices.Sorted(maps.Keys(was)) {
		if is[story]*lessBy < was[story] {
			d.Less = append(d.Less, fmt.Sprintf("%s: %s, and %d before", story, phrase.Count(is[story], "schedule"), was[story]))
		}
	}
	for _, t := range before.Tested {
		var now Tested
		if i := slices.IndexFunc(after.Tested, func(o Tested) bool { return o.Story == t.Story && o.Guarantee == t.Guarantee }); i >= 0 {
			now = after.Tested[i]
		}
		// A share: a story that is played less often has said so.
		if is[t.Story] > 0 && t.Schedules >= enough && now.Schedules*was[t.Story]*lessBy < t.Schedules*is[t.Story] {
			d.Less = append(d.Less, fmt.Sprintf("%s: %s was put to the test in %d of %s, and in %d of %d before",
				t.Story, t.Guarantee, now.Schedules, phrase.Count(is[t.Story], "schedule"), t.Schedules, was[t.Story]))
		}
	}
	return d
}

// played is how many schedules of each story were played.
func (r *Result) played() map[string]int {
	all := make(map[string]int)
	for _, s := range r.Searches {
		all[s.Story] += s.Tally.Tried
	}
	return all
}

// Code is the exit code of a comparison: findings that were known don't count.
func (d *Difference) Code() int {
	code := exit.Held
	if len(d.Less) > 0 {
		code = exit.Unknown
	}
	return exit.Worse(code, codeOf(d.New))
}

// codeOf is the exit code of findings.
func codeOf(findings []Finding) int {
	code := exit.Held
	for _, f := range findings {
		if f.Guarantee != "" {
			return exit.Violated
		}
		code = exit.Unknown
	}
	return code
}

// ByGuarantee adds up how often each guarantee was put to the test in all stories, in the order of
// their names.
func (r *Result) ByGuarantee() []Tested {
	sums := make(map[string]Tested)
	for _, t := range r.Tested {
		sum := sums[t.Guarantee]
		sum.Guarantee, sum.Rulings, sum.Chances = t.Guarantee, sum.Plus(t.Rulings), sum.Chances+t.Chances
		sums[t.Guarantee] = sum
	}
	return slices.SortedFunc(maps.Values(sums), func(a, b Tested) int { return cmp.Compare(a.Guarantee, b.Guarantee) })
}
