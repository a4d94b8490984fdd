package invariant

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// promise is the liveness side of a claim. A checker that embeds one tells what its claim
// still waits for; what is missing once the faults were withdrawn breaks the claim.
//
// A fault that lasts for good isn't withdrawn. It excuses what depends on whom it holds up,
// and nothing else. Since controllers may then go on trying for ever, what has been missing
// for less than the run's patience is under way when it ends.
type promise struct {
	ruling
	*hindrances
	patience time.Duration
	healed   history.Event
}

func newPromise(p Params, r ruling) promise {
	return promise{ruling: r, hindrances: p.hindrances, patience: p.Patience}
}

// lack is something that a claim waits for.
type lack struct {
	sentence string
	// since is the event that brought it about, nil if there is none; blind says that it may
	// have happened unseen.
	since *history.Event
	blind bool
	// host is the host that it is about, "" if it may come on any; comes are the events that
	// bring it, or that can only follow it, and on are those on whom it depends.
	host  string
	comes []history.Kind
	on    parties
}

// promising is a checker with a liveness side.
type promising interface {
	Checker
	lacks() iter.Seq[lack]
	promised() *promise
}

func (p *promise) promised() *promise { return p }

// observe takes in the end of the faults.
func (p *promise) observe(e *history.Event) {
	if e.Kind == history.Healed {
		p.healed = *e
	}
}

// owed is the first of some lacks that are old enough and that nothing excuses, one that is
// certain before one that may be none; and how many are excused for good.
func (p *promise) owed(lacks iter.Seq[lack], age time.Duration) (first lack, excused int) {
	for l := range lacks {
		switch {
		case p.lastsOn(l.on):
			excused++
		case l.since != nil && p.now-l.since.At < age:
		case first.sentence == "" || first.blind && !l.blind:
			first = l
		}
	}
	return first, excused
}

// pending is Checker.Pending.
func (p *promise) pending(lacks iter.Seq[lack]) string {
	first, _ := p.owed(lacks, 0)
	return first.sentence
}

// overdue breaks a claim that waits for what the story has waited for in vain, as e says,
// unless something holds up those on whom it depends.
func overdue(c promising, e *history.Event) *Violation {
	p := c.promised()
	for l := range c.lacks() {
		if l.blind || l.since == nil || !slices.Contains(l.comes, history.Kind(e.Value)) || e.Host != "" && l.host != "" && e.Host != l.host ||
			p.inForce(e.At, l.on) {
			continue
		}
		p.judged++
		p.breach(l.since, e, fmt.Sprintf("%s, and at %s the story had waited in vain for it", l.sentence, seconds(e.At)))
		return p.tell()
	}
	return nil
}

// verdictAfterHealing concludes a claim with a liveness side. Untested is the reason when
// nothing put it to the test.
func (p *promise) verdictAfterHealing(complete bool, lacks iter.Seq[lack], untested string) Result {
	age := time.Duration(0)
	if p.lasting() {
		age = p.patience
	}
	missing, excused := p.owed(lacks, age)
	result := p.verdict(complete, untested)
	result.Excused += excused
	switch {
	case result.Verdict == Violated || !complete:
	case p.healed.Kind == "":
		if result.Verdict == Held {
			return p.unknown("the faults were never withdrawn")
		}
	case missing.blind:
		if result.Verdict == Held {
			return p.unknown(missing.sentence)
		}
	case missing.sentence != "":
		v := &Violation{Invariant: p.id, First: p.healed, Second: p.healed,
			Sentence: missing.sentence + "; the faults were withdrawn at " + seconds(p.healed.At)}
		if missing.since != nil {
			v.First = *missing.since
			if v.First.At > v.Second.At {
				v.First, v.Second = v.Second, v.First
			}
			v.Margin = v.Second.At - v.First.At
		}
		result.Verdict, result.Reason, result.Violation = Violated, v.Sentence, v
	case result.Verdict == Held && excused > 0 && result.Judged <= result.Excused:
		result = p.unknown("never put to the test: a fault that lasts keeps it from coming true")
		result.Excused = result.Judged
	}
	return result
}
