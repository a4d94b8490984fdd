package invariant

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Ruling holds a checker's conclusions so far. Every checker embeds one.
//
// A breach is certain only when the event that should have come first can't
// have: with observers that agree to within skew it stays a suspicion for that
// long, and becomes a doubt if the event comes in time.
type Ruling struct {
	ID   string
	Skew time.Duration
	// Judged counts the occasions that put the claim to the test, and excused those of them
	// that would have broken it but for a hindrance.
	Judged, excused int
	// Doubt is the first reason why a verdict of held would be a guess.
	Doubt string
	// suspended is why a clause of the claim could not be judged, from the first occasion on.
	suspended string
	// ruled is the event on which the checker has ruled last, and because the one that allows
	// it; zero if it is forbidden, or excused.
	ruled    int
	because  history.Event
	Found    *Violation
	cause    Cause
	told     bool
	suspects []suspect
	closest  *Closest
}

// Allow notes that e is right because of an earlier event: a request of somebody else, or a
// physical fact. The records of its own author allow nothing.
func (r *Ruling) Allow(e, because *history.Event) { r.ruled, r.because = e.Seq, *because }

// Excuse notes that e would be wrong, but for what its author could not know.
func (r *Ruling) Excuse(e *history.Event) {
	r.ruled, r.because = e.Seq, history.Event{}
	r.Judged++
	r.excused++
}

// RuledOn implements Checker.
func (r *Ruling) RuledOn(e *history.Event) (because *history.Event, ok bool) {
	return &r.because, r.ruled == e.Seq
}

// Kept says that two events came in the order that the claim promises. The zero event
// as the first one is none.
func (r *Ruling) Kept(first, second *history.Event) {
	if first.Kind == "" {
		return
	}
	r.nearest(Closest{First: *first, Second: *second, Margin: second.At - first.At})
}

// Within says that the second event came soon enough after the first one.
func (r *Ruling) Within(limit time.Duration, first, second *history.Event) {
	r.nearest(Closest{First: *first, Second: *second, Margin: limit - (second.At - first.At), Limit: limit})
}

func (r *Ruling) nearest(c Closest) {
	if r.closest == nil || c.Margin < r.closest.Margin {
		closer := c // in the heap only here
		r.closest = &closer
	}
}

// InTime judges something that had to come within a limit after another, not counting the time
// lost to hindrances. It counts as excused if they were still in force when it came, so that time
// has never run out.
func (r *Ruling) InTime(limit time.Duration, h *Hindrances, on Parties, first, second *history.Event) {
	r.Judged++
	if second.At-first.At > limit && h.inForce(second.At, on) {
		r.excused++
	}
	r.Within(limit+h.Lost(first.At, second.At, on), first, second)
}

// Beside says how much of a time was lost to hindrances, for the end of a sentence.
func Beside(lost time.Duration) string {
	if lost == 0 {
		return ""
	}
	return "; hindrances account for " + Seconds(lost) + " of that"
}

// Cause is the event that ends a forbidden state: the boots of a host end, or one thing on it.
type Cause struct{ Host, Thing string }

// ends reports whether c, as it happens, ends state s. A host without a thing
// ends everything on it.
func (c Cause) ends(s Cause) bool { return c.Host == s.Host && (c.Thing == "" || c.Thing == s.Thing) }

type suspect struct {
	cause     Cause
	violation *Violation
}

// Accuse says that breach happened in a state that forbids it: the one that
// began with standing and that c will end. While completes the sentence.
func (r *Ruling) Accuse(c Cause, standing, breach *history.Event, while string) {
	r.ruled, r.because = breach.Seq, history.Event{}
	if r.Found != nil {
		return
	}
	v := &Violation{Invariant: r.ID, First: *standing, Second: *breach, Open: true, Sentence: Clause(breach) + ", while " + while}
	if r.Skew == 0 {
		r.Found, r.cause = v, c
		return
	}
	r.suspects = append(r.suspects, suspect{c, v})
}

// Breach says that two events broke the claim by themselves: nothing that comes
// later can mend or refute it.
func (r *Ruling) Breach(first, second *history.Event, sentence string) {
	r.ruled, r.because = second.Seq, history.Event{}
	if r.Found == nil {
		r.Found = &Violation{Invariant: r.ID, First: *first, Second: *second, Margin: second.At - first.At, Sentence: sentence}
	}
}

