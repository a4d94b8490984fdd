package campaign

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
)

const (
	// shrinkAtOnce is the number of candidates under way at a time. The first of them that fails is
	// taken, and the others were played for nothing, so that more would be waste.
	shrinkAtOnce = 4
	// shrinkMost bounds how many schedules are played to shrink one.
	shrinkMost = 2000
)

// Shrink reduces the schedules of the failures that a report shows to what they need. It uses the
// workers of the search, which has ended. Its findings don't change the counts.
//
// The deviations that a schedule needs are the cause of its failure, and group it anew. At most
// twice as many are shrunk as are shown, since some turn out to be of one group.
func (s *Search) Shrink(workers Workers, t *Tally) {
	for range 2 * failuresShown {
		failures := t.Failures()
		i := slices.IndexFunc(failures, func(f Failure) bool { return f.Schedule.Shrunk == nil })
		if i < 0 || i >= failuresShown {
			return
		}
		trials := &trials{workers: workers, signature: failures[i].Signature, most: shrinkMost, said: s.Explaining, waiting: &s.waiting, variants: &s.variants}
		if s.regroup(t, failures[i], trials.shrink(failures[i].Schedule)); s.One {
			return
		}
	}
}

// regroup files a failure under the cause of the schedule that is left of its first. Groups of that
// cause are one, and those that no deviation was needed for. Schedules of several deviations that
// have none of this cause make a group of their own, whose cause isn't known.
func (s *Search) regroup(t *Tally, f Failure, left Schedule) {
	was := f
	if f.Schedule = left; f.Invariant != "" {
		f.Cause = CauseOf(left.Deviations)
	}
	t.Failed = slices.DeleteFunc(t.Failed, was.alike)
	var others *Failure
	for i := range s.played {
		p := &s.played[i]
		switch {
		case p.of.Signature != f.Signature, !was.alike(p.of) && f.Cause != "":
		case f.Cause == "" && !slices.ContainsFunc(t.Failed, func(g Failure) bool { return g.alike(p.of) && g.Schedule.Shrunk != nil }):
			p.of.Cause = ""
		case !was.alike(p.of):
		case was.Cause == "" && p.Number != left.Number && !brings(p.Deviations, left.Deviations):
			if f.Count--; others == nil {
				others = &Failure{Signature: f.Signature, Invariant: f.Invariant, Missing: f.Missing, Schedule: p.Schedule}
			}
			if others.Count++; p.Number < others.Schedule.Number {
				others.Schedule = p.Schedule
			}
		default:
			p.of.Cause = f.Cause
		}
	}
	t.Failed = slices.DeleteFunc(t.Failed, func(g Failure) bool {
		same := f.alike(g) || g.Signature == f.Signature && f.Cause == "" && g.Schedule.Shrunk == nil
		if same {
			if f.Count += g.Count; g.Schedule.Shrunk != nil && g.Schedule.Number < f.Schedule.Number {
				f.Schedule = g.Schedule
			}
		}
		return same
	})
	if t.Failed = append(t.Failed, f); others != nil {
		t.Failed = append(t.Failed, *others)
	}
}

// brings reports whether deviations can have each cause that others, which were shrunk, have.
func brings(deviations, shrunk []scenarios.Deviation) bool {
	return !slices.ContainsFunc(causes(shrunk), func(cause string) bool {
		return !slices.ContainsFunc(deviations, func(d scenarios.Deviation) bool { return d.Brings(cause) })
	})
}

// trials are schedules that are tried in place of one that failed.
type trials struct {
	workers Workers
	// signature is the failure that a reduced schedule must still produce; or, if never is set,
	// that what this guarantee promised never came, whichever event made that certain.
	signature, never string
	// waiting counts all schedules that were given to the workers and not taken back, and variants
	// those tried in place of others. The search that has ended may have left some to be taken.
	waiting, variants *int
	// tried counts the candidates that all questions have needed so far, of most. Said, which may
	// be nil, is called for each.
	tried, most int
	said        func(tried, most int)
	// stopped says that the workers won't play any more.
	stopped bool
}

