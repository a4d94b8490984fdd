package campaign

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/play"
)

// Tally counts results and keeps the first of each kind that was not expected.
// Results may be added in any order, and tallies of parts of a search merged in any. It is plain
// data.
type Tally struct {
	// Tried counts the schedules that were played.
	Tried int `json:"tried"`
	// Held, Violated and Unknown are how many of them came out how.
	Held     int `json:"held"`
	Violated int `json:"violated,omitempty"`
	Unknown  int `json:"unknown,omitempty"`
	// Unjudged counts those of the unknown ones in which a harm was done that no guarantee judged.
	Unjudged int `json:"unjudged,omitempty"`
	// Idle is in how many of them a fault, a crash or a deviation had no effect, and Bypassed
	// how many led past a step of the story. Those count as held.
	Idle     int `json:"idle,omitempty"`
	Bypassed int `json:"bypassed,omitempty"`
	// Disordered is in how many of them an order did not come about, and Audits how often two steps
	// that are said to be independent were swapped, and were.
	Disordered int `json:"disordered,omitempty"`
	Audits     int `json:"audits,omitempty"`
	// Limited is in how many of them something was still missing at the end.
	Limited int `json:"limited,omitempty"`
	// Rulings are how often each guarantee was put to the test in all schedules.
	Rulings map[string]Rulings `json:"rulings,omitempty"`
	// Edges are in how many of them each came about.
	Edges map[Point]int `json:"edges,omitempty"`
	// Simulated is the virtual time of all schedules.
	Simulated time.Duration `json:"simulated"`
	// Failed has one failure for each signature and cause.
	Failed []Failure `json:"failed,omitempty"`
	// Closest is where each guarantee was nearest to being broken in a schedule that held. It is
	// there where each outcome was looked at, see [Tally.Near].
	Closest map[string]Call `json:"closest,omitempty"`
}

// Call is a close call of a guarantee: two events in the promised order. Margin is the time between
// them or, with a Limit, the time that was left when the second came.
type Call struct {
	First  string        `json:"first"`
	Second string        `json:"second"`
	Margin time.Duration `json:"margin"`
	Limit  time.Duration `json:"limit,omitempty"`
	// Schedule is where that was, as it was chosen.
	Schedule Schedule `json:"schedule"`
}

// before says whether a call is closer than another one, or as close and earlier.
func (c *Call) before(o *Call) bool {
	return cmp.Or(cmp.Compare(c.Margin, o.Margin), cmp.Compare(c.Schedule.Number, o.Schedule.Number)) < 0
}

// Near notes how near each guarantee was to being broken in a schedule, if that held.
func (t *Tally) Near(s Schedule, o *play.Outcome) {
	if verdict, _ := o.VerdictOfSchedule(); verdict != invariant.Held {
		return
	}
	for i := range o.Results {
		r := &o.Results[i]
		if r.Closest == nil || !play.Tests(r.Invariant) {
			continue
		}
		call := Call{Margin: r.Closest.Margin, Limit: r.Closest.Limit, Schedule: s}
		if known, ok := t.Closest[r.Invariant]; ok && !call.before(&known) {
			continue
		}
		call.First, call.Second = invariant.Clause(&r.Closest.First), invariant.Clause(&r.Closest.Second)
		t.near(r.Invariant, call)
	}
}

func (t *Tally) near(id string, call Call) {
	if known, ok := t.Closest[id]; ok && !call.before(&known) {
		return
	}
	if t.Closest == nil {
		t.Closest = make(map[string]Call)
	}
	t.Closest[id] = call
}

// Failure is schedules that broke a guarantee in the same way for the same cause, or whose verdict
// is unknown for the same reason.
type Failure struct {
	// Signature is common to all failures of the group.
	Signature string `json:"signature"`
	// Cause says what the schedules of a group deviate in: see [CauseOf]. That of a schedule with
	// several deviations is "" until it has been shrunk, as is that of one that needs none.
	Cause string `json:"cause,omitempty"`
	// Invariant is the guarantee, or "" for an unknown verdict.
	Invariant string `json:"guarantee,omitempty"`
	// Missing says that what was promised never came, and not that something was done that
	// may not be.
	Missing bool `json:"missing,omitempty"`
	// Divides says what divides these from the schedules that held, if that was looked for.
	Divides string `json:"divides,omitempty"`
	// Schedule is the first of them, and Given the first few as they were chosen.
	Schedule Schedule   `json:"schedule"`
	Given    []Schedule `json:"given,omitempty"`
	// Count is their number.
	Count int `json:"count"`
}

