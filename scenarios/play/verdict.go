package play

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/guarantee"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// Verdict is the verdict on the whole run. An observed violation stands, whatever else went wrong.
// Held needs a story that came to its end, and a guarantee that it put to the test; one that the
// scenario names itself must be among those.
//
// A fault, a crash or a deviation that had no effect leaves the verdict unknown, and so does a
// claim of the scenario's own that counts from an event which never came: the scenario's subject
// was not tested.
func (o *Outcome) Verdict() (invariant.Verdict, string) {
	verdict, reason := o.VerdictOfSchedule()
	if verdict != invariant.Held {
		return verdict, reason
	}
	idle := o.Injected.Idle
	for _, r := range o.Results {
		if r.Invariant == AsTold && r.Verdict == invariant.Unknown {
			idle = append(slices.Clip(idle), r.Invariant+": "+r.Reason)
		}
	}
	if len(idle) > 0 {
		return invariant.Unknown, strings.Join(idle, "; ")
	}
	return verdict, reason
}

// VerdictOfSchedule is the verdict on one schedule out of many. There a fault may
// come to nothing: the default schedule has shown that it works, and others may avoid it.
func (o *Outcome) VerdictOfSchedule() (invariant.Verdict, string) {
	if v := o.Violation(); v != nil {
		return invariant.Violated, v.Invariant + ": " + v.Sentence
	}
	tested := false
	var doubt string
	for _, r := range o.Results {
		switch {
		case r.Verdict == invariant.Held:
			tested = tested || !guarantee.IsAlways(r.Invariant)
		case doubt == "" && o.promised(r):
			doubt = r.Invariant + ": " + r.Reason
		}
	}
	switch {
	case o.Err != nil:
		return invariant.Unknown, o.Err.Error()
	case o.Stuck != "":
		return invariant.Unknown, o.Stuck
	case len(o.Plan.Spec.Steps) == 0:
		return invariant.Unknown, "the scenario has no steps: nothing was put to the test"
	case len(o.Unjudged) > 0:
		return invariant.Unjudged, o.sayUnjudged()
	case doubt != "":
		return invariant.Unknown, doubt
	case o.Idle != "":
		return invariant.Unknown, o.Idle
	case !tested:
		return invariant.Unknown, "no guarantee was put to the test"
	}
	return invariant.Held, ""
}

// promised reports whether it matters that a guarantee is not known to have held: it was put to the
// test, or the scenario names what is to be.
func (o *Outcome) promised(r invariant.Result) bool {
	return r.Judged > r.Excused || len(o.Plan.Spec.Invariants) > 0 && !guarantee.IsAlways(r.Invariant)
}

// sayUnjudged names the first harm at which no guarantee has looked, and what would make one.
func (o *Outcome) sayUnjudged() string {
	h := &o.Unjudged[0]
	reason := fmt.Sprintf("%s at %s (event %d) by %s, and no guarantee has ruled on that", h.Event.Phrase(), history.Seconds(h.Event.At), h.Event.Seq, h.Event.Actor)
	switch {
	case h.Unlisted:
		reason += ": no row of scenarios/invariant/writes.go has it; add one with the guarantee that rules on it, or with why none need"
	case h.NoPart:
		reason += fmt.Sprintf(": %s would, but nobody knows which part %s plays; give it plays: PART in spec.controllers", h.Judge, h.Event.Actor)
	default:
		reason += fmt.Sprintf(": %s would look at it", h.Judge)
	}
	if more := len(o.Unjudged) - 1; more > 0 {
		reason += fmt.Sprintf("; and %s more", phrase.Count(more, "harm"))
	}
	return reason
}

// Tests reports whether a guarantee says something of the controllers' part in a story, and not
// only what every run has to show.
func Tests(id string) bool { return id != AsTold && !guarantee.IsAlways(id) }

