package search_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim/search"
	"github.com/fencelab/fencelab/sim/simtest"
)

// TestSeeds: two searches whose seeds are next to each other have no schedule in
// common.
func TestSeeds(t *testing.T) {
	s, plan := simulator(t), load(t, "reboot-annotation/plain-power-cycle.yaml")
	tried := map[string]int{}
	for seed := range uint64(3) {
		random := newSearch(t, s, plan, search.Options{Strategy: "random", Seed: seed, Schedules: 40})
		for i := range random.Total {
			schedule, _ := random.Next(i)
			_, played, err := search.NewPlayer(s, random.Story).Play(schedule)
			if err != nil {
				t.Fatal(err)
			}
			if len(played.Deviations) > 2 { // fewer may well be the same by chance
				text := string(plan.With(played.Deviations).Text())
				if tried[text]++; tried[text] > 1 {
					t.Errorf("seed %d has a schedule that was tried before", seed)
				}
			}
		}
	}
	if len(tried) < 20 {
		t.Errorf("only %d schedules have more than two deviations", len(tried))
	}
}

// TestPairs plays pairs of single deviations, of different steps.
func TestPairs(t *testing.T) {
	s, plan := simulator(t), load(t, "reboot-annotation/plain-power-cycle.yaml")
	pairs := newSearch(t, s, plan, search.Options{Strategy: "pairs", Seed: 1, Schedules: 30})
	different := map[string]bool{}
	for i := range pairs.Total {
		schedule, _ := pairs.Next(i)
		outcome, _, err := search.NewPlayer(s, pairs.Story).Play(schedule)
		if err != nil {
			t.Fatal(err)
		}
		deviations := schedule.Deviations
		if len(deviations) != 2 || deviations[0].Step == deviations[1].Step {
			t.Errorf("schedule %d has the deviations %v, want two of different steps", i, deviations)
		}
		if outcome.Injected.Deviations.Took == 0 {
			t.Errorf("schedule %d: none of %v was taken", i, deviations)
		}
		different[outcome.History.Digest()] = true
	}
	if len(different) < 25 {
		t.Errorf("%d different histories in 30 schedules: those are no pairs", len(different))
	}
	quiet := func(n int) scenarios.Duration {
		return pairs.Story.PlanOf(campaign.Schedule{Number: n}).Spec.Limits.Quiet
	}
	if first := quiet(0); first != 0 {
		t.Errorf("schedule 0 has a quiet time of %v of its own, want what a run has", first)
	}
	if !slices.ContainsFunc([]int{1, 2, 3}, func(n int) bool { return quiet(n) != 0 }) {
		t.Error("every schedule goes on for as long as a single run does")
	}
}