// shrink returns the schedule with as few of its deviations as it needs to fail in the same way,
// each as slight as it can be. Everything else about it stays as it is.
func (t *trials) shrink(s Schedule) Schedule {
	found := len(s.Deviations)
	first := func(candidates iter.Seq[[]scenarios.Deviation]) int { return t.firstOf(s, candidates) }
	for slighter := true; slighter && !t.over(); {
		s.Deviations = without(s.Deviations, first)
		if s.Deviations, slighter = weakened(s.Deviations, first); !slighter && len(s.Deviations) > few {
			s.Deviations, slighter = renumbered(s.Deviations, first)
		}
	}
	s.Shrunk = &scenarios.Shrunk{From: found, Tried: t.tried, Needed: !t.over()}
	return s
}

// over says that nothing more is tried.
func (t *trials) over() bool { return t.stopped || t.tried >= t.most }

// first returns which candidate is the first that fails in the same way, or -1 if none does. One
// that can't be played is nil. Neither which one that is nor how many were tried until then depends
// on the workers: what they played beyond it doesn't count.
func (t *trials) first(candidates iter.Seq[*Schedule]) int {
	candidate, stop := iter.Pull(candidates) // each may be large
	defer stop()
	n := t.most - t.tried
	base, given := *t.variants+1, 0
	failed := make(map[int]bool)
	for learned := 0; learned < n; {
		for given < n && *t.waiting < shrinkAtOnce {
			next, more := candidate()
			if !more {
				n = given
				break
			}
			if *t.variants++; next != nil {
				next.Variant = *t.variants
				*t.waiting++
				t.workers.Give(*next)
			} else {
				failed[given] = false
			}
			given++
		}
		if learned == n {
			break
		}
		if _, known := failed[learned]; !known {
			result, ok := t.workers.Take()
			if !ok {
				t.stopped = true
				return -1
			}
			*t.waiting--
			if result.Variant < base {
				continue // of the search, or left over from an earlier question
			}
			failed[result.Variant-base] = result.Signature == t.signature || t.never != "" && result.Missing && result.Invariant == t.never
		}
		for fails, played := failed[learned]; played; fails, played = failed[learned] {
			learned++
			if t.tried++; t.said != nil {
				t.said(t.tried, t.most)
			}
			if fails {
				return learned - 1
			}
		}
	}
	return -1
}

// firstOf is first for deviations that take the place of a schedule's own.
func (t *trials) firstOf(s Schedule, candidates iter.Seq[[]scenarios.Deviation]) int {
	return t.first(each(candidates, func(deviations []scenarios.Deviation) *Schedule {
		candidate := s
		candidate.Deviations = deviations
		return &candidate
	}))
}

// each makes something of each of a sequence.
func each[T, U any](all iter.Seq[T], of func(T) U) iter.Seq[U] {
	return func(yield func(U) bool) {
		for one := range all {
			if !yield(of(one)) {
				return
			}
		}
	}
}

// which says of each of some deviations whether a schedule with these in place of its own fails in
// the same way.
func (t *trials) which(s Schedule, candidates [][]scenarios.Deviation) []bool {
	fail := make([]bool, len(candidates))
	for from := 0; from < len(candidates); {
		found := t.firstOf(s, slices.Values(candidates[from:]))
		if found < 0 {
			break
		}
		fail[from+found] = true
		from += found + 1
	}
	return fail
}

// without leaves out what first finds not to be needed: large pieces before small ones, and single
// parts as long as any can go. None of what it returns can go alone, unless first gave up.
func without[T any](parts []T, first func(iter.Seq[[]T]) int) []T {
	for size := len(parts); size > 0; {
		left, gone := pass(parts, size, first)
		if parts = left; size == 1 && gone {
			continue // what was needed before may not be any more
		}
		size = min(size/2, len(parts))
	}
	return parts
}

// pass goes through the parts once and leaves out each piece of a size that can go.
func pass[T any](parts []T, size int, first func(iter.Seq[[]T]) int) (left []T, gone bool) {
	for from := 0; from < len(parts); {
		but := func(at int) []T { return slices.Concat(parts[:at], parts[min(at+size, len(parts)):]) }
		found := first(func(yield func([]T) bool) {
			for at := from; at < len(parts) && yield(but(at)); at += size {
			}
		})
		if found < 0 {
			break
		}
		from += found * size
		parts, gone = but(from), true
	}
	return parts, gone
}

