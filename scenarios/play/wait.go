package play

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// since returns from where on events count for a step: 0 is the beginning of the
// story, n is when the n-th step was done.
func since(p *scenarios.Plan, step int) int {
	name := p.Spec.Steps[step].When.Since
	if name == scenarios.SinceStart {
		return 0
	}
	for i := range step {
		if name != "" && p.Spec.Steps[i].Name == name {
			return i + 1
		}
	}
	return step
}

// wait is a trigger that is looked out for.
type wait struct {
	// triggers are single events, and left says how many more of each must come.
	triggers []scenarios.Trigger
	left     []int
	// any says that one of them is enough.
	any bool
}

func waitFor(t scenarios.Trigger) *wait {
	several, _ := t.List()
	w := &wait{triggers: several, any: len(t.AnyOf) > 0}
	if several == nil {
		w.triggers = []scenarios.Trigger{t}
	}
	for _, t := range w.triggers {
		w.left = append(w.left, max(t.Occurrence, 1))
	}
	return w
}

// held takes into account what is so after the events before those that count, and
// reports whether the wait is over.
func (w *wait) held(before []history.Event) bool {
	for i, t := range w.triggers {
		if t.Holds(before) {
			w.left[i] = 0
		}
	}
	return w.over()
}

func (w *wait) over() bool {
	if w.any {
		return slices.Contains(w.left, 0)
	}
	return len(w.open()) == 0
}

// see takes an event into account and reports whether the wait is over.
func (w *wait) see(e history.Event) bool {
	for i, t := range w.triggers {
		if w.left[i] > 0 && t.Matches(e) {
			w.left[i]--
		}
	}
	return w.over()
}

// open are the triggers that have not been seen.
func (w *wait) open() []scenarios.Trigger {
	var open []scenarios.Trigger
	for i, t := range w.triggers {
		if w.left[i] > 0 {
			open = append(open, t)
		}
	}
	return open
}

// missing says what never came. Whoever wrote the step should know of what came
// too early for it: before are the events of the story before the step began.
func (w *wait) missing(before []history.Event, step int) string {
	var all []string
	for i, t := range w.triggers {
		if w.left[i] == 0 {
			continue
		}
		text := t.String() + ", which never came"
		if came := max(t.Occurrence, 1) - w.left[i]; came > 0 {
			text = fmt.Sprintf("%s, which came %s", t, phrase.Times(came))
		}
		for j := len(before) - 1; j >= 0; j-- {
			if e := &before[j]; t.Matches(*e) {
				text = fmt.Sprintf("%s, which came at %s (event %d), before step %d was done; with a since it counts", t, history.Seconds(e.At), e.Seq, step)
				break
			}
		}
		all = append(all, text)
	}
	if w.any {
		return strings.Join(all, "; or for ")
	}
	return strings.Join(all, "; and for ")
}
