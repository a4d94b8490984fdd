package fencetest

import (
	"errors"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// breach is an error of a claim that names an event.
type breach struct {
	event history.Event
	text  string
}

func (b *breach) Error() string { return b.text }

// Breach returns the error of a Claim that an event has broken. Reports mark the event.
func Breach(event history.Event, text string) error { return &breach{event, text} }

// claim is the guarantee that a function judges.
func claim(name string, check func([]history.Event) error) invariant.Invariant {
	return invariant.Invariant{
		ID: name, Claim: "A claim of the test's own.", Literal: true,
		New: func(invariant.Params) invariant.Checker { return &claimed{name: name, check: check} },
	}
}

// claimed judges a history when it is over.
type claimed struct {
	name   string
	check  func([]history.Event) error
	events []history.Event
}

// Observe implements invariant.Checker.
func (c *claimed) Observe(e *history.Event) *invariant.Violation {
	c.events = append(c.events, *e)
	return nil
}

// Pending implements invariant.Checker.
func (c *claimed) Pending() string { return "" }

// RuledOn implements invariant.Checker: a harm needs a guarantee, and no claim counts as one.
func (c *claimed) RuledOn(*history.Event) (*history.Event, bool) { return nil, false }

// Finish implements invariant.Checker.
func (c *claimed) Finish(complete bool) invariant.Result {
	r := invariant.Result{Invariant: c.name, Verdict: invariant.Held, Judged: 1}
	if err := c.check(c.events); err != nil && len(c.events) > 0 {
		v := &invariant.Violation{Invariant: c.name, First: c.events[len(c.events)-1], Sentence: err.Error()}
		if b := (*breach)(nil); errors.As(err, &b) {
			v.First = b.event
		}
		v.Second = v.First
		r.Verdict, r.Reason, r.Violation = invariant.Violated, v.Sentence, v
	} else if !complete {
		r.Verdict, r.Reason = invariant.Unknown, "the history was cut short"
	}
	return r
}
