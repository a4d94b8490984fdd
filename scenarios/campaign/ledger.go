package campaign

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"github.com/fencelab/fencelab/scenarios/play"
)

// Ledger records an invocation's results, scenario by scenario. It becomes report.json, as
// docs/reports.md describes it, and the other files for CI are made from it.
type Ledger struct {
	Version     string    `json:"version"`
	Backend     string    `json:"backend"`
	Controllers string    `json:"controllers,omitempty"`
	Hosts       string    `json:"hosts,omitempty"`
	Cluster     string    `json:"cluster,omitempty"`
	Power       string    `json:"power,omitempty"`
	Seed        uint64    `json:"seed"`
	Strategy    string    `json:"strategy"`
	Began       time.Time `json:"began"`
	Wall        float64   `json:"wallSeconds"`
	ExitCode    int       `json:"exitCode"`
	Counts      Counts    `json:"counts"`
	Results     []*Entry  `json:"results"`
}

// Counts are how many scenarios came out how.
type Counts struct {
	Scenarios int `json:"scenarios"`
	Passed    int `json:"passed"`
	// Expected counts the scenarios that passed because a guarantee was violated.
	Expected int `json:"passedByViolation"`
	Failed   int `json:"failed"`
	Unknown  int `json:"unknown"`
	Errors   int `json:"errors"`
	Skipped  int `json:"skipped"`
}

// Status compares a scenario's outcome with its expectation.
type Status string

// The statuses.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Unknown Status = "unknown"
	Broken  Status = "error"
	Skipped Status = "skipped"
)

// Entry records the result of one scenario.
type Entry struct {
	Scenario string `json:"scenario"`
	File     string `json:"file,omitempty"`
	// Line is where the file has the step at which it failed, or the scenario's name.
	Line   int    `json:"line,omitempty"`
	Status Status `json:"status"`
	// Expected is the outcome that the scenario expects: held, or "violated: " and the guarantee.
	Expected string `json:"expected"`
	// Reason says why it didn't pass, or was skipped.
	Reason string    `json:"reason,omitempty"`
	Wall   float64   `json:"wallSeconds"`
	Search *Searched `json:"search,omitempty"`
	// Runs holds the runs that were shown: the only one, or the first of each kind of failure that
	// a search found.
	Runs []*Shown `json:"runs,omitempty"`

	lines map[string]int
	// first describes how the first run that was shown differs from what is expected.
	first string
}

// Searched records the result of a search.
type Searched struct {
	Schedules int `json:"schedules"`
	Of        int `json:"of"`
	// All is how many there are, if the strategy ends by itself: a sweep that was to try
	// fewer is not exhaustive.
	All      int `json:"outOf,omitempty"`
	Held     int `json:"held"`
	Violated int `json:"violated"`
	Unknown  int `json:"unknown"`
	Idle     int `json:"withoutEffect"`
	Bypassed int `json:"bypassed"`
	// Disordered counts the schedules whose order did not come about, and Audits those with which
	// the independence of steps was checked.
	Disordered int `json:"disordered,omitempty"`
	Audits     int `json:"audits,omitempty"`
	// Limited counts the schedules that ended while something was still missing.
	Limited   int     `json:"limited,omitempty"`
	Simulated float64 `json:"simulatedSeconds"`
	// Rulings are how often each guarantee was put to the test.
	Rulings map[string]Rulings `json:"rulings,omitempty"`
	// Shares are the parts of the search, if it has any.
	Shares []Share `json:"shares,omitempty"`
	// Edges is how many orders and decisions on old versions there are that the default schedule
	// doesn't have, and NeverCame which of them no schedule brought about.
	Edges     int      `json:"edges,omitempty"`
	NeverCame []string `json:"neverCame,omitempty"`
	// Failures are the kinds of them.
	Failures []Cluster `json:"failures,omitempty"`
}

// Rulings are how often a guarantee was put to the test, and how many of those rulings only a
// hindrance saved.
type Rulings struct {
	Judged  int `json:"judged"`
	Excused int `json:"excused"`
	// Schedules counts those in which it was put to the test and not only excused.
	Schedules int `json:"schedules,omitempty"`
}

// Plus adds rulings of other schedules.
func (r Rulings) Plus(o Rulings) Rulings {
	return Rulings{r.Judged + o.Judged, r.Excused + o.Excused, r.Schedules + o.Schedules}
}

