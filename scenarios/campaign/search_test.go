package campaign_test

import (
	"fmt"
	"testing"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// queue plays schedules at once: the number of one decides what comes of it.
type queue struct {
	waiting []campaign.Schedule
	result  func(int) campaign.Result
}

func (q *queue) Give(s campaign.Schedule) { q.waiting = append(q.waiting, s) }

func (q *queue) Take() (campaign.Result, bool) {
	next := q.waiting[0]
	q.waiting = q.waiting[1:]
	r := q.result(next.Number)
	r.Number = next.Number
	return r, true
}

// TestUntil: a search tries all that it has, or ends with the schedule that it is to end with.
func TestUntil(t *testing.T) {
	var singles []scenarios.Deviation
	for i := range 200 {
		singles = append(singles, scenarios.Deviation{Step: fmt.Sprintf("a/api/%d", i+1)})
	}
	held := func(int) campaign.Result { return campaign.Result{Verdict: invariant.Held} }
	s := campaign.Over(new(scenarios.Plan), singles, 150, "singles")
	if tally := s.Run(&queue{result: held}, nil); tally.Tried != 150 || tally.Held != 150 || !s.Partial() {
		t.Errorf("of 150 of 200 it tried %d, and %d held", tally.Tried, tally.Held)
	}
	var ended campaign.Schedule
	s.Until = func(s campaign.Schedule, r campaign.Result) bool {
		ended = s
		return r.Verdict == invariant.Violated
	}
	tally := s.Run(&queue{result: func(n int) campaign.Result {
		if n == 70 {
			return campaign.Result{Verdict: invariant.Violated, Invariant: "at-most-one"}
		}
		return held(n)
	}}, nil)
	if tally.Tried != 71 || tally.Violated != 1 || ended.Number != 70 || ended.Deviations[0] != singles[70] {
		t.Errorf("it tried %d, %d were violated, and it ended with %+v", tally.Tried, tally.Violated, ended)
	}
}
