package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim/steps"
)

// Audit checks that two steps are independent: it plays a plan up to the first step, behind the
// first n of its story, that is independent of others which wait meanwhile, and takes it and one of
// those in both orders. The error names two that lead to different worlds. It returns false where
// there are no such steps, and for controllers that run in a bubble, which go on only after the
// step.
func (s *Simulator) Audit(plan *scenarios.Plan, n int, independent func(one, other steps.Step) bool) (audited bool, err error) {
	a, err := s.stopAt(plan, n, independent)
	if a == nil || err != nil {
		return false, err
	}
	b, err := s.stopAt(plan, a.passed, nil)
	if b == nil || err != nil {
		return false, errors.Join(err, errors.New("audit the independence of steps: the same plan has not come as far again"))
	}
	one, other := a.waiting()[0], a.other
	identity, both := a.takeTwo(one, other)
	swapped, still := b.takeTwo(other, one)
	if both != still || identity != swapped {
		of := func(n steps.Name) string { return fmt.Sprintf("%s (%s)", n, a.known[n].Footprint()) }
		return false, fmt.Errorf("%s and %s are said to be independent, and lead to another world when they are swapped: one of the footprints is too small", of(one), of(other))
	}
	return true, nil
}

// audited is a world that stops before one of its steps. It implements play.Backend.
type audited struct {
	*Backend
	// known are the waiting steps of the story, by name.
	known map[steps.Name]steps.Step
	// skip is how many steps of the story it takes at least; passed is how many it has taken.
	skip, passed int
	// independent says of which two steps the second may be other; nil stops behind the skipped
	// ones.
	independent func(one, other steps.Step) bool
	other       steps.Name
}

// errFar ends a run that has gone far enough.
var errFar = errors.New("far enough")

// stopAt plays a plan up to the first step behind the first n that is independent of another one.
// It returns nil if there is none.
func (s *Simulator) stopAt(plan *scenarios.Plan, n int, independent func(one, other steps.Step) bool) (*audited, error) {
	a := &audited{Backend: s.Backend(), known: make(map[steps.Name]steps.Step), skip: n, independent: independent}
	a.Watch = func(step steps.Step) (scenarios.Deviation, bool) {
		a.known[steps.Name{Actor: step.Actor, Class: step.Class, N: step.N}] = step
		return scenarios.Deviation{}, false
	}
	outcome, err := play.Run(context.Background(), plan, a, nil)
	switch {
	case err != nil:
		return nil, err
	case errors.Is(outcome.Err, errFar):
		return a, nil
	}
	return nil, nil
}

// Advance implements play.Backend.
func (a *audited) Advance(until time.Duration, each func(history.Event) bool) (time.Duration, error) {
	for {
		next := a.w.queue.first()
		if next == nil || next.at > until || a.w.bubble != nil {
			return a.Backend.Advance(until, each)
		}
		stop := false
		now, err := a.Backend.Advance(next.at-1, func(e history.Event) bool { stop = each(e); return stop })
		if stop || err != nil {
			return now, err
		}
		if a.w.story {
			if a.passed >= a.skip && a.here() {
				return a.w.now, errFar
			}
			a.passed++
		}
		a.w.take(next, next.at)
	}
}

// Stop implements play.Backend: the world is still needed.
func (a *audited) Stop() ([]play.Artifact, error) { return nil, nil }

// here reports whether to stop: it chooses the other step.
func (a *audited) here() bool {
	if a.independent == nil {
		return true
	}
	waiting := a.waiting()
	one, ok := a.known[waiting[0]]
	if !ok {
		return false // it is older than the story
	}
	others := slices.DeleteFunc(waiting[1:], func(n steps.Name) bool {
		other, ok := a.known[n]
		return !ok || !a.independent(one, other)
	})
	if len(others) == 0 {
		return false
	}
	a.other = others[a.passed%len(others)]
	return true
}

// waiting returns the steps in the queue, in their order.
func (a *audited) waiting() (names []steps.Name) {
	all := slices.SortedFunc(slices.Values(a.w.queue.steps), func(s, t *step) int { return cmp.Or(cmp.Compare(s.at, t.at), cmp.Compare(s.order, t.order)) })
	for _, s := range all {
		names = append(names, s.name)
	}
	return names
}

// takeTwo takes two steps at the time of the later one. It returns the identity of the world then,
// and whether the second one was still there.
func (a *audited) takeTwo(first, second steps.Name) (identity uint64, both bool) {
	of := func(n steps.Name) *step {
		i := slices.IndexFunc(a.w.queue.steps, func(s *step) bool { return s.name == n })
		return a.w.queue.steps[i]
	}
	one, other := of(first), of(second)
	at := max(one.at, other.at)
	a.w.take(one, at)
	if other.index < 0 {
		return 0, false
	}
	a.w.take(other, at)
	return a.Identity(), true
}