// Cluster is schedules that failed alike.
type Cluster struct {
	Signature string `json:"signature"`
	Guarantee string `json:"guarantee,omitempty"`
	// Cause says what they deviate in.
	Cause string `json:"cause,omitempty"`
	// Missing says that the guarantee was broken by what never came.
	Missing   bool `json:"missing,omitempty"`
	Schedules int  `json:"schedules"`
	First     int  `json:"firstSchedule"`
	// Divides says what divides them from the schedules that held.
	Divides string `json:"divides,omitempty"`
}

// Shown is a run that was reported on.
type Shown struct {
	// Directory is where it was saved, if it was.
	Directory string `json:"directory,omitempty"`
	// Report is the report.json of the run.
	Report json.RawMessage `json:"report"`

	// Text is the output printed for the run, and Replay the command that plays it again.
	Text   string `json:"-"`
	Replay string `json:"-"`
}

// begin opens the entry of a scenario.
func (l *Ledger) begin(s *scenarios.Scenario) *Entry {
	e := &Entry{Scenario: s.Metadata.Name, File: s.File, Expected: string(invariant.Held), Line: s.Lines[scenarios.NameAt], lines: s.Lines}
	if v := s.Spec.Expect.Violated; v != "" {
		e.Expected = "violated: " + v
	}
	l.Results = append(l.Results, e)
	return e
}

// end closes an entry with the exit code of its scenario.
func (e *Entry) end(code int, took time.Duration) {
	e.Wall = took.Seconds()
	switch code {
	case exit.Held:
		e.Status = Passed
	case exit.Violated:
		e.Status = Failed
	case exit.Unknown:
		e.Status = Unknown
	default:
		e.Status = Broken
	}
	if s := e.Search; s != nil && e.Reason == "" && e.Status != Passed {
		e.Reason = fmt.Sprintf("%s: %d violated, %d unknown", phrase.Count(s.Schedules, "schedule"), s.Violated, s.Unknown)
		if s.Schedules < s.Of {
			e.Reason += fmt.Sprintf(", interrupted before the other %d", s.Of-s.Schedules)
		}
		if e.first != "" {
			e.Reason += "; the first: " + e.first
		}
	}
}

// skip says why a scenario was not run.
func (e *Entry) skip(reason string) { e.Status, e.Reason = Skipped, reason }

// ran takes over a run and how it was shown.
func (e *Entry) ran(o *play.Outcome, shown *Shown) {
	if e == nil {
		return
	}
	e.Runs = append(e.Runs, shown)
	mismatch := o.Meets()
	if mismatch == "" || e.first != "" {
		return
	}
	e.first = mismatch
	reached := o.Steps - 1 // the last that was done, or the one that it hung at
	if o.Stuck != "" {
		reached++
	}
	e.Line = cmp.Or(e.lines[scenarios.StepAt(reached)], e.Line)
	if e.Search == nil {
		e.Reason = mismatch
	}
}

// close adds up.
func (l *Ledger) close(code int, took time.Duration) {
	l.ExitCode, l.Wall, l.Counts = code, took.Seconds(), Counts{Scenarios: len(l.Results)}
	for _, e := range l.Results {
		switch e.Status {
		case Passed:
			l.Counts.Passed++
			if e.Expected != string(invariant.Held) {
				l.Counts.Expected++
			}
		case Failed:
			l.Counts.Failed++
		case Unknown:
			l.Counts.Unknown++
		case Broken:
			l.Counts.Errors++
		case Skipped:
			l.Counts.Skipped++
		}
	}
}

// searched returns the ledger's record of the search.
func (s *Search) searched(t Tally) *Searched {
	found := &Searched{
		Schedules: t.Tried, Of: s.Total, All: s.All, Held: t.Held, Violated: t.Violated, Unknown: t.Unknown,
		Idle: t.Idle, Bypassed: t.Bypassed, Disordered: t.Disordered, Audits: t.Audits, Limited: t.Limited, Simulated: t.Simulated.Seconds(), Rulings: t.Rulings,
	}
	if covering, ok := s.Strategy.(Covering); ok {
		found.Shares = covering.Shares()
	}
	found.Edges, found.NeverCame = len(s.Edges), s.Gaps(t)
	for _, f := range t.Failures() {
		found.Failures = append(found.Failures, Cluster{Signature: f.Signature, Cause: f.Cause, Guarantee: f.Invariant, Missing: f.Missing, Schedules: f.Count, First: f.Schedule.Number + 1, Divides: f.Divides})
	}
	return found
}

// What says what they have in common, in a line.
func (c *Cluster) What() string {
	if c.Cause == "" {
		return c.Signature
	}
	return c.Signature + ", when " + c.Cause
}

// Kind says in a word what is wrong: violated, missing (what was promised never came) or unknown.
func (c *Cluster) Kind() string { return kindOf(c.Guarantee, c.Missing) }
