package campaign_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/play"
)

func broken(id string, first, second history.Event) *play.Outcome {
	v := &invariant.Violation{Invariant: id, First: first, Second: second, Sentence: "something"}
	return &play.Outcome{
		Plan: new(scenarios.Plan), History: new(history.History), Broken: v,
		// Another guarantee that is broken as well doesn't make it another failure.
		Results: []invariant.Result{{Invariant: id, Verdict: invariant.Violated, Violation: v}, {Invariant: "other", Verdict: invariant.Violated}},
	}
}

func stuck(reason string) *play.Outcome {
	return &play.Outcome{Plan: new(scenarios.Plan), History: new(history.History), Stuck: reason}
}

// TestTally groups schedules by what went wrong in them, and comes to the
// same in whatever order they come.
func TestTally(t *testing.T) {
	deleted := func(host, actor string) history.Event {
		return history.Event{Kind: history.NodeDeleted, Host: host, Actor: actor}
	}
	on := history.Event{Kind: history.BootStarted, Host: "worker-1"}
	healed := history.Event{Kind: history.Healed}
	outcomes := []*play.Outcome{
		stuck(`step 7 (a) waited 2m6.002s for node-deleted host=worker-1, which came at 15.160s (event 53), before step 6 was done`),
		broken("fenced-before-release", on, deleted("worker-1", "remediation")),
		broken("node-restored", healed, deleted("worker-1", "remediation")),
		stuck(`step 7 (a) waited 2m0s for node-deleted host=worker-1, which came at 1.5s (event 9), before step 6 was done`),
		stuck(`step 7 (a) waited 2m0s for node-deleted host=worker-2, which came at 1.5s (event 9), before step 6 was done`),
		broken("fenced-before-release", on, deleted("worker-1", "user")),
		broken("fenced-before-release", on, deleted("worker-1", "remediation")),
		broken("at-most-one", on, deleted("worker-1", "remediation")),
	}
	want := []struct{ first, count int }{{1, 2}, {5, 1}, {7, 1}, {2, 1}, {0, 2}, {4, 1}}
	var results []campaign.Tally
	for first := range outcomes {
		var sum campaign.Tally
		for i := range outcomes {
			n := (first + i*3) % len(outcomes) // in any order
			result := campaign.ResultOf(outcomes[n])
			result.Number = n
			sum.Add(campaign.Schedule{Number: n, Deviations: []scenarios.Deviation{{Step: "s", Delay: scenarios.Duration(n)}}}, result)
		}
		sum.Failed = sum.Failures()
		results = append(results, sum)
	}
	for i, sum := range results {
		if diff := cmp.Diff(results[0], sum); diff != "" {
			t.Errorf("beginning with result %d (-with the first +with it):\n%s", i, diff)
		}
	}
	got := results[0]
	if got.Violated != 5 || got.Unknown != 3 || len(got.Failed) != len(want) {
		t.Fatalf("%d violated, %d unknown, %d kinds, want 5, 3 and %d: %+v", got.Violated, got.Unknown, len(got.Failed), len(want), got.Failed)
	}
	for i, f := range got.Failed {
		if n := f.Schedule.Number; n != want[i].first || f.Count != want[i].count || f.Schedule.Deviations[0].Delay != scenarios.Duration(n) {
			t.Errorf("kind %d is %+v, want schedule %d and a count of %d", i, f, want[i].first, want[i].count)
		}
	}
	if signature := got.Failed[3].Signature; signature != "node-restored: healed, node-deleted worker-1 by remediation" {
		t.Errorf("what never came has the signature %q", signature)
	}
}

// TestNear: the closest call of a guarantee is that of the schedule that held and came nearest, the
// first of several, in whatever order parts of a search are merged; and of schedules that failed
// alike the first few are kept.
func TestNear(t *testing.T) {
	outcome := func(margin time.Duration, verdict invariant.Verdict) *play.Outcome {
		o := &play.Outcome{Plan: &scenarios.Plan{Spec: scenarios.Spec{Steps: make([]scenarios.Step, 1)}}, Steps: 1}
		closest := &invariant.Closest{First: history.Event{Kind: history.NodeDeleted, Host: "a"}, Second: history.Event{Kind: history.NodeDeleted, Host: "b", At: margin}, Margin: margin}
		for _, id := range []string{"at-most-one", play.AsTold} {
			o.Results = append(o.Results, invariant.Result{Invariant: id, Verdict: invariant.Held, Judged: 1, Closest: closest})
		}
		if verdict != invariant.Held {
			o.Results = append(o.Results, invariant.Result{Invariant: "node-restored", Verdict: verdict, Judged: 1, Violation: &invariant.Violation{Invariant: "node-restored"}})
		}
		return o
	}
	var parts []campaign.Tally
	for n, o := range []*play.Outcome{
		outcome(9*time.Millisecond, invariant.Held), outcome(time.Millisecond, invariant.Violated), outcome(3*time.Millisecond, invariant.Held), outcome(3*time.Millisecond, invariant.Held),
	} {
		var part campaign.Tally
		part.Near(campaign.Schedule{Number: n}, o)
		for i := range 5 {
			s := campaign.Schedule{Number: 5*n + i, Draw: true}
			part.Add(s, campaign.Result{Verdict: invariant.Violated, Invariant: "g", Signature: "g", Drawn: []scenarios.Deviation{{Step: "s"}}})
		}
		parts = append(parts, part)
	}
	if len(parts[1].Closest) > 0 {
		t.Errorf("a schedule that failed counts: %+v", parts[1].Closest)
	}
	for first := range parts {
		var sum campaign.Tally
		for i := range parts {
			sum.Merge(parts[(first+3*i)%len(parts)])
		}
		if c := sum.Closest["at-most-one"]; len(sum.Closest) != 1 || c.Margin != 3*time.Millisecond || c.Schedule.Number != 2 || c.First == "" || c.Second == "" {
			t.Errorf("beginning with part %d the closest is %+v", first, sum.Closest)
		}
		f := sum.Failed[0]
		if f.Count != 20 || f.Schedule.Number != 0 || len(f.Schedule.Deviations) != 1 || len(f.Given) != 8 || f.Given[7].Number != 7 || !f.Given[7].Draw {
			t.Errorf("beginning with part %d: %+v", first, f)
		}
	}
}

// TestPoints: what a schedule reached comes over the wire as it was.
func TestPoints(t *testing.T) {
	points := campaign.Points{0, 1, 1 << 31, 1<<32 - 1}
	text, err := points.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	var back campaign.Points
	if err := back.UnmarshalText(text); err != nil || !slices.Equal(back, points) {
		t.Errorf("%v became %v (%v)", points, back, err)
	}
	if err := back.UnmarshalText([]byte("AAA=")); err == nil {
		t.Error("half a point was accepted")
	}
}
