package play

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// AsTold is the name in reports of a scenario's own claims about its events, beside the guarantees.
const AsTold = "as-told"

// asTold judges the assertions of a plan. When the run is over, told reports whether the story came
// to its end: after half a story, a missing event could still have come.
func asTold(plan *scenarios.Plan, skew time.Duration, told func() bool) invariant.Invariant {
	return invariant.Invariant{
		ID:       AsTold,
		Claim:    "The events come as the scenario expects them.",
		Liveness: true,
		Literal:  true,
		New: func(p invariant.Params) invariant.Checker {
			c := &assertions{told: told, skew: skew, Hindrances: p.Hindrances}
			for _, a := range plan.Spec.Expect.Events {
				c.claims = append(c.claims, &claim{Assertion: a})
			}
			return c
		},
	}
}

// assertions judge the events of a story, from its beginning.
type assertions struct {
	*invariant.Hindrances
	told   func() bool
	skew   time.Duration
	claims []*claim
	begun  bool
	found  *invariant.Violation
	doubt  string
	judged int
	said   bool
	// fields are the last events of fields that claims speak of.
	fields []history.Event
}

// claim is one assertion and how far it has come. It is open from opening to closing,
// and over when nothing can change any more.
type claim struct {
	scenarios.Assertion
	seen, opened, closed int // how many events matched
	opening, closing     history.Event
	first                history.Event // the first that matched
	over                 bool
	late                 bool // closing is only the time being up
	// held is the latest event that lets what is claimed by only happen, and lifted what has
	// ended that since.
	held, lifted history.Event
}

func (c *assertions) Observe(e *history.Event) *invariant.Violation {
	c.begun = c.begun || e.Kind == history.RunStarted
	if e.Kind == history.FieldIs {
		c.fields = append(slices.DeleteFunc(c.fields, func(old history.Event) bool { return old.Object == e.Object && old.Key == e.Key }), *e)
	}
	for _, one := range c.claims {
		if e.Kind == history.Deviated && one.Within > 0 && !one.over {
			c.excuse(one)
		}
		if (c.begun || !one.Only.IsZero()) && !one.over {
			c.observe(one, e)
		}
	}
	if c.found == nil || c.said {
		return nil
	}
	c.said = true
	return c.found
}

// excuse takes the time from a claim: a schedule that leaves its default says nothing about how
// soon. It watches for the first deviation, since those of a search are in no plan yet.
func (c *assertions) excuse(one *claim) {
	one.Within = 0
	if !one.Never.IsZero() {
		one.over = true
		c.judged++
	}
}

// only judges an event that another must have preceded, and takes that in.
func (c *assertions) only(one *claim, e *history.Event) {
	if one.Only.Matches(*e) {
		since, missing := &one.held, e.At-one.held.At+invariant.Coarse < time.Duration(one.For)
		if one.lifted.Kind != "" {
			since, missing = &one.lifted, true
		}
		near := c.skew > 0 && since.Kind != "" && e.At-since.At < c.skew
		switch first := since; {
		case since.Kind != "" && !missing:
			c.judged++
		case near:
			c.doubtful(one, since, e)
		case c.Unaware(e, since):
			c.judged++ // it was decided before
		default:
			if first.Kind == "" {
				first = e
			}
			c.breach(first, e, fmt.Sprintf("%s at %s, %s", one.Only, history.Seconds(e.At), one.why(e)))
		}
	}
	switch {
	case one.If.Matches(*e):
		one.held, one.lifted = *e, history.Event{}
	case !one.Until.IsZero() && one.Until.Matches(*e) && one.held.Kind != "":
		one.lifted = *e
	}
}

// why says what must have happened before an event, and hasn't.
func (c *claim) why(e *history.Event) string {
	text := fmt.Sprintf("which should come only if %s", c.If)
	if c.For > 0 {
		text += fmt.Sprintf(" was %s before", time.Duration(c.For))
	}
	switch {
	case c.held.Kind == "":
		return text + ": it never was"
	case c.lifted.Kind != "":
		return text + fmt.Sprintf(": %s at %s had ended it", c.Until, history.Seconds(c.lifted.At))
	}
	return text + fmt.Sprintf(": the latest was %s before", e.At-c.held.At)
}

