package search

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/simtest"
	"github.com/fencelab/fencelab/sim/steps"
)

// treeOf returns the tree around the story that each schedule has.
func treeOf(depth int, told func([]scenarios.Deviation) []told) *tree {
	from := &space{seed: 1, steps: told(nil), depth: depth, bound: apart}
	from.runOf = func(d []scenarios.Deviation) ([]toldStep, error) { return told(d), nil }
	a := arrange(from.steps, apart)
	var all []scenarios.Deviation
	for i := range from.steps {
		all = append(all, a.of(i)...)
	}
	return newTree(from, a, all)
}

type toldStep = told

// TestTree: two deviations are combined if their steps depend on each other, if one step leads to
// the other, and if the default schedule has no such deviation; each set once, however deep.
func TestTree(t *testing.T) {
	deliver := func(actor string, kind, place string) steps.Step {
		return steps.Step{Actor: actor, Class: steps.ClassDeliver, N: 1, Verb: "deliver", Object: steps.Object{Kind: kind}, Place: steps.PlaceProcess + place}
	}
	// A relist is the only fault of a delivery, and there is nothing that they could come after.
	tell := func(schedule []scenarios.Deviation) (story []told) {
		relisted := ""
		for _, d := range schedule {
			relisted += d.Step
		}
		all := []steps.Step{deliver("a.Node", "Node", "a"), deliver("b.Node", "Node", "b"), deliver("a.Machine", "Machine", "a")}
		if strings.Contains(relisted, "a.Node") { // it leads b to listen for something new, and c at once
			all = append(all, deliver("b.Pod", "Pod", "b"), deliver("c.Node", "Node", "c"))
		}
		for i, step := range all {
			cause := -1
			if step.Actor == "c.Node" {
				cause = 0
			}
			story = append(story, told{Step: step, at: time.Duration(i) * time.Hour, taken: i, since: i, cause: cause})
		}
		return story
	}
	for depth, want := range map[int][]string{
		2: {"a.Node a.Machine", "a.Node b.Pod", "a.Node c.Node"},
		// b.Node is apart from a.Node, so that nothing is behind both.
		3: {"a.Node a.Machine", "a.Node a.Machine b.Pod", "a.Node b.Pod", "a.Node c.Node", "a.Node a.Machine c.Node", "a.Node b.Pod c.Node"},
	} {
		tree, got := treeOf(depth, tell), []string{}
		mean, deviation := tree.forecast(descents)
		for s, ok := tree.Next(0); ok; s, ok = tree.Next(0) {
			var names []string
			for _, d := range s.Deviations {
				names = append(names, strings.TrimSuffix(d.Step, "/deliver/1"))
			}
			got = append(got, strings.Join(names, " "))
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("depth %d: %s", depth, diff)
		}
		if depth == 2 && (int(mean) != len(got) || deviation != 0) {
			t.Errorf("foretold were %v ± %v, and there are %d", mean, deviation, len(got))
		}
	}
}

// TestAsleep: behind siblings that have led to the same class of runs, a combination is there once;
// behind such that have not, and where a sibling may still have its effect, it stays.
func TestAsleep(t *testing.T) {
	boot := steps.Step{Actor: "h", Class: steps.ClassBoot, N: 1, Verb: "boot", Object: steps.Object{Kind: "Host", Name: "h"}, Place: steps.PlaceHost + "h"}
	power := steps.Step{Actor: "h", Class: steps.ClassPower, N: 1, Verb: "off", Object: steps.Object{Kind: "Host", Name: "h"}, Place: steps.PlaceHost + "h"}
	for _, tc := range []struct {
		what        string
		since, want int
	}{
		// The boot has six lengths, and comes once after the power change, which has six, too, and
		// in that order comes once after the boot. The longest does what the order does.
		{"behind the effect, with the order", 1, 7},
		{"before the effect, with the order and each length", 0, 42},
	} {
		tree := treeOf(2, func(schedule []scenarios.Deviation) []told {
			first, second := told{Step: boot, cause: -1}, told{Step: power, taken: 1, since: tc.since, at: time.Minute, cause: -1}
			if len(schedule) > 0 && schedule[0].Step == boot.Name() && time.Duration(schedule[0].Delay) > time.Minute && tc.since == 1 {
				first.taken, second.taken, second.since = 1, 0, 2
			}
			return []told{first, second}
		})
		tree.usual = map[trait]bool{}
		n := 0
		for s, ok := tree.Next(0); ok; s, ok = tree.Next(0) {
			if n++; tc.since == 1 && s.Deviations[0].After == "" {
				t.Errorf("%s: %v", tc.what, s.Deviations)
			}
		}
		if n != tc.want {
			t.Errorf("%s: %d combinations, want %d", tc.what, n, tc.want)
		}
	}
}