// Settle says that state c ended with e.
func (r *Ruling) Settle(c Cause, e *history.Event) {
	if v := r.Found; v != nil && v.Open && c.ends(r.cause) {
		breach := v.Second
		v.First, v.Second, v.Margin, v.Open = breach, *e, e.At-breach.At, false
		v.Sentence = Clause(&breach) + "; " + strings.Replace(Clause(e), "the Node of "+breach.Host, "its Node", 1) +
			": " + Seconds(v.Margin) + " too late"
	}
	kept := r.suspects[:0]
	for _, s := range r.suspects {
		if c.ends(s.cause) {
			r.Close(&s.violation.Second, e)
		} else {
			kept = append(kept, s)
		}
	}
	r.suspects = kept
}

// Ripen turns the suspicions that nothing can refute any more into a violation.
// It comes before an event at this time is judged.
func (r *Ruling) Ripen(now time.Duration) {
	for len(r.suspects) > 0 && r.Found == nil {
		s := r.suspects[0]
		if now-s.violation.Second.At < r.Skew {
			return
		}
		r.Found, r.cause = s.violation, s.cause
		r.suspects = r.suspects[1:]
	}
}

// Tell returns the violation once.
func (r *Ruling) Tell() *Violation {
	if r.Found == nil || r.told {
		return nil
	}
	r.told = true
	return r.Found
}

// Near reports whether the order of e and an earlier event is not known. The
// two come from different observers. The zero event is never near.
func (r *Ruling) Near(earlier, e *history.Event) bool {
	return r.Skew > 0 && earlier.Kind != "" && e.At-earlier.At < r.Skew
}

// Close records the doubt that two events leave whose order is not known.
func (r *Ruling) Close(a, b *history.Event) {
	if a.At > b.At {
		a, b = b, a
	}
	if r.Doubt == "" {
		r.Doubt = fmt.Sprintf("too close to call: %s and %s are %s apart, and observers agree only to within %s",
			Clause(a), Clause(b), millis(b.At-a.At), millis(r.Skew))
	}
}

// Suspend records why a verdict of held would be a guess from e on.
func (r *Ruling) Suspend(e *history.Event, why string) {
	r.ruled, r.because = e.Seq, history.Event{}
	if r.Doubt == "" {
		r.Doubt = Clause(e) + why
	}
}

// SetAside notes that a clause can't be judged on the occasion of e, and why. That occasion puts
// the claim to no test; the verdict says so.
func (r *Ruling) SetAside(e *history.Event, why string) {
	r.ruled, r.because = e.Seq, history.Event{}
	if r.suspended == "" {
		r.suspended = "from " + Clause(e) + " on, " + why
	}
}

// Pending is that of a claim without a liveness side.
func (r *Ruling) Pending() string { return "" }

// Conclude returns the verdict on a claim without a liveness side. Untested is the reason when
// nothing put the claim to the test.
func (r *Ruling) Conclude(complete bool, untested string) Result {
	v := r.Found
	if v == nil && complete && len(r.suspects) > 0 {
		v = r.suspects[0].violation // nothing came to refute it
	}
	switch {
	case v != nil:
		return Result{Invariant: r.ID, Verdict: Violated, Reason: v.Sentence, Violation: v, Judged: max(1, r.Judged), Excused: r.excused}
	case r.Doubt != "":
		return r.Unknown(r.Doubt)
	case !complete:
		return r.Unknown("the history was cut short")
	case r.Judged == r.excused && r.suspended != "":
		return r.Unknown("never put to the test: " + r.suspended)
	case r.Judged == r.excused:
		return r.Unknown("never put to the test: " + untested)
	}
	return Result{Invariant: r.ID, Verdict: Held, Judged: r.Judged, Excused: r.excused, Suspended: r.suspended, Closest: r.closest}
}

// Unknown returns the result of a claim that can't be decided, with the reason.
func (r *Ruling) Unknown(reason string) Result {
	return Result{Invariant: r.ID, Verdict: Unknown, Reason: reason, Judged: r.Judged, Excused: r.excused}
}

// Clause says what happened and when: "worker-1 was powered on at 41.2 s".
func Clause(e *history.Event) string { return e.Phrase() + " at " + Seconds(e.At) }

// Seconds renders a time for a sentence: "41.2 s", to the millisecond.
func Seconds(d time.Duration) string {
	whole, rest := d.Round(time.Millisecond)/time.Second, d.Round(time.Millisecond)%time.Second
	fraction := strings.TrimRight(fmt.Sprintf("%03d", rest/time.Millisecond), "0")
	return fmt.Sprintf("%d.%s s", whole, cmp.Or(fraction, "0"))
}

func millis(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', -1, 64) + " ms"
}
