package play_test

import (
	"testing"

	"github.com/fencelab/fencelab/scenarios/history"
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
