package play_test

import (
	"slices"
	"testing"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/play"
)

// TestTooSlow says for which histories the machine may be to blame.
func TestTooSlow(t *testing.T) {
	stalled := history.Event{Kind: history.LabStalled, At: 2e9, Note: "its API server took longer than 2s"}
	silent := history.Event{Kind: history.EvidenceLost, At: 3e9, Host: "worker-1", Note: "silent for more than 3s"}
	recovered := history.Event{Kind: history.LabRecovered, At: 9e9, Value: "7s"}
	for name, c := range map[string]struct {
		events []history.Event
		want   string
	}{
		"nothing":              {[]history.Event{{Kind: history.PowerOff, Host: "worker-1"}}, ""},
		"a stall":              {[]history.Event{stalled, recovered}, "at 2.000s its API server took longer than 2s, for 7s in all"},
		"a silent host":        {[]history.Event{silent}, "at 3.000s the observer of worker-1 fell silent"},
		"a host in a stall":    {[]history.Event{stalled, silent, recovered}, "at 2.000s its API server took longer than 2s, for 7s in all; at 3.000s the observer of worker-1 fell silent"},
		"the API missed a few": {[]history.Event{{Kind: history.EvidenceLost}}, ""},
	} {
		o := &play.Outcome{History: new(history.History)}
		for _, e := range c.events {
			o.History.Append(e)
		}
		if got := o.TooSlow(); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}

// TestMeetsInTheStory: a violation that is expected doesn't count if it came before the story had
// begun and the machine was too slow.
func TestMeetsInTheStory(t *testing.T) {
	const up, stalled, started = history.RunStarted, history.LabStalled, history.WorkloadStarted
	for _, c := range []struct {
		events []history.Kind
		meets  bool
	}{
		{[]history.Kind{up, started}, true},
		{[]history.Kind{started, up}, true},
		{[]history.Kind{up, stalled, started}, true},
		{[]history.Kind{stalled, started, up}, false},
		{[]history.Kind{stalled, started}, false},
	} {
		o := &play.Outcome{History: new(history.History), Plan: new(scenarios.Plan)}
		o.Plan.Spec.Expect.Violated = "at-most-one"
		for _, kind := range c.events {
			o.History.Append(history.Event{Kind: kind})
		}
		var v invariant.Violation
		v.Second = o.History.Events()[slices.Index(c.events, started)]
		o.Results = []invariant.Result{{Invariant: "at-most-one", Verdict: invariant.Violated, Violation: &v}}
		if got := o.Meets(); got == "" != c.meets {
			t.Errorf("%v: %q", c.events, got)
		}
	}
}
