package report

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/play"
)

// result is report.json, as docs/reports.md describes it.
type result struct {
	Scenario   string            `json:"scenario"`
	Verdict    invariant.Verdict `json:"verdict"`
	Expected   string            `json:"expected"`
	AsExpected bool              `json:"asExpected"`
	Reason     string            `json:"reason,omitempty"`
	Divides    string            `json:"divides,omitempty"`
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
	Causes     []string          `json:"causes,omitempty"`
	Waits      []string          `json:"waits,omitempty"`
	Story      []landmark        `json:"story,omitempty"`
	Notes      []string          `json:"notes,omitempty"`
	Processors []play.Spent      `json:"processors,omitempty"`
}

type stepsResult struct {
	Done  int    `json:"done"`
	Of    int    `json:"of"`
	Stuck string `json:"stuck,omitempty"`
}

type injectedResult struct {
	Faults     play.Count `json:"faults"`
	Crashes    play.Count `json:"crashes"`
	Deviations play.Count `json:"deviations"`
	Idle       []string   `json:"idle,omitempty"`
}

type deviationResult struct {
	Step  string              `json:"step"`
	Delay float64             `json:"delaySeconds,omitempty"`
	After string              `json:"after,omitempty"`
	Fault scenarios.StepFault `json:"fault,omitempty"`
	Told  string              `json:"told,omitempty"`
}

type invariantResult struct {
	ID      string            `json:"id"`
	Verdict invariant.Verdict `json:"verdict"`
	Reason  string            `json:"reason,omitempty"`
	Judged  int               `json:"judged"`
	Excused int               `json:"excused,omitempty"`
	Because []int             `json:"excusedByEvents,omitempty"`
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

// landmarksDrawn is how many events the page shows of how it came to a failure.
const landmarksDrawn = 14

// JSON is the report for programs.
func JSON(o *play.Outcome, replay string) []byte {
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
		Notes:      o.Notes,
		Processors: o.Spent,
	}
	if s := o.Plan.Shrunk; s != nil {
		r.Divides = s.Divides
	}
	about := subjectOf(o)
	r.Causes, r.Waits, r.Story = about.causes(o), about.waits(o), about.landmarks(o, landmarksDrawn)
	for _, d := range deviated(o) {
		told := d.words
		if d.writes != "" {
			told += ": " + d.writes
		}
		r.Deviations = append(r.Deviations, deviationResult{d.Step, time.Duration(d.Delay).Seconds(), d.After, d.Fault, told})
	}
	for _, res := range o.Results {
		line := invariantResult{ID: res.Invariant, Verdict: res.Verdict, Reason: res.Reason, Judged: res.Judged, Excused: res.Excused}
		if v := res.Violation; v != nil {
			line.First, line.Second, line.Margin = v.First.Seq, v.Second.Seq, v.Margin.Seconds()
		}
		if c := res.Closest; c != nil {
			line.First, line.Second, line.Margin, line.Limit = c.First.Seq, c.Second.Seq, c.Margin.Seconds(), c.Limit.Seconds()
		}
		for _, e := range o.Excuses() {
			if e.Invariant == res.Invariant {
				line.Because = e.Events()
			}
		}
		r.Invariants = append(r.Invariants, line)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("a report is made of plain data: %v", err)) // unreachable: every field marshals
	}
	return append(data, '\n')
}
