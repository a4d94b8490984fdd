package search_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search"
	"github.com/fencelab/fencelab/sim/simtest"
	"github.com/fencelab/fencelab/sim/steps"
)

const catalog = "../../scenarios/catalog/"

func load(t testing.TB, file string) *scenarios.Plan {
	t.Helper()
	return simtest.Plan(t, catalog+file)
}

// newSearch plans a search of a plan without ranges.
func newSearch(t testing.TB, simulator *sim.Simulator, plan *scenarios.Plan, o search.Options) *campaign.Search {
	t.Helper()
	s, _, err := search.New(context.Background(), simulator, new(scenarios.Scenario), plan, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs a search in this process.
func run(t testing.TB, simulator *sim.Simulator, s *campaign.Search) campaign.Tally {
	t.Helper()
	alone := search.NewAlone(simulator, s.Story)
	tally := s.Run(alone, nil)
	if alone.Close() != nil {
		t.Fatal(alone.Close())
	}
	return tally
}

func simulator(t testing.TB) *sim.Simulator {
	t.Helper()
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSweep tries every single deviation from the benign schedule of scenarios
// whose guarantees must survive all of them.
func TestSweep(t *testing.T) {
	for _, file := range []string{
		"reboot-annotation/stuck-soft-shutdown.yaml",
		"machine-remediation/cut-off-host.yaml", "machine-remediation/crash-after-each-effect.yaml",
	} {
		t.Run(file, func(t *testing.T) {
			simulator, plan := simulator(t), load(t, file)
			steps, _, err := search.Benign(context.Background(), simulator, plan)
			if err != nil {
				t.Fatal(err)
			}
			s := newSearch(t, simulator, plan, search.Options{Strategy: "sweep"})
			if least := len(search.Delays) * len(steps); s.Total < least || len(steps) < 50 {
				t.Errorf("%d deviations from %d steps are too few to be all: there are as many delays as %d", s.Total, len(steps), least)
			}
			tally := run(t, simulator, s)
			if tally.Tried != s.Total || tally.Held != s.Total {
				t.Errorf("of %d schedules %d were tried, %d held, %d were violated and %d unknown", s.Total, tally.Tried, tally.Held, tally.Violated, tally.Unknown)
			}
			for _, f := range tally.Failed {
				t.Errorf("%d schedules like %v: %s", f.Count, f.Schedule.Deviations, f.Signature)
			}
		})
	}
}

// TestCatalogBearsAnySchedule plays each right story in two random schedules: what it claims must
// not only be so as it stands. A claim with within is about that alone.
func TestCatalogBearsAnySchedule(t *testing.T) {
	s, played := simulator(t), 0
	files, err := filepath.Glob(catalog + "*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		for _, plan := range simtest.Plans(t, path) {
			if plan.Spec.Expect.Violated != "" || len(plan.Spec.Worlds) > 0 && !slices.Contains(plan.Spec.Worlds, "sim") {
				continue
			}
			player := search.NewPlayer(s, &campaign.Story{Plan: plan})
			for seed := range uint64(2) {
				outcome, _, err := player.Play(campaign.Schedule{Seed: seed, Draw: true})
				if err != nil {
					t.Fatalf("%s: %v", plan.Metadata.Name, err)
				}
				if verdict, reason := outcome.Verdict(); verdict == invariant.Violated {
					t.Errorf("%s, seed %d: %s", plan.Metadata.Name, seed, reason)
				}
				played++
			}
		}
	}
	if played < 1000 {
		t.Errorf("%d schedules were played", played)
	}
}

// TestRandom plays random schedules, and each again from the deviations that it
// drew, by way of the plan's text: the history must be the same.
func TestRandom(t *testing.T) {
	s, story := simulator(t), &campaign.Story{Plan: load(t, "machine-remediation/three-hosts.yaml")}
	player := search.NewPlayer(s, story)
	deviated, different := 0, map[string]bool{}
	for seed := range uint64(150) {
		outcome, played, err := player.Play(campaign.Schedule{Seed: seed, Draw: true})
		if err != nil {
			t.Fatal(err)
		}
		switch verdict, reason := outcome.Verdict(); verdict {
		case invariant.Violated:
			t.Errorf("seed %d: %s\n%s", seed, reason, report.Text(outcome, ""))
		case invariant.Unknown:
			t.Errorf("seed %d: %s", seed, reason)
		}
		deviated += len(played.Deviations)
		different[outcome.History.Digest()] = true

		replay, err := file.LoadPlan("plan.txt", story.PlanOf(played).Text(), objects.Vocabulary())
		if err != nil {
			t.Fatal(err)
		}
		again, err := play.Run(context.Background(), replay, s.Backend(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if at := history.Diff(outcome.History, again.History); at >= 0 {
			t.Fatalf("seed %d: played from its plan, event %d differs", seed, at+1)
		}
	}
	if deviated < 150 || len(different) < 75 {
		t.Errorf("%d deviations and %d different histories in 150 schedules: that is no search", deviated, len(different))
	}
}

// TestDeviationsBite checks that each fault of a step does something: some step with it makes
// another history than the benign one.
func TestDeviationsBite(t *testing.T) {
	s, biting := simulator(t), map[scenarios.StepFault]bool{}
	for _, file := range []string{"machine-remediation/cut-off-host.yaml", "machine-remediation/crash-after-each-effect.yaml"} {
		plan := load(t, file)
		player := search.NewPlayer(s, &campaign.Story{Plan: plan})
		steps, benign, err := search.Benign(context.Background(), s, plan)
		if err != nil {
			t.Fatal(err)
		}
		for _, deviation := range search.Singles(steps) {
			if deviation.Fault == "" || biting[deviation.Fault] {
				continue
			}
			outcome, _, err := player.Play(campaign.Schedule{Deviations: []scenarios.Deviation{deviation}})
			if err != nil {
				t.Fatal(err)
			}
			biting[deviation.Fault] = bites(benign.History, outcome.History)
		}
	}
	for _, fault := range scenarios.StepFaults() {
		if !biting[fault] && fault != scenarios.FaultNotFound { // which no search chooses
			t.Errorf("no step comes out differently with the fault %s", fault)
		}
	}
}

// bites reports whether two histories differ beyond the record of the deviation itself.
func bites(benign, deviated *history.History) bool {
	i := 0
	for _, e := range deviated.Events() {
		if e.Kind == history.Deviated {
			continue
		}
		if i >= benign.Len() || benign.Events()[i].At != e.At || benign.Events()[i].Kind != e.Kind {
			return true
		}
		i++
	}
	return i != benign.Len()
}

// TestPremises: what a story assumes is left out of its searches, and nothing else.
func TestPremises(t *testing.T) {
	const file = "machine-remediation/cut-off-host.yaml"
	breaks := map[string]func(step steps.Step, d scenarios.Deviation) bool{
		scenarios.BMCObeys: func(step steps.Step, d scenarios.Deviation) bool {
			return d.Fault == scenarios.FaultIgnore || step.Class == steps.ClassPower && d.Delay > scenarios.Duration(5*time.Second)
		},
		scenarios.RequestsArrive: func(step steps.Step, d scenarios.Deviation) bool {
			return d.Fault == scenarios.FaultLate || d.Fault == scenarios.FaultCrashLate ||
				(step.Effect || step.Class == steps.ClassKubelet) && d.Fault == "" && d.Delay > scenarios.Duration(time.Second)
		},
	}
	simulator, usual := simulator(t), load(t, file)
	story, _, err := search.Benign(context.Background(), simulator, usual)
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]steps.Step{}
	for _, step := range story {
		named[step.Name()] = step
	}
	all := search.Singles(story)
	for premise, broken := range breaks {
		plan := load(t, file)
		plan.Spec.Assumes = []string{premise}
		story, _, err := search.Benign(context.Background(), simulator, plan)
		if err != nil {
			t.Fatal(err)
		}
		want := slices.DeleteFunc(slices.Clone(all), func(d scenarios.Deviation) bool { return broken(named[d.Step], d) })
		if got := search.Singles(story); len(want) == len(all) || !slices.Equal(got, want) {
			t.Errorf("%s: %d of %d deviations remain, want %d", premise, len(got), len(all), len(want))
		}
		drawn, player := 0, search.NewPlayer(simulator, &campaign.Story{Plan: plan})
		for seed := range uint64(60) {
			_, played, err := player.Play(campaign.Schedule{Seed: seed, Draw: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range played.Deviations {
				drawn++
				// A step of this name may be another one here, but for its class.
				if broken(steps.Step{Class: steps.Class(strings.Split(d.Step, "/")[1])}, d) {
					t.Errorf("%s: seed %d has %v", premise, seed, d)
				}
			}
		}
		if drawn == 0 {
			t.Error("nothing was drawn")
		}
	}
}
