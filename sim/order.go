package sim

import (
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/steps"
)

// awaited is a step for which others wait.
type awaited struct {
	// after names the step as the plan does.
	after string
	taken bool
	// words describe the step, for the trace.
	words   string
	waiting []*step
}

// wait is that of a step for another one. The step stays in the queue, at the latest time at which
// it may come, so that it can be cancelled like any other.
type wait struct {
	deviation scenarios.Deviation
	other     *awaited
	party     string
	// due is when the step would have come.
	due         time.Duration
	manner      scenarios.Manner
	actor, does string
}

// await returns the step for which a deviation waits.
func (w *world) await(d scenarios.Deviation) (*awaited, error) {
	name, err := parseStepName(d.After)
	if err != nil {
		return nil, err
	}
	a := w.awaited[name]
	if d.AfterDeed != "" {
		a = w.awaitedDeeds[d.AfterDeed]
	}
	if a != nil {
		return a, nil
	}
	if w.awaited == nil {
		w.awaited, w.awaitedDeeds = make(map[steps.Name]*awaited), make(map[string]*awaited)
	}
	if a = (&awaited{after: d.After}); d.AfterDeed != "" {
		w.awaitedDeeds[d.AfterDeed] = a
	} else {
		w.awaited[name] = a
	}
	return a, nil
}

// named looks for what the plan has for a step under the name of its deed, and writes down the
// deeds of the steps that the plan names.
func (w *world) named(step steps.Step, d scenarios.Deviation, deviates bool) (scenarios.Deviation, bool) {
	deed, seen := step.Deed()
	deed = w.count.Next(deed.Actor, deed.Does, step.Effect)
	if !seen {
		return d, deviates
	}
	name, called := steps.Name{Actor: step.Actor, Class: step.Class, N: step.N}, deed.String()
	if found, ok := w.byDeed[called]; ok {
		d, deviates = found, true
	}
	if other := w.awaitedDeeds[called]; other != nil {
		w.awaited[name] = other
	}
	if other := w.awaited[name]; other != nil {
		w.deeds[other.after] = called
	}
	if deviates {
		w.deeds[d.Step] = called
	}
	return d, deviates
}

// park lets a step wait for another one, unless that has been taken.
func (w *world) park(s *step, of *wait) {
	var err error
	if of.other, err = w.await(of.deviation); err != nil {
		w.fail(err)
		return
	}
	s.makeOdd().wait, of.due = of, s.at
	if of.other.taken {
		w.unpark(s, true)
		return
	}
	s.at += time.Duration(of.deviation.Delay)
	of.other.waiting = append(of.other.waiting, s)
	w.trace.Deviated(w.now, of.deviation.Waiting(), of.actor, of.does, "")
	w.emit(history.Event{
		Kind: history.Deviated, Actor: s.name.Actor, Value: of.deviation.Waiting(),
		Note: time.Duration(of.deviation.Delay).String(), Hinders: of.deviation.Waits(of.party, of.due-w.now, of.manner),
	})
}

// release lets the steps go on that waited for this one, which has just been taken: they are next,
// unless they weren't due yet.
func (w *world) release(taken *step) {
	other := w.awaited[taken.name]
	if other == nil || other.taken {
		return
	}
	other.taken = true
	for _, s := range other.waiting {
		if s.index < 0 || s.oddity().wait == nil {
			continue // it was cancelled, or has come without
		}
		w.queue.remove(s.index)
		s.at, s.order = max(w.now, s.due), min(s.order, taken.order)
		w.unpark(s, true)
		w.queue.push(s)
		w.followUp(s)
	}
}

// followUp lets the deliveries that come behind one that has waited come with it.
func (w *world) followUp(first *step) {
	if first.name.Class != steps.ClassDeliver {
		return
	}
	for again := true; again; {
		again = false
		for _, s := range w.queue.steps {
			at := max(s.due, first.at)
			if s.name.Actor == first.name.Actor && s.name.Class == steps.ClassDeliver && !s.oddity().deviates && s.at > at {
				w.queue.remove(s.index)
				s.at = at
				w.queue.push(s)
				again = true
				break // the queue is another one now
			}
		}
	}
}

// unpark ends the wait of a step, if it has one: because the other one has been taken, or else in
// vain.
func (w *world) unpark(s *step, landed bool) {
	of := s.oddity().wait
	if of == nil {
		return
	}
	s.odd.wait = nil
	d, after := of.deviation, max(0, w.now-of.due)
	e := history.Event{
		Kind: history.Deviated, Actor: s.name.Actor, Value: d.String(), Hinders: d.Came(of.party, after, of.manner), Frees: []string{history.WaitOf(d.Step)},
	}
	if !landed {
		e.Value = d.Step + " no longer waits for " + d.After
	}
	if after > 0 {
		e.Key = after.String()
	}
	w.emit(e)
	if w.trace != nil && landed {
		w.trace.Deviated(s.at, d.String(), of.actor, of.does, of.other.words)
	}
}