// TestRanges: each schedule draws from the scenario's ranges, and its saved plan has the drawn
// values.
func TestRanges(t *testing.T) {
	const text = `
apiVersion: fencelab.dev/v1alpha1
kind: Scenario
metadata: {name: range, description: A user asks for a reboot sooner or later.}
spec:
  topology:
    hosts: [{name: worker-1}]
  controllers: [{name: reboot}]
  steps:
    - after: 0s..100s
      do: {annotate: {object: BareMetalHost/worker-1, key: reboot.metal3.io, value: '{"mode":"hard"}'}}
    - when: {event: boot-complete, host: worker-1}
`
	scenario, err := file.Load("range.yaml", []byte(text), objects.Vocabulary())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := scenarios.Compile(scenario, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := simulator(t)
	random, _, err := search.New(context.Background(), s, scenario, plan, search.Options{Strategy: "random", Seed: 1, Schedules: 20})
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[time.Duration]bool{}
	for i := range random.Total {
		schedule, _ := random.Next(i)
		outcome, played, err := search.NewPlayer(s, random.Story).Play(schedule)
		if err != nil {
			t.Fatal(err)
		}
		drawn[outcome.Plan.Spec.Steps[0].After.Min] = true
		saved, err := file.LoadPlan("plan.txt", random.Story.PlanOf(played).Text(), objects.Vocabulary())
		if err != nil {
			t.Fatal(err)
		}
		again, err := play.Run(context.Background(), saved, s.Backend(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if at := history.Diff(outcome.History, again.History); at >= 0 {
			t.Errorf("schedule %d: played from its plan, event %d differs", i, at+1)
		}
	}
	if len(drawn) < random.Total {
		t.Errorf("%d schedules wait for %d different times", random.Total, len(drawn))
	}
	if spec := &plan.Spec; spec.Steps[0].After != random.Story.Plan.Spec.Steps[0].After {
		t.Error("drawing for the schedules has changed the search's own plan")
	}
}

// TestStrategiesAreDescribed: every strategy is described for users, and for those who change the
// search.
func TestStrategiesAreDescribed(t *testing.T) {
	for file, form := range map[string]string{"../../docs/commands.md": `\|%s`, "../../docs/design.md": "- *%s*: "} {
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range search.Strategies() {
			if want := fmt.Sprintf(form, name); !strings.Contains(string(page), want) {
				t.Errorf("%s doesn't describe the strategy %s: there is no %q in it", file, name, want)
			}
		}
	}
}

// TestCoverageLearns: a schedule that reached something new is varied, and one that reached
// nothing new is not.
func TestCoverageLearns(t *testing.T) {
	s := newSearch(t, simulator(t), load(t, "reboot-annotation/plain-power-cycle.yaml"), search.Options{Strategy: "coverage", Seed: 1, Schedules: 1})
	// No schedule has these by chance: the story has no such steps.
	special := func(step string) campaign.Schedule {
		return campaign.Schedule{Deviations: []scenarios.Deviation{{Step: step + "/api/1", Delay: scenarios.Duration(time.Second)}}}
	}
	count := func(step string) (n int) {
		for i := range 200 {
			schedule, ok := s.Next(i)
			if !ok {
				t.Fatal("it has come to an end")
			}
			if slices.ContainsFunc(schedule.Deviations, func(d scenarios.Deviation) bool { return strings.HasPrefix(d.Step, step+"/") }) {
				n++
			}
		}
		return n
	}
	s.Learn(special("first"), campaign.Result{Reached: campaign.Points{1, 2}})
	if n := count("first"); n < 30 {
		t.Errorf("%d of 200 schedules vary the first that reached something", n)
	}
	s.Learn(special("second"), campaign.Result{Reached: campaign.Points{2}})
	s.Learn(special("broken"), campaign.Result{Reached: campaign.Points{3}, Signature: "it broke a guarantee, and ended"})
	s.Learn(special("third"), campaign.Result{Reached: campaign.Points{2, 4}})
	for step, varied := range map[string]bool{"first": true, "second": false, "broken": false, "third": true} {
		if n := count(step); n > 0 != varied {
			t.Errorf("%d of 200 schedules vary the %s one, which is to be varied: %t", n, step, varied)
		}
	}
}

// TestShrunk: a shrunk schedule fails like the original. Each of its deviations is needed for
// that, and its plan comes out the same whenever it is played.
func TestShrunk(t *testing.T) {
	simulator := simulator(t)
	for _, tried := range []struct {
		seed  uint64
		story string
	}{{1, "fenced-in-time"}, {2, "fenced-in-time"}, {1, "answer-about-the-boot-before"}} {
		seed, story := tried.seed, tried.story
		s := newSearch(t, simulator, simtest.Plan(t, "../../docs/examples/"+story+".yaml"), search.Options{Strategy: "random", Seed: seed, Schedules: 300})
		alone := search.NewAlone(simulator, s.Story)
		tally := s.Run(alone, nil)
		found := tally.Failures()
		if len(found) == 0 {
			t.Fatalf("seed %d: nothing fails: that shrinks nothing", seed)
		}
		s.Shrink(alone, &tally)
		player := search.NewPlayer(simulator, s.Story)
		for _, f := range tally.Failures() {
			left := f.Schedule
			if !left.Shrunk.Needed || len(left.Deviations) > 3 {
				t.Errorf("seed %d: left are %v: %+v", seed, left.Deviations, left.Shrunk)
			}
			signature := func(deviations []scenarios.Deviation) string {
				schedule := left
				schedule.Deviations = deviations
				result, err := player.Try(schedule)
				if err != nil {
					t.Fatal(err)
				}
				return result.Signature
			}
			if got := signature(left.Deviations); got != f.Signature {
				t.Errorf("seed %d: %q became %q", seed, f.Signature, got)
			}
			for i, d := range left.Deviations {
				if signature(slices.Delete(slices.Clone(left.Deviations), i, i+1)) == f.Signature {
					t.Errorf("seed %d: it fails without %v, too", seed, d)
				}
			}
			first, _, err := player.Play(left)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := file.LoadPlan("plan.txt", first.Plan.Text(), objects.Vocabulary())
			if err != nil {
				t.Fatal(err)
			}
			again, err := play.Run(t.Context(), plan, simulator.Backend(), nil)
			if err != nil || again.History.Digest() != first.History.Digest() {
				t.Errorf("seed %d: the plan came out differently: %v", seed, err)
			}
		}
	}
}

// TestAlone: behind a schedule that can't be played it plays no other one, and Close says why.
func TestAlone(t *testing.T) {
	s, plan := simulator(t), load(t, "reboot-annotation/plain-power-cycle.yaml")
	orders := newSearch(t, s, plan, search.Options{Strategy: "orders"})
	alone := search.NewAlone(s, orders.Story)
	right, _ := orders.Next(0)
	for _, schedule := range []campaign.Schedule{{Deviations: []scenarios.Deviation{{Step: "nobody's"}}}, right} {
		alone.Give(schedule)
		if result, ok := alone.Take(); ok {
			t.Errorf("it played %+v", result)
		}
	}
	if err := alone.Close(); err == nil || !strings.Contains(err.Error(), "nobody's") {
		t.Errorf("got %v", err)
	}
}
