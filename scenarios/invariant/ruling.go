package invariant

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// ruling is what a checker has concluded so far. Every checker embeds one.
//
// A breach is certain only when the event that should have come first can't
// have: with observers that agree to within skew it stays a suspicion for that
// long, and becomes a doubt if the event comes in time.
type ruling struct {
	id   string
	skew time.Duration
	// judged counts the occasions that put the claim to the test, and excused those of them
	// that would have broken it but for a hindrance.
	judged, excused int
	// doubt is the first reason why a verdict of held would be a guess.
	doubt string
	// ruled is the event on which the checker has ruled last, and because the one that allows
	// it; zero if it is forbidden, or excused.
	ruled    int
	because  history.Event
	found    *Violation
	cause    cause
	told     bool
	suspects []suspect
	closest  *Closest
}

// allow says that e is right because of an earlier event: of what others asked for, or of a
// physical fact. What its author has recorded itself allows nothing.
func (r *ruling) allow(e, because *history.Event) { r.ruled, r.because = e.Seq, *because }

// excuse says that e would be wrong, but for what its author could not know.
func (r *ruling) excuse(e *history.Event) {
	r.ruled, r.because = e.Seq, history.Event{}
	r.judged++
	r.excused++
}

// RuledOn implements Checker.
func (r *ruling) RuledOn(e *history.Event) (because *history.Event, ok bool) {
	return &r.because, r.ruled == e.Seq
}

// kept says that two events came in the order that the claim promises. The zero event
// as the first one is none.
func (r *ruling) kept(first, second *history.Event) {
	if first.Kind == "" {
		return
	}
	r.nearest(Closest{First: *first, Second: *second, Margin: second.At - first.At})
}

// within says that the second event came soon enough after the first one.
func (r *ruling) within(limit time.Duration, first, second *history.Event) {
	r.nearest(Closest{First: *first, Second: *second, Margin: limit - (second.At - first.At), Limit: limit})
}

func (r *ruling) nearest(c Closest) {
	if r.closest == nil || c.Margin < r.closest.Margin {
		r.closest = &c
	}
}

// inTime judges something that had to come within a limit after another, beside what was
// lost to hindrances. It counts as excused if they were still in force when it came, so that
// no time has ever run out.
func (r *ruling) inTime(limit time.Duration, h *hindrances, on parties, first, second *history.Event) {
	r.judged++
	if second.At-first.At > limit && h.inForce(second.At, on) {
		r.excused++
	}
	r.within(limit+h.lost(first.At, second.At, on), first, second)
}

// beside says how much of a time was lost to hindrances, for the end of a sentence.
func beside(lost time.Duration) string {
	if lost == 0 {
		return ""
	}
	return "; hindrances account for " + seconds(lost) + " of that"
}

// cause is what must happen for a forbidden state to end: the boots of a host,
// or one thing on it.
type cause struct{ host, thing string }

// ends reports whether c, as it happens, ends state s. A host without a thing
// ends everything on it.
func (c cause) ends(s cause) bool { return c.host == s.host && (c.thing == "" || c.thing == s.thing) }

type suspect struct {
	cause     cause
	violation *Violation
}

// accuse says that breach happened in a state that forbids it: the one that
// began with standing and that c will end. While completes the sentence.
func (r *ruling) accuse(c cause, standing, breach *history.Event, while string) {
	r.ruled, r.because = breach.Seq, history.Event{}
	if r.found != nil {
		return
	}
	v := &Violation{Invariant: r.id, First: *standing, Second: *breach, Open: true, Sentence: clause(breach) + ", while " + while}
	if r.skew == 0 {
		r.found, r.cause = v, c
		return
	}
	r.suspects = append(r.suspects, suspect{c, v})
}

// breach says that two events broke the claim by themselves: nothing that comes
// later can mend or refute it.
func (r *ruling) breach(first, second *history.Event, sentence string) {
	r.ruled, r.because = second.Seq, history.Event{}
	if r.found == nil {
		r.found = &Violation{Invariant: r.id, First: *first, Second: *second, Margin: second.At - first.At, Sentence: sentence}
	}
}