// weakened makes each deviation as slight as it can be, and reports whether any became slighter.
func weakened(deviations []scenarios.Deviation, first func(iter.Seq[[]scenarios.Deviation]) int) (_ []scenarios.Deviation, slighter bool) {
	for i := range deviations {
		lesser := deviations[i].Lesser(shrinkDelays)
		with := func(n int) []scenarios.Deviation {
			candidate := slices.Clone(deviations)
			candidate[i] = lesser[n]
			return candidate
		}
		found := first(func(yield func([]scenarios.Deviation) bool) {
			for n := 0; n < len(lesser) && yield(with(n)); n++ {
			}
		})
		if found >= 0 {
			deviations, slighter = with(found), true
		}
	}
	return deviations, slighter
}

const (
	// few deviations can be read at a glance.
	few = 3
	// aloneBy and togetherBy bound by how much smaller numbers are tried, of one deviation alone
	// and of several.
	aloneBy, togetherBy = 24, 6
)

// renumbered leaves deviations out, and lets others concern earlier steps of the same kind. Steps
// are numbered as they come: a deviation that makes its actor try once more may be needed only so
// that the number of another one comes true.
func renumbered(deviations []scenarios.Deviation, first func(iter.Seq[[]scenarios.Deviation]) int) (_ []scenarios.Deviation, fewer bool) {
	found := first(renumberings(deviations))
	if found < 0 {
		return deviations, false
	}
	for candidate := range renumberings(deviations) {
		if deviations = candidate; found == 0 {
			break
		}
		found--
	}
	return deviations, true
}

// renumberings are the candidates of renumbered.
func renumberings(deviations []scenarios.Deviation) iter.Seq[[]scenarios.Deviation] {
	return func(yield func([]scenarios.Deviation) bool) {
		anybody := func(string) string { return "" }
		actor := func(step string) string { actor, _, _ := strings.Cut(step, "/"); return actor }
		kind := func(step string) string { return step[:strings.LastIndexByte(step, '/')+1] }
		// One alone, or the only one of its actor.
		for _, of := range []func(string) string{anybody, actor} {
			for _, one := range slices.Backward(deviations) {
				others := slices.DeleteFunc(slices.Clone(deviations), func(d scenarios.Deviation) bool { return of(d.Step) == of(one.Step) })
				if len(others) > len(deviations)-2 {
					continue // it is the only one of its actor
				}
				for by := range aloneBy {
					if step, ok := earlier(one.Step, by); ok && !yield(append(slices.Clone(others), one.At(step))) {
						return
					}
				}
			}
		}
		// One less, and those of its actor that come later.
		for i, gone := range deviations {
			for _, of := range []func(string) string{kind, actor} {
				for by := 1; by <= togetherBy; by++ {
					left := slices.Delete(slices.Clone(deviations), i, i+1)
					for j := range left {
						if step, ok := earlier(left[j].Step, by); ok && of(left[j].Step) == of(gone.Step) && (kind(left[j].Step) != kind(gone.Step) || number(left[j].Step) > number(gone.Step)) {
							left[j] = left[j].At(step)
						}
					}
					if !yield(left) {
						return
					}
				}
			}
		}
	}
}

// number is that of a step, 0 if it has none.
func number(step string) int {
	n, err := strconv.Atoi(step[strings.LastIndexByte(step, '/')+1:])
	if err != nil {
		return 0
	}
	return n
}

// earlier returns the step of the same kind that comes by such steps before this one, if there is
// one.
func earlier(step string, by int) (string, bool) {
	n := number(step) - by
	return step[:strings.LastIndexByte(step, '/')+1] + strconv.Itoa(n), n > 0
}

// shrinkDelays are the delays that are tried in place of longer ones: such as people would choose.
var shrinkDelays = []time.Duration{
	time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute, 90 * time.Second,
}
