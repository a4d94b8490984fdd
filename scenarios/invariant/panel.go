package invariant

import (
	"fmt"
	"slices"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Panel judges one history against several invariants, while it is made or
// afterwards.
type Panel struct {
	// checkers are the checkers of the judged invariants, then those of all others, which only
	// rule on harms; ids are their names. One that sleeps is nil, and made by its invariant's New
	// when it wakes.
	checkers []Checker
	makes    []func(Params) Checker
	params   Params
	ids      []string
	judged   int
	ledger   ledger
	marks    ownMarks
	// literal says which checkers see the events as they are.
	literal []bool
	// wakes are the checkers that sleep, by the kinds of events that wake them: see
	// [Invariant.Wakes]. Past has what they will be shown.
	wakes map[history.Kind][]int
	past  []*history.Event
	*Hindrances
	// broke says which checkers have found a violation in what they observed.
	broke []bool
	// flaw says why the history as a whole is no evidence, if it isn't.
	flaw string
	// endedBy is the violation that ended the run, or nil.
	endedBy *Violation
}

// NewPanel returns a panel that has observed nothing, and judges by some invariants. The others
// of all only rule on harms.
func NewPanel(judged, all []Invariant, params Params) *Panel {
	params.Hindrances = NewHindrances(params)
	p := &Panel{judged: len(judged), params: params, broke: make([]bool, len(judged)), ledger: newLedger(params), Hindrances: params.Hindrances}
	p.wakes = make(map[history.Kind][]int)
	add := func(inv Invariant) {
		for _, kind := range inv.Wakes {
			p.wakes[kind] = append(p.wakes[kind], len(p.checkers))
		}
		var c Checker
		if inv.Wakes == nil {
			c = inv.New(params)
		}
		p.checkers, p.makes = append(p.checkers, c), append(p.makes, inv.New)
		p.ids, p.literal = append(p.ids, inv.ID), append(p.literal, inv.Literal)
	}
	for _, inv := range judged {
		add(inv)
	}
	for _, inv := range all {
		if !slices.Contains(p.ids, inv.ID) {
			add(inv)
		}
	}
	return p
}

// Unjudged returns the harms done by processes under test on which no guarantee has ruled, whether
// or not it was to be judged.
func (p *Panel) Unjudged() []Harm { return p.ledger.unjudged() }

// Harms returns all harms done by processes under test.
func (p *Panel) Harms() []Harm { return p.ledger.harms }

// Idle explains why the history put no process to the test, or returns "".
func (p *Panel) Idle() string { return p.ledger.idle() }

// Observe shows the next event to every checker. It returns the violation that
// the event made certain, of the first invariant if there are several; Results
// has them all.
func (p *Panel) Observe(e *history.Event) *Violation {
	if p.flaw == "" {
		p.flaw = flaw(e)
	}
	p.Hindrances.Observe(e)
	was := e
	e = p.marks.judged(e)
	for _, i := range p.wakes[e.Kind] {
		p.wake(i)
	}
	p.past = append(p.past, e)
	var violation *Violation
	for i, c := range p.checkers {
		if c == nil {
			continue
		}
		seen := e
		if p.literal[i] {
			seen = was
		}
		v := c.Observe(seen)
		if e.Kind == history.StepOverdue && v == nil {
			if claim, ok := c.(Promising); ok {
				v = overdue(claim, e)
			}
		}
		if v != nil && i < p.judged {
			p.broke[i] = true
			if violation == nil {
				violation = v
			}
		}
	}
	p.ledger.observe(e, p.checkers, p.ids)
	return violation
}

// wake shows a checker that sleeps what has happened so far.
func (p *Panel) wake(i int) {
	if p.checkers[i] != nil {
		return
	}
	p.checkers[i] = p.makes[i](p.params)
	for _, e := range p.past {
		p.checkers[i].Observe(e)
	}
}

// Settled reports whether no liveness claim waits for anything.
func (p *Panel) Settled() bool {
	for _, c := range p.checkers[:p.judged] {
		if c != nil && c.Pending() != "" {
			return false
		}
	}
	return true
}

// Pending returns what the liveness claims still wait for, a sentence each.
func (p *Panel) Pending() []string {
	var sentences []string
	for _, c := range p.checkers[:p.judged] {
		if c == nil {
			continue
		}
		if s := c.Pending(); s != "" {
			sentences = append(sentences, s)
		}
	}
	return sentences
}

// EndedBy says that a violation ended the run, which had no time to bring what was
// still missing: from then on only what was seen is violated.
func (p *Panel) EndedBy(v *Violation) { p.endedBy = v }

// Results returns the verdicts in the order of the panel's invariants. Complete
// says that the history was not cut short. What broke a claim did so whatever
// else is wrong with the history; nothing else is certain in a flawed one.
func (p *Panel) Results(complete bool) []Result {
	results := make([]Result, p.judged)
	for i, c := range p.checkers[:p.judged] {
		if c == nil {
			c = p.makes[i](p.params)
		}
		r := c.Finish(complete && p.flaw == "")
		switch {
		case r.Verdict == Violated && p.endedBy != nil && !p.broke[i]:
			r.Verdict, r.Violation = Unknown, nil
			r.Reason = fmt.Sprintf("the run was ended by %s before it could be told; until then: %s", p.endedBy.Invariant, r.Reason)
		case r.Verdict != Violated && p.flaw != "":
			r.Verdict, r.Reason = Unknown, p.flaw
		}
		results[i] = r
	}
	return results
}

// Judge judges a whole history.
func Judge(h *history.History, invariants []Invariant, params Params) []Result {
	return JudgeWithout(h, invariants, params, nil)
}

// JudgeWithout judges a whole history as if some hindrances were not there; nil ignores none.
func JudgeWithout(h *history.History, invariants []Invariant, params Params, ignores func(Hindrance) bool) []Result {
	p := NewPanel(invariants, nil, params)
	p.Hindrances.ignores = ignores
	events := h.Events()
	for i := range events {
		p.Observe(&events[i])
	}
	return p.Results(h.Complete())
}

func flaw(e *history.Event) string {
	if e.Kind == history.EvidenceLost && e.Host == "" {
		return "the API observer missed versions from " + Seconds(e.At) + " on"
	}
	if field := e.Lacks(); field != "" {
		return fmt.Sprintf("the history is not evidence: event %d, %s, has no %s", e.Seq, e.Kind, field)
	}
	return ""
}