func (c *assertions) observe(one *claim, e *history.Event) {
	if !one.Only.IsZero() {
		c.only(one, e)
		return
	}
	event := one.event()
	matches, already := event.Matches(*e), false
	if one.opening.Kind == "" {
		switch {
		case one.After.IsZero():
			one.opening = *e // the beginning of the story
			already = event.Holds(c.fields)
		case one.After.Matches(*e):
			if one.opened++; one.opened == cmp.Or(one.After.Occurrence, 1) {
				one.opening = *e
				already = event.Holds(c.fields)
			}
			if !already {
				return
			}
		default:
			return
		}
	}
	if one.closing.Kind == "" {
		if limit := one.opening.At + time.Duration(one.Within); one.Within > 0 && e.At > limit {
			one.closing, one.late = *e, true
		} else if !one.Before.IsZero() && one.Before.Matches(*e) && !matches {
			if one.closed++; one.closed == cmp.Or(one.Before.Occurrence, 1) {
				one.closing = *e
			}
		}
	}
	matches = matches || already
	near := func(edge *history.Event) bool { return c.skew > 0 && edge.Kind != "" && e.At-edge.At < c.skew }
	switch {
	case matches && one.closing.Kind == "":
		if one.seen++; one.seen == 1 {
			one.first = *e
		}
		if one.seen < cmp.Or(event.Occurrence, 1) {
			return
		}
		one.over = true
		switch {
		case !already && !one.After.IsZero() && near(&one.opening):
			c.doubtful(one, &one.opening, e)
		case one.Never.IsZero():
			c.judged++
		default:
			since := &one.opening
			if one.After.IsZero() { // nothing in the run's beginning has to do with it
				since = &one.first
			}
			c.breach(since, e, fmt.Sprintf("%s at %s, which should never come%s", event, history.Seconds(e.At), one.bounds()))
		}
	case matches && !one.late && near(&one.closing):
		one.over = true
		c.doubtful(one, &one.closing, e)
	case one.closing.Kind != "" && !one.late && near(&one.closing):
		// What comes now may have come before.
	case one.closing.Kind != "":
		one.over = true
		if one.Never.IsZero() {
			c.breach(&one.opening, &one.closing, fmt.Sprintf("%s had not come by %s; it should come%s", event, history.Seconds(one.closing.At), one.bounds()))
		} else {
			c.judged++
		}
	}
}

func (c *assertions) breach(first, second *history.Event, sentence string) {
	if c.found == nil {
		c.found = &invariant.Violation{Invariant: AsTold, First: *first, Second: *second, Margin: second.At - first.At, Sentence: sentence}
	}
}

func (c *assertions) doubtful(one *claim, edge, e *history.Event) {
	c.doubt = cmp.Or(c.doubt, fmt.Sprintf("too close to call: %s and %s are %s apart", edge.Kind, e.Kind, e.At-edge.At))
}

// Pending says what has to come and has not, so that the run waits for it.
func (c *assertions) Pending() string {
	for _, one := range c.claims {
		if one.waits() {
			return one.missing()
		}
	}
	return ""
}

// Finish returns the verdict. A claim unfulfilled in the end is violated only if the story came to
// its end. RuledOn implements invariant.Checker: a story's claims about itself are no rule for
// harms.
func (c *assertions) RuledOn(*history.Event) (*history.Event, bool) { return nil, false }

func (c *assertions) Finish(complete bool) invariant.Result {
	r := invariant.Result{Invariant: AsTold, Verdict: invariant.Held, Judged: c.judged, Violation: c.found}
	if c.found != nil {
		r.Verdict, r.Reason = invariant.Violated, c.found.Sentence
		return r
	}
	r.Reason = c.doubt
	for _, one := range c.claims {
		switch {
		case one.over, !one.Only.IsZero():
		case one.opening.Kind == "":
			r.Reason = cmp.Or(r.Reason, fmt.Sprintf("never put to the test: %s never came", one.After))
		case !one.Never.IsZero():
			r.Judged++
		case !complete || !c.told():
			r.Reason = cmp.Or(r.Reason, one.missing()+" when the run ended early")
		case r.Violation == nil:
			r.Violation = &invariant.Violation{Invariant: AsTold, First: one.opening, Second: one.opening, Sentence: one.missing()}
		}
	}
	switch {
	case r.Violation != nil:
		r.Verdict, r.Reason = invariant.Violated, r.Violation.Sentence
	case r.Reason != "":
		r.Verdict = invariant.Unknown
	case !complete:
		r.Verdict, r.Reason = invariant.Unknown, "the history was cut short"
	}
	return r
}

// event is the one that is claimed or forbidden.
func (c *claim) event() scenarios.Trigger {
	if c.Never.IsZero() {
		return c.Happens
	}
	return c.Never
}

func (c *claim) waits() bool {
	return !c.over && c.Never.IsZero() && c.Only.IsZero() && c.opening.Kind != ""
}

func (c *claim) missing() string {
	return fmt.Sprintf("%s has not come; it should come%s", c.Happens, c.bounds())
}

// bounds completes a sentence with when an event should come, or should not.
func (c *claim) bounds() string {
	text := ""
	if c.Within > 0 {
		text += fmt.Sprintf(" within %s", time.Duration(c.Within))
		if c.After.IsZero() {
			text += " of the beginning"
		} else {
			text += fmt.Sprintf(" of %s", c.After)
		}
	} else if !c.After.IsZero() {
		text += fmt.Sprintf(" after %s", c.After)
	}
	if !c.Before.IsZero() {
		text += fmt.Sprintf(" before %s", c.Before)
	}
	return text
}