// settle says that state c ended with e.
func (r *ruling) settle(c cause, e *history.Event) {
	if v := r.found; v != nil && v.Open && c.ends(r.cause) {
		breach := v.Second
		v.First, v.Second, v.Margin, v.Open = breach, *e, e.At-breach.At, false
		v.Sentence = clause(&breach) + "; " + strings.Replace(clause(e), "the Node of "+breach.Host, "its Node", 1) +
			": " + seconds(v.Margin) + " too late"
	}
	kept := r.suspects[:0]
	for _, s := range r.suspects {
		if c.ends(s.cause) {
			r.close(&s.violation.Second, e)
		} else {
			kept = append(kept, s)
		}
	}
	r.suspects = kept
}

// ripen turns the suspicions that nothing can refute any more into a violation.
// It comes before an event at this time is judged.
func (r *ruling) ripen(now time.Duration) {
	for len(r.suspects) > 0 && r.found == nil {
		s := r.suspects[0]
		if now-s.violation.Second.At < r.skew {
			return
		}
		r.found, r.cause = s.violation, s.cause
		r.suspects = r.suspects[1:]
	}
}

// tell returns the violation once.
func (r *ruling) tell() *Violation {
	if r.found == nil || r.told {
		return nil
	}
	r.told = true
	return r.found
}

// near reports whether the order of e and an earlier event is not known. The
// two come from different observers. The zero event is never near.
func (r *ruling) near(earlier, e *history.Event) bool {
	return r.skew > 0 && earlier.Kind != "" && e.At-earlier.At < r.skew
}

// close records the doubt that two events leave whose order is not known.
func (r *ruling) close(a, b *history.Event) {
	if a.At > b.At {
		a, b = b, a
	}
	if r.doubt == "" {
		r.doubt = fmt.Sprintf("too close to call: %s and %s are %s apart, and observers agree only to within %s",
			clause(a), clause(b), millis(b.At-a.At), millis(r.skew))
	}
}

// suspend records why a verdict of held would be a guess from e on.
func (r *ruling) suspend(e *history.Event, why string) {
	r.ruled, r.because = e.Seq, history.Event{}
	if r.doubt == "" {
		r.doubt = clause(e) + why
	}
}

// Pending is that of a claim without a liveness side.
func (r *ruling) Pending() string { return "" }

// verdict concludes. Untested is the reason when nothing put the claim to the
// test.
func (r *ruling) verdict(complete bool, untested string) Result {
	v := r.found
	if v == nil && complete && len(r.suspects) > 0 {
		v = r.suspects[0].violation // nothing came to refute it
	}
	switch {
	case v != nil:
		return Result{Invariant: r.id, Verdict: Violated, Reason: v.Sentence, Violation: v, Judged: max(1, r.judged), Excused: r.excused}
	case r.doubt != "":
		return r.unknown(r.doubt)
	case !complete:
		return r.unknown("the history was cut short")
	case r.judged == r.excused:
		return r.unknown("never put to the test: " + untested)
	}
	return Result{Invariant: r.id, Verdict: Held, Judged: r.judged, Excused: r.excused, Closest: r.closest}
}

func (r *ruling) unknown(reason string) Result {
	return Result{Invariant: r.id, Verdict: Unknown, Reason: reason, Judged: r.judged, Excused: r.excused}
}

// clause says what happened and when: "worker-1 was powered on at 41.2 s".
func clause(e *history.Event) string { return e.Phrase() + " at " + seconds(e.At) }

// seconds renders a time for a sentence: "41.2 s", to the millisecond.
func seconds(d time.Duration) string {
	whole, rest := d.Round(time.Millisecond)/time.Second, d.Round(time.Millisecond)%time.Second
	fraction := strings.TrimRight(fmt.Sprintf("%03d", rest/time.Millisecond), "0")
	return fmt.Sprintf("%d.%s s", whole, cmp.Or(fraction, "0"))
}

func millis(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', -1, 64) + " ms"
}