// alike reports whether failures are of one group.
func (f *Failure) alike(o Failure) bool { return f.Signature == o.Signature && f.Cause == o.Cause }

// causes lists the causes of deviations, each once.
func causes(deviations []scenarios.Deviation) (all []string) {
	for _, d := range deviations {
		all = append(all, d.Cause())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// CauseOf says who has which kind of trouble in a schedule that needs these deviations to fail.
func CauseOf(deviations []scenarios.Deviation) string {
	return strings.Join(causes(deviations), ", and ")
}

// ResultOf returns the result of a schedule with this outcome.
func ResultOf(o *play.Outcome) Result {
	r := Result{Idle: len(o.Injected.Idle) > 0, Disordered: o.Disordered(), Limited: o.Settled == 0 && o.Broken == nil, Simulated: o.Played()}
	for _, result := range o.Results {
		if result.Judged > 0 {
			if r.Rulings == nil {
				r.Rulings = make(map[string]Rulings)
			}
			r.Rulings[result.Invariant] = rulings(result.Judged, result.Excused)
		}
	}
	var reason string
	if r.Verdict, reason = o.VerdictOfSchedule(); r.Verdict == invariant.Unknown && o.Bypassed() {
		r.Verdict, r.Bypassed = invariant.Held, true
	}
	switch r.Verdict {
	case invariant.Held:
	case invariant.Violated:
		v := o.Violation()
		r.Invariant = v.Invariant
		r.Signature = v.Invariant + ": " + sign(&v.First) + ", " + sign(&v.Second)
		// A run that has waited in vain misses something. What a story's own claim forbids has
		// come, though the claim counts from the beginning of the run.
		r.Missing = v.Second.Kind.Layer() == history.Engine || v.First.Kind.Layer() == history.Engine && v.Invariant != play.AsTold
		if o.Injected.Deviations == (play.Count{Took: 1, Of: 1}) {
			r.Cause = CauseOf(o.Plan.Deviations)
		}
		for _, result := range o.Results {
			if result.Verdict == invariant.Violated {
				r.Broke = append(r.Broke, result.Invariant)
			}
		}
	default:
		r.Signature = numbers.ReplaceAllString(reason, "${1}N")
	}
	return r
}

// rulings counts how often one schedule put a guarantee to the test.
func rulings(judged, excused int) Rulings {
	r := Rulings{Judged: judged, Excused: excused}
	if judged > excused {
		r.Schedules = 1
	}
	return r
}

// sign reduces an event to what it shares with its likes in other schedules.
func sign(e *history.Event) string {
	text := string(e.Kind)
	if e.Host != "" {
		text += " " + e.Host
	}
	if e.Actor != "" {
		text += " by " + e.Actor
	}
	return text
}

// numbers are the times and the counts in a reason, not the digits of a name.
var numbers = regexp.MustCompile(`(^|[ (])[0-9][0-9.]*(?:[hmsµn][0-9.hmsµn]*)?\b`)

// givenKept is how many of the schedules that failed alike are kept.
const givenKept = 8

// Add counts what came of a schedule that was chosen.
func (t *Tally) Add(chosen Schedule, r Result) {
	count := func(is bool) int {
		if is {
			return 1
		}
		return 0
	}
	one := Tally{
		Tried: 1, Idle: count(r.Idle), Bypassed: count(r.Bypassed), Disordered: count(r.Disordered), Audits: count(r.Audited), Limited: count(r.Limited),
		Unjudged: count(r.Verdict == invariant.Unjudged), Rulings: r.Rulings, Simulated: r.Simulated,
	}
	switch r.Verdict {
	case invariant.Held:
		one.Held = 1
	case invariant.Violated:
		one.Violated = 1
	default:
		one.Unknown = 1
	}
	for _, e := range r.Edges {
		if one.Edges == nil {
			one.Edges = make(map[Point]int, len(r.Edges))
		}
		one.Edges[e] = 1
	}
	if one.Held == 0 {
		one.Failed = []Failure{{Signature: r.Signature, Cause: r.Cause, Invariant: r.Invariant, Missing: r.Missing, Schedule: chosen.Played(r), Given: []Schedule{chosen}, Count: 1}}
	}
	t.Merge(one)
}

// Merge adds the tally of other schedules of the same search.
func (t *Tally) Merge(o Tally) {
	t.Tried, t.Held, t.Violated, t.Unknown = t.Tried+o.Tried, t.Held+o.Held, t.Violated+o.Violated, t.Unknown+o.Unknown
	t.Idle, t.Bypassed, t.Disordered, t.Audits = t.Idle+o.Idle, t.Bypassed+o.Bypassed, t.Disordered+o.Disordered, t.Audits+o.Audits
	t.Limited, t.Unjudged = t.Limited+o.Limited, t.Unjudged+o.Unjudged
	t.Simulated += o.Simulated
	if t.Rulings == nil {
		t.Rulings = make(map[string]Rulings)
	}
	for id, more := range o.Rulings { // order does not matter: sums
		t.Rulings[id] = t.Rulings[id].Plus(more)
	}
	for id, more := range o.Closest { // order does not matter: each has its own
		t.near(id, more)
	}
	for e, n := range o.Edges { // order does not matter: sums
		if t.Edges == nil {
			t.Edges = make(map[Point]int)
		}
		t.Edges[e] += n
	}
	for _, more := range o.Failed {
		i := slices.IndexFunc(t.Failed, more.alike)
		if i < 0 {
			t.Failed = append(t.Failed, more)
			continue
		}
		f := &t.Failed[i]
		if f.Count += more.Count; more.Schedule.Number < f.Schedule.Number {
			f.Schedule = more.Schedule
		}
		f.Given = slices.Concat(f.Given, more.Given)
		slices.SortFunc(f.Given, func(a, b Schedule) int { return cmp.Compare(a.Number, b.Number) })
		f.Given = f.Given[:min(givenKept, len(f.Given))]
	}
}

// Failures are the failures of a search in the order of a report: what did harm comes
// first, then what never came, then what is unknown; among equals what was found first.
func (t *Tally) Failures() []Failure {
	return slices.SortedFunc(slices.Values(t.Failed), func(a, b Failure) int {
		return cmp.Or(cmp.Compare(Rank(kindOf(a.Invariant, a.Missing)), Rank(kindOf(b.Invariant, b.Missing))), cmp.Compare(a.Schedule.Number, b.Schedule.Number))
	})
}

// missing is the kind of a failure in which what was promised never came.
const missing = "missing"

// kinds lists the kinds of failures, in the order of a report.
var kinds = []string{string(invariant.Violated), missing, string(invariant.Unknown)}

// Rank is the place of a kind in that order.
func Rank(kind string) int { return slices.Index(kinds, kind) }

// kindOf is the kind of a failure that broke a guarantee, if it did, by what never came, if that is
// so.
func kindOf(guarantee string, never bool) string {
	switch {
	case guarantee == "":
		return string(invariant.Unknown)
	case never:
		return missing
	}
	return string(invariant.Violated)
}

// OnlyExcused are the guarantees that no schedule has judged but where a hindrance excused
// what happened, in the order of their names.
func (t *Tally) OnlyExcused() []string {
	var ids []string
	for id, r := range t.Rulings { // order does not matter: sorted below
		if r.Judged == r.Excused {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Tested are the guarantees that any schedule has put to the test, but for those that are judged in
// every run, in the order of their names.
func (t *Tally) Tested() (ids []string) {
	for id, r := range t.Rulings { // order does not matter: sorted below
		if r.Judged > r.Excused && play.Tests(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Verdict returns the verdict on the whole search of total schedules.
func (t *Tally) Verdict(total int) invariant.Verdict {
	switch {
	case t.Violated > 0:
		return invariant.Violated
	case t.Unknown > 0 || t.Tried < total || len(t.Tested()) == 0:
		return invariant.Unknown
	}
	return invariant.Held
}