// Bypassed reports whether a schedule has led past a step of the story, or has kept all
// controllers from it, which says nothing against those as long as the guarantees were judged:
// they rule on what happened instead.
func (o *Outcome) Bypassed() bool {
	ledPast := o.Stuck != "" && o.Steps < len(o.Plan.Spec.Steps) || o.Idle != ""
	if !ledPast || o.Err != nil || len(o.Unjudged) > 0 ||
		!slices.ContainsFunc(o.History.Events(), func(e history.Event) bool { return e.Kind == history.Deviated }) {
		return false
	}
	tested := false
	for _, r := range o.Results {
		if r.Invariant == AsTold { // which speaks of the story
			continue
		}
		if r.Verdict == invariant.Violated || r.Verdict == invariant.Unknown && o.promised(r) {
			return false
		}
		tested = tested || r.Verdict == invariant.Held && !guarantee.IsAlways(r.Invariant)
	}
	return tested
}

// Meets compares the verdict with what the scenario expects of it. It returns ""
// or what is different.
func (o *Outcome) Meets() (mismatch string) {
	verdict, reason := o.Verdict()
	expected := o.Plan.Spec.Expect.Violated
	if expected == "" {
		if verdict == invariant.Held {
			return ""
		}
		return reason
	}
	for _, r := range o.Results {
		switch {
		case r.Invariant != expected || r.Verdict != invariant.Violated:
		case r.Violation != nil && !o.begun(r.Violation) && o.TooSlow() != "":
			return fmt.Sprintf("expected %s to be violated in the story, but it was before the topology was up and healthy, on a machine that was too slow: %s", expected, r.Reason)
		default:
			return ""
		}
	}
	if verdict == invariant.Violated {
		return fmt.Sprintf("expected %s to be violated, but it was another: %s", expected, reason)
	}
	if reason != "" {
		reason = ": " + reason
	}
	return fmt.Sprintf("expected %s to be violated, but the verdict is %s%s", expected, verdict, reason)
}

// begun reports whether the topology was up when a guarantee was violated. A wrong controller may
// break one before that, and so may a starved machine, of which the story says nothing.
func (o *Outcome) begun(v *invariant.Violation) bool {
	i := slices.IndexFunc(o.History.Events(), func(e history.Event) bool { return e.Kind == history.RunStarted })
	return i >= 0 && o.History.Events()[i].Seq < v.Second.Seq
}

// TooSlow reports how the machine, rather than a process under test, may have spoilt the run: it
// names who got too little of it, and for how long. A host that falls silent while it executes is
// such a case: no step of a story takes its observer away. It is "" if nothing was noticed.
func (o *Outcome) TooSlow() string {
	var stalls []string
	last := 0
	for _, e := range o.History.Events() {
		at := "at " + history.Seconds(e.At) + " "
		switch {
		case e.Kind == history.LabStalled:
			last = len(stalls)
			stalls = append(stalls, at+cmp.Or(e.Note, e.Phrase()))
		case e.Kind == history.EvidenceLost && e.Host != "":
			stalls = append(stalls, at+e.Phrase())
		case e.Kind == history.LabRecovered && last < len(stalls):
			stalls[last] += ", for " + e.Value + " in all"
		}
	}
	if n := len(stalls); n > maxStalls {
		stalls = append(stalls[:maxStalls], fmt.Sprintf("and %d times more", n-maxStalls))
	}
	return strings.Join(stalls, "; ")
}

// maxStalls are how many are named.
const maxStalls = 3

// Interrupted reports whether the run was ended from outside.
func (o *Outcome) Interrupted() bool { return errors.Is(o.Err, context.Canceled) }

// Violation returns the violation that the verdict and the report are about, or
// nil: the one that ended the run, and else the first of what was missing in the
// end.
func (o *Outcome) Violation() *invariant.Violation {
	if o.Broken != nil {
		return o.Broken
	}
	for _, r := range o.Results {
		if r.Violation != nil {
			return r.Violation
		}
	}
	return nil
}

// Duration is how much of the world's time the run took until nothing was missing
// any more: the quiet time after that is not counted.
func (o *Outcome) Duration() time.Duration {
	if o.Settled > 0 {
		return o.Settled
	}
	return o.Played()
}

// Played is how much of the world's time the run took in all.
func (o *Outcome) Played() time.Duration {
	events := o.History.Events()
	if len(events) == 0 {
		return 0
	}
	return events[len(events)-1].At
}
