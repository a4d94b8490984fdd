package sim

import (
	"fmt"
	"slices"
	"time"
)

// What a controller does that no event of the world tells: it runs without a rest, or takes the
// time of the machine instead of the run's. One that never comes back is noticed by package stall.

const (
	// restless is how often in a row a reconcile asks to run again at once, while nobody changes
	// anything, before that is worth a note; and at once is within this time.
	restless = 100
	atOnce   = 5 * time.Millisecond
	// slow is for how long a reconcile may keep the simulator from going on, and slowly how often
	// it may be slow: a busy machine lets anything be slow now and then, even with a regular pulse.
	slow   = 200 * time.Millisecond
	slowly = 3
)

// note says something of the run that is not part of its history, once.
func (w *world) note(text string) {
	if !slices.Contains(w.notes, text) {
		w.notes = append(w.notes, text)
	}
}

// rests notices a request that is asked for again and again, without a rest.
func (q *queue) rests(e *entry, after time.Duration) {
	if after > atOnce || q.p.w.effects != e.effects {
		e.again, e.effects = 0, q.p.w.effects
		return
	}
	if e.again++; e.again == restless {
		q.p.w.note(fmt.Sprintf("%s asked %d times in a row to run again about %s within %s, while nothing changed", q.p.actor.name, restless, e.request.Name, atOnce))
	}
}

// timed notices a reconcile that takes its time, in a run whose manners are looked at: a search has
// no time for that.
func (a *flights) timed(c *coroutine) {
	p := a.p
	if p.w.trace == nil || c.mark.Took() < slow {
		return
	}
	if a.slow++; a.slow == slowly {
		p.w.note(fmt.Sprintf("%s has kept the simulator waiting for more than %s %d times: it sleeps, or computes, by the clock of the machine; take the run's from Deps.Clock. Or the machine has much other work: see whether it says so again", p.actor.name, slow, slowly))
	}
}
