package sim

import (
	"fmt"
	"slices"
	"time"
)

// These checks notice misbehaviour of a controller that leaves no event: it runs without a rest,
// or it uses up the machine's time instead of the run's. Package stall notices a reconcile that
// never returns.

const (
	// restless is how often in a row a reconcile may ask to run again at once, while nothing
	// changes, before a note reports it. At once means within atOnce.
	restless = 100
	atOnce   = 5 * time.Millisecond
	// slow is how long a reconcile may block the simulator, and slowly how often it may be slow:
	// on a busy machine anything is slow now and then.
	slow   = 200 * time.Millisecond
	slowly = 3
)

// note adds a remark on the run, once, that is not part of its history.
func (w *world) note(text string) {
	if !slices.Contains(w.notes, text) {
		w.notes = append(w.notes, text)
	}
}

// rests notices a request that is repeated without a rest.
func (p *process) rests(e *entry, after time.Duration) {
	if after > atOnce || p.w.effects != e.effects {
		e.again, e.effects = 0, p.w.effects
		return
	}
	if e.again++; e.again == restless {
		p.w.note(fmt.Sprintf("%s asked %d times in a row to run again about %s within %s, while nothing changed", p.actor.name, restless, e.request.Name, atOnce))
	}
}

// timed notices a reconcile that takes the machine's time. A search skips the check.
func (p *process) timed(c *coroutine) {
	if p.w.trace == nil || c.mark.Took() < slow {
		return
	}
	if p.slow++; p.slow == slowly {
		p.w.note(fmt.Sprintf("%s has kept the simulator waiting for more than %s %d times: it sleeps, or computes, by the clock of the machine; take the run's from Deps.Clock", p.actor.name, slow, slowly))
	}
}
