package play

import (
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// TestAssertions judges short histories: each event is its letter, at the second that is its place.
// The story begins at 1 and comes to its end.
func TestAssertions(t *testing.T) {
	kinds := map[rune]history.Kind{'a': history.NodeReady, 'b': history.NodeNotReady, 'c': history.PowerOff, '.': history.PowerReported, '~': history.Deviated}
	on := func(letter rune) scenarios.Trigger { return scenarios.Trigger{Event: string(kinds[letter])} }
	second := func(letter rune) scenarios.Trigger {
		return scenarios.Trigger{Event: string(kinds[letter]), Occurrence: 2}
	}
	seconds := func(n int) scenarios.Duration { return scenarios.Duration(time.Duration(n) * time.Second) }
	for _, tc := range []struct {
		name   string
		claim  scenarios.Assertion
		events string
		skew   time.Duration
		slack  time.Duration
		cut    bool
		want   string // the verdict, and a part of the reason
	}{
		{name: "happens", claim: scenarios.Assertion{Happens: on('a')}, events: "a", want: "held"},
		{name: "happened before the story", claim: scenarios.Assertion{Happens: on('a')}, events: "b", want: "violated node-ready has not come"},
		{name: "half a story", claim: scenarios.Assertion{Happens: on('a')}, events: "b", cut: true, want: "unknown node-ready has not come"},
		{name: "twice", claim: scenarios.Assertion{Happens: second('a')}, events: "a.a", want: "held"},
		{name: "once of twice", claim: scenarios.Assertion{Happens: second('a')}, events: "a..", want: "violated"},
		{name: "after", claim: scenarios.Assertion{Happens: on('a'), After: on('b')}, events: "b.a", want: "held"},
		{name: "only before that", claim: scenarios.Assertion{Happens: on('a'), After: on('b')}, events: "a.b.", want: "violated node-ready has not come; it should come after node-not-ready"},
		{name: "that never came", claim: scenarios.Assertion{Happens: on('a'), After: on('b')}, events: "a", want: "unknown never put to the test: node-not-ready never came"},
		{name: "before", claim: scenarios.Assertion{Happens: on('a'), Before: on('b')}, events: "a.b", want: "held"},
		{name: "before what never came", claim: scenarios.Assertion{Happens: on('a'), Before: on('b')}, events: "a", want: "held"},
		{name: "too late", claim: scenarios.Assertion{Happens: on('a'), Before: on('b')}, events: ".ba", want: "violated node-ready had not come by 3.000s; it should come before node-not-ready"},
		{name: "too close", claim: scenarios.Assertion{Happens: on('a'), Before: on('b')}, events: ".ba", skew: 2 * time.Second, want: "unknown too close to call"},
		{name: "not that close", claim: scenarios.Assertion{Happens: on('a'), Before: on('b')}, events: ".b..a", skew: 2 * time.Second, want: "violated"},
		{name: "within", claim: scenarios.Assertion{Happens: on('a'), After: on('b'), Within: seconds(3)}, events: "b..a", want: "held"},
		{name: "not within", claim: scenarios.Assertion{Happens: on('a'), After: on('b'), Within: seconds(2)}, events: "b..a", want: "violated node-ready had not come by 5.000s; it should come within 2s of node-not-ready"},
		{name: "not within, but delayed", claim: scenarios.Assertion{Happens: on('a'), After: on('b'), Within: seconds(2)}, events: "b~..a", want: "held"},
		{name: "delayed, and never came", claim: scenarios.Assertion{Happens: on('a'), After: on('b'), Within: seconds(2)}, events: "~b..", want: "violated node-ready has not come; it should come after"},
		{name: "delayed when it was too late", claim: scenarios.Assertion{Happens: on('a'), After: on('b'), Within: seconds(2)}, events: "b...~a", want: "violated node-ready had not come by"},
		{name: "never", claim: scenarios.Assertion{Never: on('c')}, events: "abab", want: "held"},
		{name: "never, and it came", claim: scenarios.Assertion{Never: on('c')}, events: "abc", want: "violated power-off at 4.000s, which should never come"},
		{name: "never after", claim: scenarios.Assertion{Never: on('c'), After: on('b')}, events: "c.b", want: "held"},
		{name: "never before", claim: scenarios.Assertion{Never: on('c'), Before: on('b')}, events: "a.bc", want: "held"},
		{name: "never before, and it came", claim: scenarios.Assertion{Never: on('c'), Before: on('b')}, events: "acb", want: "violated"},
		{name: "never within", claim: scenarios.Assertion{Never: on('c'), After: on('b'), Within: seconds(2)}, events: "b...c", want: "held"},
		{name: "never within, but delayed", claim: scenarios.Assertion{Never: on('c'), After: on('b'), Within: seconds(2)}, events: "~b.c", want: "held"},
		{name: "never after, too close", claim: scenarios.Assertion{Never: on('c'), After: on('b')}, events: ".bc", skew: 2 * time.Second, want: "unknown too close to call"},
		{name: "only if", claim: scenarios.Assertion{Only: on('c'), If: on('b')}, events: "bc", want: "held"},
		{name: "only if, and it never was", claim: scenarios.Assertion{Only: on('c'), If: on('b')}, events: "acb", want: "violated power-off at 3.000s, which should come only if node-not-ready: it never was"},
		{name: "only if for long enough", claim: scenarios.Assertion{Only: on('c'), If: on('b'), For: seconds(4)}, events: "b...c", want: "held"},
		{name: "only if, to the second", claim: scenarios.Assertion{Only: on('c'), If: on('b'), For: seconds(4)}, events: "b..c", want: "held"},
		{name: "only if, too soon", claim: scenarios.Assertion{Only: on('c'), If: on('b'), For: seconds(4)}, events: "b.c", want: "violated power-off at 4.000s, which should come only if node-not-ready was 4s before: the latest was 2s before"},
		{name: "only if, and the latest counts", claim: scenarios.Assertion{Only: on('c'), If: on('b'), For: seconds(4)}, events: "b...b.c", want: "violated"},
		{name: "only if, and that had ended", claim: scenarios.Assertion{Only: on('c'), If: on('b'), Until: on('a')}, events: "bac", want: "violated power-off at 4.000s, which should come only if node-not-ready: node-ready at 3.000s had ended it"},
		{name: "only if, and it began again", claim: scenarios.Assertion{Only: on('c'), If: on('b'), Until: on('a')}, events: "babc", want: "held"},
		{name: "only if, decided before it ended", claim: scenarios.Assertion{Only: on('c'), If: on('b'), Until: on('a')}, events: "bac", slack: 2 * time.Second, want: "held"},
		{name: "only if, too close", claim: scenarios.Assertion{Only: on('c'), If: on('b'), Until: on('a')}, events: "bac", skew: 2 * time.Second, want: "unknown too close to call"},
		{name: "never, in half a story", claim: scenarios.Assertion{Never: on('c')}, events: "a", cut: true, want: "unknown the history was cut short"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := &scenarios.Plan{}
			plan.Spec.Expect.Events = []scenarios.Assertion{tc.claim}
			all := []history.Event{{Kind: history.NodeReady}, {Kind: history.RunStarted, At: time.Second}}
			for i, letter := range tc.events {
				all = append(all, history.Event{Kind: kinds[letter], At: time.Duration(i+2) * time.Second})
			}
			params := invariant.Params{Timings: invariant.Timings{Slack: tc.slack}}
			params.Hindrances = invariant.NewHindrances(params)
			checker := asTold(plan, tc.skew, func() bool { return !tc.cut }).New(params)
			found := 0
			for _, e := range all {
				if params.Hindrances.Observe(&e); checker.Observe(&e) != nil {
					found++
				}
			}
			got := checker.Finish(!tc.cut)
			verdict, reason, _ := strings.Cut(tc.want, " ")
			if string(got.Verdict) != verdict || !strings.Contains(got.Reason, reason) {
				t.Errorf("%s: %s, want %s", got.Verdict, got.Reason, tc.want)
			}
			if got.Verdict == invariant.Held && (got.Judged != 1 || got.Reason != "") {
				t.Errorf("put to the test %d times: %s", got.Judged, got.Reason)
			}
			if found > 1 {
				t.Errorf("found %d times", found)
			}
		})
	}
}
