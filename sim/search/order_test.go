package search_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/sim/search"
	"github.com/fencelab/fencelab/sim/steps"
)

// chosen returns the first n deviations of a search.
func chosen(t *testing.T, s *campaign.Search, n int) []scenarios.Deviation {
	t.Helper()
	var deviations []scenarios.Deviation
	for i := range n {
		schedule, ok := s.Next(i)
		if !ok || len(schedule.Deviations) != 1 {
			t.Fatalf("schedule %d of %d has the deviations %v", i, n, schedule.Deviations)
		}
		deviations = append(deviations, schedule.Deviations[0])
	}
	return deviations
}

// TestSweepOrder: a sweep that tries everything leaves nothing out and tries nothing twice,
// and one that tries less begins in the same way.
func TestSweepOrder(t *testing.T) {
	simulator, plan := simulator(t), load(t, "machine-remediation/cut-off-host.yaml")
	steps, _, err := search.Benign(context.Background(), simulator, plan)
	if err != nil {
		t.Fatal(err)
	}
	whole := newSearch(t, simulator, plan, search.Options{Strategy: "sweep"})
	all := chosen(t, whole, whole.Total)
	if _, ok := whole.Next(whole.Total); ok {
		t.Error("there are more schedules than in all")
	}
	sorted := func(some []scenarios.Deviation) []string {
		var words []string
		for _, d := range some {
			words = append(words, d.String())
		}
		slices.Sort(words)
		return words
	}
	if !slices.Equal(sorted(all), sorted(search.Singles(steps))) {
		t.Errorf("the %d deviations of the sweep are not those of its steps", len(all))
	}
	part := newSearch(t, simulator, plan, search.Options{Strategy: "sweep", Schedules: 100})
	if part.Total != 100 || part.All != whole.Total || !part.Partial() || whole.Partial() {
		t.Errorf("a sweep of 100 schedules has %d of %d", part.Total, part.All)
	}
	if first := chosen(t, part, part.Total); !slices.Equal(first, all[:part.Total]) {
		t.Errorf("a sweep of 100 schedules tries %v, want the beginning of the whole one, %v", first, all[:part.Total])
	}
	if more := newSearch(t, simulator, plan, search.Options{Strategy: "sweep", Schedules: 1e6}); more.Total != whole.Total || more.Partial() {
		t.Errorf("a sweep of a million schedules has %d of %d", more.Total, more.All)
	}
}

// TestSweepOfALongStory: of a story that waits for ten minutes, a few percent of the
// deviations have all that is done and heard in it, however late it comes.
func TestSweepOfALongStory(t *testing.T) {
	simulator, plan := simulator(t), load(t, "deletion-hooks/bmc-does-not-answer.yaml")
	story, _, err := search.Benign(context.Background(), simulator, plan)
	if err != nil {
		t.Fatal(err)
	}
	s := newSearch(t, simulator, plan, search.Options{Strategy: "sweep", Schedules: 2000})
	if s.All < 20*s.Total {
		t.Fatalf("%d deviations in all: the story is no longer long", s.All)
	}
	tried := map[string]bool{}
	for _, d := range chosen(t, s, s.Total) {
		tried[d.Step] = true
	}
	// What the deletion and the reboot controller write is done at both ends of the wait;
	// a few of those writes are much like others.
	writes, missed := 0, []string{}
	var quarters [4]int
	for i, step := range story {
		if step.Effect && step.Class == steps.ClassAPI && (step.Actor == "deletion" || step.Actor == "reboot") {
			writes++
			if !tried[step.Name()] {
				missed = append(missed, step.Name())
			}
		}
		if tried[step.Name()] {
			quarters[i*len(quarters)/len(story)]++
		}
	}
	if writes < 20 || len(missed) > writes/10 {
		t.Errorf("of %d writes %d were left out: %s", writes, len(missed), strings.Join(missed, ", "))
	}
	if slices.Min(quarters[:]) == 0 {
		t.Errorf("of each quarter of the story %v steps deviate", quarters)
	}
}

// TestPartialSweep reports its omissions, and isn't taken for an interrupted one.
func TestPartialSweep(t *testing.T) {
	simulator, plan := simulator(t), load(t, "reboot-annotation/plain-power-cycle.yaml")
	s := newSearch(t, simulator, plan, search.Options{Strategy: "sweep", Schedules: 20})
	tally := run(t, simulator, s)
	if tally.Tried != 20 || tally.Verdict(s.Total) != invariant.Held {
		t.Errorf("%d schedules: %s", tally.Tried, tally.Verdict(s.Total))
	}
	for tried, want := range map[int]string{
		20: "20 of 1066 single deviations from 113 steps",
		7:  "7 of 1066 single deviations from 113 steps (interrupted, of 20)",
	} {
		if got := s.Describe(tried); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}
