package scenarios

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/page"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// Verdict is the verdict on the whole run. A violation that was seen stands,
// whatever else went wrong. Held needs a story that was told to its end, and a
// guarantee that it put to the test; one that the scenario names itself must be
// among those.
//
// A fault, a crash or a deviation that had no effect leaves the verdict unknown:
// what the scenario is about was not tested.
func (o *Outcome) Verdict() (invariant.Verdict, string) {
	verdict, reason := o.VerdictOfSchedule()
	if verdict == invariant.Held && len(o.Injected.Idle) > 0 {
		return invariant.Unknown, strings.Join(o.Injected.Idle, "; ")
	}
	return verdict, reason
}

// VerdictOfSchedule is the verdict on one schedule out of many. There a fault may
// come to nothing: that it can do something is seen in the default schedule, and
// others may lead past it.
func (o *Outcome) VerdictOfSchedule() (invariant.Verdict, string) {
	if v := o.Violation(); v != nil {
		return invariant.Violated, v.Invariant + ": " + v.Sentence
	}
	tested := false
	var doubt string
	for _, r := range o.Results {
		switch {
		case r.Verdict == invariant.Held:
			tested = true
		case doubt == "" && (r.Judged > r.Excused || len(o.Plan.Spec.Invariants) > 0):
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

// sayUnjudged names the first harm at which no guarantee has looked, and what would make one.
func (o *Outcome) sayUnjudged() string {
	h := &o.Unjudged[0]
	reason := fmt.Sprintf("%s at %s (event %d) by %s, and no guarantee has ruled on that", h.Event.Phrase(), history.Seconds(h.Event.At), h.Event.Seq, h.Event.Actor)
	if h.NoPart {
		reason += fmt.Sprintf(": %s would, but nobody knows which part %s plays; give it plays: PART in spec.controllers", h.Judge, h.Event.Actor)
	} else {
		reason += fmt.Sprintf(": %s would look at it", h.Judge)
	}
	if more := len(o.Unjudged) - 1; more > 0 {
		reason += fmt.Sprintf("; and %s more", phrase.Count(more, "harm"))
	}
	return reason
}

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
		if r.Verdict == invariant.Violated || r.Verdict == invariant.Unknown && (r.Judged > r.Excused || len(o.Plan.Spec.Invariants) > 0) {
			return false
		}
		tested = tested || r.Verdict == invariant.Held
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
		if r.Invariant == expected && r.Verdict == invariant.Violated {
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

// TooSlow says by what the machine, and nobody under test, may have spoilt the run: it names who got too little of it, and for how
// long. It is "" if nothing was noticed.
func (o *Outcome) TooSlow() string {
	var stalls []string
	for _, e := range o.History.Events() {
		switch e.Kind {
		case history.LabStalled:
			stalls = append(stalls, "at "+history.Seconds(e.At)+" "+cmp.Or(e.Note, e.Phrase()))
		case history.LabRecovered:
			if n := len(stalls); n > 0 {
				stalls[n-1] += ", for " + e.Value + " in all"
			}
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

// storyLength bounds how many events the report shows before a violation.
const storyLength = 24

// deviationsShown bounds how many deviations the report shows.
const deviationsShown = 10

// Text is the report for people. Replay is the command that plays the run again.
func (o *Outcome) Text(replay string) string {
	var b strings.Builder
	verdict, reason := o.Verdict()
	fmt.Fprintf(&b, "%s: %s\n", o.Plan.Metadata.Name, strings.ToUpper(string(verdict)))
	if reason != "" {
		fmt.Fprintf(&b, "  %s\n", reason)
	}
	if mismatch := o.Meets(); mismatch != "" && mismatch != reason {
		fmt.Fprintf(&b, "  %s\n", mismatch)
	}
	fmt.Fprintf(&b, "\nGuarantees\n")
	for _, r := range o.Results {
		fmt.Fprintf(&b, "  %-24s %-9s", r.Invariant, r.Verdict)
		switch {
		case r.Reason != "":
			fmt.Fprintf(&b, " %s\n", r.Reason)
		default:
			fmt.Fprintf(&b, " put to the test %s%s\n", phrase.Times(r.Judged), excused(r.Excused))
		}
		if r.Verdict == invariant.Violated {
			if inv, err := invariant.Lookup(r.Invariant); err == nil {
				fmt.Fprintf(&b, "  %-24s %-9s claim: %s (seed %s)\n", "", "", inv.Claim, inv.Seed)
			}
		}
	}
	if v := o.Violation(); v != nil {
		fmt.Fprintf(&b, "\nWhat led to it (the two events that broke the claim are marked)\n")
		o.story(&b, v.Second.Seq, v.First.Seq, v.Second.Seq)
	} else if verdict.Undecided() {
		fmt.Fprintf(&b, "\nThe last events of the story\n")
		o.story(&b, o.storyEnd())
		if open := InForce(o.Plan.Spec.Steps[:o.Steps]); len(open) > 0 {
			fmt.Fprintf(&b, "Still in force then: %s\n", strings.Join(open, ", "))
		}
	}
	fmt.Fprintf(&b, "\nRun\n  seed %d, %d of %d steps done, %d events in %s, digest %s\n",
		o.Plan.Seed, o.Steps, len(o.Plan.Spec.Steps), o.History.Len(), o.Duration().Round(time.Millisecond), o.History.Digest())
	if injected := o.Injected.String(); injected != "" {
		fmt.Fprintf(&b, "  had an effect: %s\n", injected)
	}
	for _, idle := range o.Injected.Idle {
		fmt.Fprintf(&b, "  without effect: %s\n", idle)
	}
	for i, d := range o.Plan.Deviations {
		if i == deviationsShown {
			fmt.Fprintf(&b, "  ... and %d more, in the plan\n", len(o.Plan.Deviations)-i)
			break
		}
		fmt.Fprintf(&b, "  deviation: %s\n", d)
	}
	if replay != "" {
		fmt.Fprintf(&b, "  replay: %s\n", replay)
	}
	return b.String()
}

// excused says how many of the rulings only a hindrance saved.
func excused(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of them excused", n)
}

// storyEnd is the last event before the faults were withdrawn, or of all.
func (o *Outcome) storyEnd() int {
	for _, e := range o.History.Events() {
		if e.Kind == history.Healed {
			return e.Seq - 1
		}
	}
	return o.History.Len()
}

// story prints the last events up to one, and those that are marked wherever they
// are. Effects are left out: they repeat what the API and BMC events say.
func (o *Outcome) story(b *strings.Builder, last int, marked ...int) {
	var events []history.Event
	for _, e := range o.History.Events()[:last] {
		switch e.Kind {
		case history.ControllerEffect, history.ControllerError, history.NodeLabels:
			if !slices.Contains(marked, e.Seq) {
				continue
			}
		}
		events = append(events, e)
	}
	skipped := 0
	for i, e := range events {
		mark := " "
		if slices.Contains(marked, e.Seq) {
			mark = ">"
		}
		if mark == " " && i < len(events)-storyLength {
			skipped++
			continue
		}
		if skipped > 0 {
			fmt.Fprintf(b, "      ... %s\n", phrase.Count(skipped, "more event"))
			skipped = 0
		}
		fmt.Fprintf(b, "  %s %4d %s\n", mark, e.Seq, e)
	}
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

// Elapsed are the times between the scenario's landmarks, for reports of real
// runs: from the first fault to fenced, and to recovered.
func (o *Outcome) Elapsed() []string {
	var start time.Duration
	var lines []string
	seen := map[history.Kind]bool{}
	for _, e := range o.History.Events() {
		switch e.Kind {
		case history.RunStarted:
			start = e.At
			lines = append(lines, fmt.Sprintf("%8.3fs topology up", e.At.Seconds()))
		case history.OpApplied:
			lines = append(lines, fmt.Sprintf("%8.3fs %s", (e.At-start).Seconds(), e.Value))
		case history.PowerOff, history.NodeDeleted, history.PowerOn, history.NodeCreated, history.WorkloadStarted, history.BootComplete:
			if start > 0 && !seen[e.Kind] {
				seen[e.Kind] = true
				lines = append(lines, fmt.Sprintf("%8.3fs %s", (e.At-start).Seconds(), e.Phrase()))
			}
		}
	}
	return lines
}

// result is report.json, as docs/reports.md describes it.
type result struct {
	Scenario   string            `json:"scenario"`
	Verdict    invariant.Verdict `json:"verdict"`
	Expected   string            `json:"expected"`
	AsExpected bool              `json:"asExpected"`
	Reason     string            `json:"reason,omitempty"`
	TooSlow    string            `json:"tooSlow,omitempty"`
	Backend    string            `json:"backend,omitempty"`
	Version    string            `json:"version,omitempty"`
	Seed       uint64            `json:"seed"`
	Plan       string            `json:"plan"`
	Replay     string            `json:"replay,omitempty"`
	Digest     string            `json:"digest"`
	Events     int               `json:"events"`
	Seconds    float64           `json:"seconds"`
	Played     float64           `json:"playedSeconds"`
	Steps      stepsResult       `json:"steps"`
	Injected   injectedResult    `json:"injected"`
	Deviations []deviationResult `json:"deviations,omitempty"`
	Invariants []invariantResult `json:"invariants"`
	Timings    timingsResult     `json:"timings"`
	Processors []Spent           `json:"processors,omitempty"`
}

type stepsResult struct {
	Done  int    `json:"done"`
	Of    int    `json:"of"`
	Stuck string `json:"stuck,omitempty"`
}

type injectedResult struct {
	Faults     Count    `json:"faults"`
	Crashes    Count    `json:"crashes"`
	Deviations Count    `json:"deviations"`
	Idle       []string `json:"idle,omitempty"`
}

type deviationResult struct {
	Step  string    `json:"step"`
	Delay float64   `json:"delaySeconds,omitempty"`
	Fault StepFault `json:"fault,omitempty"`
}

type invariantResult struct {
	ID      string            `json:"id"`
	Verdict invariant.Verdict `json:"verdict"`
	Reason  string            `json:"reason,omitempty"`
	Judged  int               `json:"judged"`
	Excused int               `json:"excused,omitempty"`
	First   int               `json:"firstEvent,omitempty"`
	Second  int               `json:"secondEvent,omitempty"`
	Margin  float64           `json:"marginSeconds,omitempty"`
	Limit   float64           `json:"limitSeconds,omitempty"`
}

type timingsResult struct {
	Boot    float64 `json:"bootSeconds"`
	SoftOff float64 `json:"softOffSeconds"`
	HardOff float64 `json:"hardOffSeconds"`
	Skew    float64 `json:"skewSeconds"`
	Quiet   float64 `json:"quietSeconds"`
}

// JSON is the report for programs.
func (o *Outcome) JSON(replay string) []byte {
	verdict, reason := o.Verdict()
	expected := string(invariant.Held)
	if v := o.Plan.Spec.Expect.Violated; v != "" {
		expected = "violated: " + v
	}
	t := o.Timings
	r := result{
		Scenario: o.Plan.Metadata.Name, Verdict: verdict, Expected: expected, AsExpected: o.Meets() == "", Reason: reason, TooSlow: o.TooSlow(),
		Backend: o.World, Version: o.Version, Seed: o.Plan.Seed, Plan: o.Plan.ID(), Replay: replay,
		Digest: o.History.Digest(), Events: o.History.Len(), Seconds: o.Duration().Seconds(), Played: o.Played().Seconds(),
		Steps:      stepsResult{o.Steps, len(o.Plan.Spec.Steps), o.Stuck},
		Injected:   injectedResult(o.Injected),
		Timings:    timingsResult{t.Boot.Seconds(), t.SoftOff.Seconds(), t.HardOff.Seconds(), t.Skew.Seconds(), t.Quiet.Seconds()},
		Processors: o.Spent,
	}
	for _, d := range o.Plan.Deviations {
		r.Deviations = append(r.Deviations, deviationResult{d.Step, time.Duration(d.Delay).Seconds(), d.Fault})
	}
	for _, res := range o.Results {
		line := invariantResult{ID: res.Invariant, Verdict: res.Verdict, Reason: res.Reason, Judged: res.Judged, Excused: res.Excused}
		if v := res.Violation; v != nil {
			line.First, line.Second, line.Margin = v.First.Seq, v.Second.Seq, v.Margin.Seconds()
		}
		if c := res.Closest; c != nil {
			line.First, line.Second, line.Margin, line.Limit = c.First.Seq, c.Second.Seq, c.Margin.Seconds(), c.Limit.Seconds()
		}
		r.Invariants = append(r.Invariants, line)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("a report is made of plain data: %v", err)) // unreachable: every field marshals
	}
	return append(data, '\n')
}

// Save writes everything that is known of the run into a directory: the plan,
// the history, the report for people and for programs, the backend's evidence, and a
// page that shows it all.
func (o *Outcome) Save(dir, replay string) error {
	if near := o.Nearest; near != nil {
		if err := near.Save(filepath.Join(dir, page.Held), ""); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save the report: %w", err)
	}
	var h strings.Builder
	if _, err := o.History.WriteTo(&h); err != nil {
		return fmt.Errorf("save the history: %w", err)
	}
	plan := *o.Plan
	plan.Digest, plan.Version = o.History.Digest(), o.Version
	text := o.Text(replay)
	if o.Version != "" {
		text += fmt.Sprintf("  backend %s, fencelab %s\n", o.World, o.Version)
	}
	files := []Artifact{
		{"plan.txt", plan.Text()}, {"history.jsonl", []byte(h.String())},
		{"report.txt", []byte(text)}, {"report.json", o.JSON(replay)},
	}
	for _, f := range append(files, o.Artifacts...) {
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f.Name)), f.Data, 0o644); err != nil {
			return fmt.Errorf("save the report: %w", err)
		}
	}
	return page.Write(os.DirFS(dir), filepath.Join(dir, page.Name))
}
