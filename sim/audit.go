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

// Audit checks whether two steps that independent calls independent commute. It plays the plan in
// two worlds, past the first n steps of its story, to the first step that has such a partner among
// the steps that wait. One world takes the two in one order, the other in the other order, and both
// go on for a while. The error names the steps if the worlds then differ in their state or in what
// they do next: what a reconcile has read shows only in that. Audit returns false if no pair is
// found, or if they are independent only without what came of one of them. Controllers in a bubble
// are never audited, because they go on only after the step.
func (s *Simulator) Audit(plan *scenarios.Plan, n int, independent func(one, other steps.Step) bool) (audited bool, err error) {
	a, err := s.stopAt(plan, n, independent)
	if a == nil || err != nil {
		return false, err
	}
	defer a.end()
	b, err := s.stopAt(plan, a.passed, nil)
	if b == nil || err != nil {
		return false, errors.Join(err, errors.New("audit the independence of steps: the same plan has not come as far again"))
	}
	defer b.end()
	one, other := a.waiting()[0], a.other
	differ := a.differ(b, one, other)
	first, second := a.known[one], a.known[other]
	if (a.busy || b.busy) && first.MayBeIndependent(second) && !first.Independent(second) {
		return false, nil // it proves nothing
	}
	if differ == "" {
		return true, nil
	}
	of := func(s steps.Step) string { return fmt.Sprintf("%s (%s)", s.Name(), s.Footprint()) }
	why := "one of the footprints is too small"
	if asks := func(s steps.Step) bool { return s.Answers != "" || s.Class == steps.ClassPeer }; asks(first) || asks(second) {
		why += ", or the agent's Answer changes what its Step or another answer reads, or goes by more than it has published, which it must not"
	}
	if first.Apart && second.Apart && first.Place == second.Place {
		why += ", or the reconciles of different requests share more than the cache, though the controller is registered as Apart"
	}
	return false, fmt.Errorf("%s and %s are said to be independent, and lead to another world when they are swapped: %s; %s", of(first), of(second), differ, why)
}

// aftermath are the times behind two swapped steps at which their worlds are compared: when the
// next call has come, and when whatever waits for a poll or a requeue has run.
var aftermath = []time.Duration{0, time.Second, 30 * time.Second}

// differ takes two steps in this order here and in the other one in the other world. It says how
// the worlds differ then, or nothing. What the plan has for steps to come is left out: it names
// them by their numbers, which count also what is sent to a process that dies meanwhile.
func (a *audited) differ(b *audited, one, other steps.Name) string {
	for _, w := range []*world{a.w, b.w} {
		w.deviations, w.awaited = nil, nil
	}
	both, still := a.takeTwo(one, other, 0), b.takeTwo(other, one, 1)
	switch {
	case both != still:
		return "one of them takes the other one away"
	case !both:
		return "" // in either order
	}
	from := a.w.now
	for _, after := range aftermath {
		did, also := a.goOn(from+after), b.goOn(from+after)
		for i := range max(len(did), len(also)) {
			if i >= len(did) || i >= len(also) || did[i] != also[i] {
				at := func(all []string) string { return append(all, "nothing")[min(i, len(all))] }
				return fmt.Sprintf("%s is done in one, and %s in the other", at(did), at(also))
			}
		}
		if a.Identity() != b.Identity() {
			return fmt.Sprintf("%s later they are in different states", after)
		}
	}
	return ""
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
	// busy says that something came of one of the two that might not have.
	busy bool
}

// errFar ends a run that has gone far enough.
var errFar = errors.New("far enough")

// stopAt plays a plan up to the first step behind the first n that is independent of another one.
// It returns nil if there is none.
func (s *Simulator) stopAt(plan *scenarios.Plan, n int, independent func(one, other steps.Step) bool) (*audited, error) {
	a := &audited{Backend: s.Backend(), known: make(map[steps.Name]steps.Step), skip: n, independent: independent}
	a.Watch = func(step steps.Step) (scenarios.Deviation, bool) {
		if slices.ContainsFunc(plan.Deviations, func(d scenarios.Deviation) bool { return d.Fault == scenarios.FaultRelist && d.Step == step.Name() }) {
			step.Verb = steps.Lists
		}
		a.known[steps.Name{Actor: step.Actor, Class: step.Class, N: step.N}] = step
		return scenarios.Deviation{}, false
	}
	outcome, err := play.Run(context.Background(), plan, a, nil)
	if err == nil && errors.Is(outcome.Err, errFar) {
		return a, nil
	}
	a.end()
	return nil, err
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

// Stop implements play.Backend: the world is still needed, until end.
func (a *audited) Stop() ([]play.Artifact, error) { return nil, nil }

// end ends the world with all that its processes have begun.
func (a *audited) end() { _, _ = a.Backend.Stop() }

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

// room is how many places in the order of what is due at one time each of two steps has for what it
// leads to, and how many revisions and UIDs.
const room = 1 << 32

// takeTwo takes two steps at the time of the later one, and reports whether the second one was
// still there. What they lead to has the same places among what is due at one time, whichever comes
// first: else steps that depend on each other would change their order, too. Its writes have the
// same revisions and UIDs, because some controllers copy these. The first one's place is 0 or 1.
func (a *audited) takeTwo(first, second steps.Name, place uint64) (both bool) {
	of := func(n steps.Name) *step {
		i := slices.IndexFunc(a.w.queue.steps, func(s *step) bool { return s.name == n })
		return a.w.queue.steps[i]
	}
	one, other, base, written := of(first), of(second), a.w.order, a.store.Revision()
	at := max(one.at, other.at)
	a.as(place, base, written, one, at)
	if other.index < 0 {
		return false
	}
	a.as(1-place, base, written, other, at)
	a.w.order = base + 2*room
	a.store.CountFrom(written + 2*room)
	return true
}

// as takes a step at a time, in its place.
func (a *audited) as(place, base uint64, written int64, s *step, at time.Duration) {
	a.w.order = base + place*room
	a.store.CountFrom(written + int64(place)*room)
	step := a.known[s.name]
	a.w.came = func(what steps.Outcome) { a.busy = a.busy || step.May()&what != 0 }
	a.w.take(s, at)
	a.w.came = nil
}

// goOn lets the world go on until a time, without the story, and returns what kinds of steps it
// takes, but for those of which nothing comes.
func (a *audited) goOn(until time.Duration) (did []string) {
	a.w.took = func(s *step) {
		if !s.lapsed() {
			did = append(did, fmt.Sprintf("%s/%s at %s", s.name.Actor, s.name.Class, a.w.now))
		}
	}
	if _, err := a.Backend.Advance(until, func(history.Event) bool { return false }); err != nil {
		did = append(did, err.Error())
	}
	return did
}
