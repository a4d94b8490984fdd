package play

import (
	"testing"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// TestWait has events come for a step that waits for one, for all of two or for any of them.
func TestWait(t *testing.T) {
	off, on := scenarios.Trigger{Event: "power-off"}, scenarios.Trigger{Event: "power-on", Occurrence: 2}
	for name, c := range map[string]struct {
		when   scenarios.Trigger
		events []history.Kind
		over   int // how many of the events it takes; 0: it never is
		lacks  string
	}{
		"one":                     {off, []history.Kind{history.PowerOn, history.PowerOff}, 2, ""},
		"one that never comes":    {off, []history.Kind{history.PowerOn}, 0, "power-off, which never came"},
		"all":                     {scenarios.Trigger{AllOf: []scenarios.Trigger{off, on}}, []history.Kind{history.PowerOn, history.PowerOff, history.PowerOn}, 3, ""},
		"all but one":             {scenarios.Trigger{AllOf: []scenarios.Trigger{off, on}}, []history.Kind{history.PowerOn, history.PowerOff}, 0, "power-on (occurrence 2), which came once"},
		"any, the first":          {scenarios.Trigger{AnyOf: []scenarios.Trigger{off, on}}, []history.Kind{history.PowerOff, history.PowerOn}, 1, ""},
		"any, the second":         {scenarios.Trigger{AnyOf: []scenarios.Trigger{off, on}}, []history.Kind{history.PowerOn, history.PowerOn}, 2, ""},
		"any, and neither is due": {scenarios.Trigger{AnyOf: []scenarios.Trigger{off, on}}, []history.Kind{history.PowerOn}, 0, "power-off, which never came; or for power-on (occurrence 2), which came once"},
	} {
		w, over := waitFor(c.when), 0
		for i, kind := range c.events {
			if w.see(history.Event{Kind: kind}) {
				over = i + 1
				break
			}
		}
		if over != c.over {
			t.Errorf("%s: over after %d events, want %d", name, over, c.over)
		}
		if got := w.missing(nil, 1); over == 0 && got != c.lacks {
			t.Errorf("%s: it waits for %q, want %q", name, got, c.lacks)
		}
	}
}
