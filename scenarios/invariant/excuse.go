package invariant

import (
	"slices"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Excuse is a guarantee that a history would have violated but for some hindrances.
type Excuse struct {
	// Result is the verdict without any hindrance.
	Result
	// Because are the hindrances that excuse it, in the order of events. Without them the
	// guarantee is violated whatever other hindrances there are, and each of them alone excuses
	// it.
	Because []HeldUp
}

// Events are the numbers of the events that are the reason, in order.
func (e *Excuse) Events() []int {
	var numbers []int
	for _, held := range e.Because {
		numbers = append(numbers, held.Event.Seq)
	}
	return slices.Compact(numbers)
}

// HeldUp is a hindrance: an event and the party that it held up.
type HeldUp struct {
	// Party is named as in [history.Hindrance]; "lab" is everybody.
	Party string
	Event history.Event
}

// String describes the event and the party.
func (h HeldUp) String() string { return Clause(&h.Event) + ", which held up " + h.Party }

// Excuses returns the excuses in a history for which [Judge] gave these results.
func Excuses(h *history.History, invariants []Invariant, params Params, results []Result) []Excuse {
	var excuses []Excuse
	strict := JudgeWithout(h, invariants, params, func(Hindrance) bool { return true })
	for i, r := range strict {
		lenient := slices.ContainsFunc(results, func(mine Result) bool { return mine.Invariant == r.Invariant && mine.Verdict != Violated })
		if r.Verdict != Violated || !lenient {
			continue
		}
		if because := heldUp(h, invariants[i], params); len(because) > 0 { // or the run ended before a verdict was possible
			excuses = append(excuses, Excuse{r, because})
		}
	}
	return excuses
}

// heldUp returns the hindrances that excuse the violation of a guarantee.
func heldUp(h *history.History, inv Invariant, params Params) []HeldUp {
	ignored := make(map[Hindrance]bool)
	var all []Hindrance
	JudgeWithout(h, []Invariant{inv}, params, func(of Hindrance) bool {
		if !ignored[of] {
			ignored[of] = true
			all = append(all, of)
		}
		return false
	})
	ignore := func(some []Hindrance, yes bool) {
		for _, of := range some {
			ignored[of] = yes
		}
	}
	// spare takes as many of some into account as leave a violation; it counts on that the more
	// are, the more is excused.
	var spare func(some []Hindrance)
	spare = func(some []Hindrance) {
		ignore(some, false)
		if JudgeWithout(h, []Invariant{inv}, params, func(of Hindrance) bool { return ignored[of] })[0].Verdict == Violated {
			return
		}
		ignore(some, true)
		if half := len(some) / 2; half > 0 {
			spare(some[:half])
			spare(some[half:])
		}
	}
	spare(all)
	var excusing []HeldUp
	for _, of := range all {
		if ignored[of] {
			excusing = append(excusing, HeldUp{of.Party, h.Events()[of.Event-1]})
		}
	}
	return excusing
}
