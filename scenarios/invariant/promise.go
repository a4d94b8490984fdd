package invariant

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Promise is the liveness side of a claim. A checker that embeds one reports what its claim still
// waits for; what is missing once the faults were withdrawn breaks the claim.
//
// A fault that lasts for good isn't withdrawn. It excuses what depends on the parties that it
// holds up, and nothing else. Since controllers may then go on trying for ever, what has been
// missing for less than the run's patience counts as under way when the run ends.
type Promise struct {
	Ruling
	*Hindrances
	patience time.Duration
	Healed   history.Event
}

// NewPromise returns the promise of a checker, with its ruling.
func NewPromise(p Params, r Ruling) Promise {
	return Promise{Ruling: r, Hindrances: p.Hindrances, patience: p.Patience}
}

// Lack is something that a claim waits for.
type Lack struct {
	Sentence string
	// Since is the event that brought it about, nil if there is none; blind says that it may
	// have happened unseen.
	Since *history.Event
	Blind bool
	// Host is the host concerned, "" if any host will do. Comes are the events that bring it, or
	// that can only follow it, and On are the parties that it depends on.
	Host  string
	Comes []history.Kind
	On    Parties
	// Within is how long those who have to bring it may wait by their own settings.
	Within time.Duration
}

// Promising is a checker with a liveness side.
type Promising interface {
	Checker
	// Lacks yields all that is still missing.
	Lacks() iter.Seq[Lack]
	// Promised returns the checker's promise.
	Promised() *Promise
}

// Promised returns the promise that a checker embeds.
func (p *Promise) Promised() *Promise { return p }

// Observe takes in the end of the faults.
func (p *Promise) Observe(e *history.Event) {
	if e.Kind == history.Healed {
		p.Healed = *e
	}
}

// owed returns the first lack that is old enough and that nothing excuses, a certain one before
// one that may be none; the first that somebody's own settings give longer than it has lasted; and
// how many are excused for good.
func (p *Promise) owed(lacks iter.Seq[Lack], age time.Duration) (first, early Lack, excused int) {
	for l := range lacks {
		switch {
		case p.lastsOn(l.On):
			excused++
		case l.Since != nil && p.now-l.Since.At < age:
		case l.Since != nil && p.now-l.Since.At <= l.Within:
			early = l
		case first.Sentence == "" || first.Blind && !l.Blind:
			first = l
		}
	}
	return first, early, excused
}

// Owing implements Checker.Pending.
func (p *Promise) Owing(lacks iter.Seq[Lack]) string {
	first, early, _ := p.owed(lacks, 0)
	return cmp.Or(first.Sentence, early.Sentence)
}

// overdue breaks a claim whose lack the story has waited for in vain, as e reports, unless
// something holds up the parties that it depends on, or has just failed them: what failed is tried
// again later.
func overdue(c Promising, e *history.Event) *Violation {
	p := c.Promised()
	for l := range c.Lacks() {
		if l.Blind || l.Since == nil || !slices.Contains(l.Comes, history.Kind(e.Value)) || e.Host != "" && l.Host != "" && e.Host != l.Host ||
			p.Lost(e.At-1, e.At, l.On) > 0 || e.At-l.Since.At <= l.Within {
			continue
		}
		p.Judged++
		p.Breach(l.Since, e, fmt.Sprintf("%s, and at %s the story had waited in vain for it", l.Sentence, Seconds(e.At)))
		return p.Tell()
	}
	return nil
}

// ConcludeAfterHealing concludes a claim with a liveness side. Untested is the reason when
// nothing put it to the test.
func (p *Promise) ConcludeAfterHealing(complete bool, lacks iter.Seq[Lack], untested string) Result {
	age := time.Duration(0)
	if p.lasting() {
		age = p.patience
	}
	missing, early, excused := p.owed(lacks, age)
	result := p.Conclude(complete, untested)
	result.Excused += excused
	switch {
	case result.Verdict == Violated || !complete:
	case p.Healed.Kind == "":
		if result.Verdict == Held {
			return p.Unknown("the faults were never withdrawn")
		}
	case missing.Blind:
		if result.Verdict == Held {
			return p.Unknown(missing.Sentence)
		}
	case missing.Sentence != "":
		v := &Violation{Invariant: p.ID, First: p.Healed, Second: p.Healed,
			Sentence: missing.Sentence + "; the faults were withdrawn at " + Seconds(p.Healed.At)}
		if missing.Since != nil {
			v.First = *missing.Since
			if v.First.At > v.Second.At {
				v.First, v.Second = v.Second, v.First
			}
			v.Margin = v.Second.At - v.First.At
		}
		result.Verdict, result.Reason, result.Violation = Violated, v.Sentence, v
	case result.Verdict == Held && early.Sentence != "":
		return p.Unknown(early.Sentence + ", and a controller's own settings give that longer than the run has lasted")
	case result.Verdict == Held && excused > 0 && result.Judged <= result.Excused:
		result = p.Unknown("never put to the test: what lasts for good keeps it from coming true")
		result.Excused = result.Judged
	}
	return result
}