// TestDepthTwo finishes searches with two deviations: as many schedules as foretold, each set of
// deviations once, and nothing that breaks a guarantee of right controllers.
func TestDepthTwo(t *testing.T) {
	simulator, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		story  string
		depth  int
		within time.Duration
		least  int
	}{
		{"machine-remediation/user-deletes-a-node", 2, 0, 300},
		{"machine-remediation/user-deletes-a-node", 3, 100 * time.Millisecond, 300},
		{"health-check/cordoned-node", 2, 100 * time.Millisecond, 300},
	} {
		plan := simtest.Plan(t, "../../scenarios/catalog/"+tc.story+".yaml")
		s, _, err := New(t.Context(), simulator, new(scenarios.Scenario), plan, Options{Strategy: "portfolio", Seed: 1, Depth: tc.depth, Within: tc.within})
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[string]bool)
		alone := NewAlone(simulator, s.Story)
		s.Until = func(s campaign.Schedule, _ campaign.Result) bool {
			names := fmt.Sprint(s.Deviations)
			if seen[names] {
				t.Errorf("%s was played twice", names)
			}
			seen[names] = true
			return false
		}
		tally := s.Run(alone, nil)
		shares := s.Strategy.(campaign.Covering).Shares()
		of := shares[len(shares)-1]
		if tally.Tried != s.Total || tally.Held != tally.Tried || of.Played < tc.least {
			t.Errorf("%s: %d of %d were played, and %d held, with %d combinations: %v", tc.story, tally.Tried, s.Total, tally.Held, of.Played, tally.Failed)
		}
		if off := of.About - of.Played; off < -3*of.Deviation-1 || off > 3*of.Deviation+1 {
			t.Errorf("%s: %d ± %d combinations were foretold, and %d were played", tc.story, of.About, of.Deviation, of.Played)
		}
		t.Logf("%s: %d, depth %d: %+v", tc.story, tally.Tried, tc.depth, of)
		// Its branches have the same schedules, in whatever order they are asked for, and twice.
		cut, _, err := New(t.Context(), simulator, new(scenarios.Scenario), plan, Options{Strategy: "orders", Seed: 1, Depth: tc.depth, Within: tc.within})
		if err != nil {
			t.Fatal(err)
		}
		again := make(map[string]bool)
		for i := range cut.Branching.Branches() {
			for s := range cut.Branching.Branch(cut.Branching.Branches() - 1 - i) {
				names := fmt.Sprint(s.Deviations)
				if again[names] {
					t.Errorf("%s is there twice", names)
				}
				again[names] = true
			}
		}
		if diff := cmp.Diff(seen, again); diff != "" {
			t.Errorf("%s: the branches have other schedules:\n%s", tc.story, diff)
		}
		if n, off := 0, 2*(tc.depth-1); len(again) > 0 { // ten descents are further off the deeper they go
			for range cut.Branching.Branch(0) {
				n++
			}
			if n == 0 || cut.Branching.Forecast() < len(again)/off || cut.Branching.Forecast() > off*len(again) {
				t.Errorf("%s: %d schedules are foretold, and %d in the first branch when it is asked for again", tc.story, cut.Branching.Forecast(), n)
			}
		}
		for _, claim := range s.Strategy.(campaign.Covering).Claims() {
			if !claim.Whole {
				t.Errorf("%s: it is not complete: %+v", tc.story, claim)
			}
		}
	}
}
