// Command judge looks for a scenario of the catalogue whose guarantees its own controllers break,
// until its time is up, and says what it found as JSON. A schedule that breaks the same guarantee
// without the mistake proves nothing and is passed over.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/ci/mutants/finding"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search"
)

func main() {
	catalog := flag.String("catalog", "scenarios/catalog", "directory of the scenarios")
	first := flag.String("first", "", "try the single deviations of this scenario first")
	limit := flag.Duration("limit", 30*time.Second, "how long to search")
	right := flag.String("right", "", "this command built with the right controllers")
	replay := flag.Bool("replay", false, "play the plan on standard input alone")
	audit := flag.Bool("audit", false, "look instead for what is excused that the right controllers do without")
	leads := flag.String("leads", "", "look instead for what this controller does and the right one does not")
	answers := flag.Bool("answer", false, "answer questions about the schedules on standard input")
	strategy := flag.String("strategy", "", "search the scenario of -first with this strategy instead")
	seed := flag.Uint64("seed", 1, "seed of that search")
	schedules := flag.Int("schedules", 1000, "how many schedules it tries; 0 with -for")
	divide := flag.Bool("divide", false, "play them all, and say what divides those that fail")
	long := flag.Duration("for", 0, "how long that search lasts")
	flag.Parse()
	debug.SetGCPercent(400)
	var found any
	var err error
	switch {
	case *answers:
		if err := answerAll(); err != nil {
			fmt.Fprintf(os.Stderr, "judge: %v\n", err)
			os.Exit(1)
		}
		return
	case *audit:
		found, err = audits(*catalog, *first, *right, *limit)
	case *leads != "":
		found, err = guides(*catalog, *first, *leads, *right, *limit)
	case *replay:
		found, err = playAll()
	case *divide:
		found, err = divided(*catalog, *first, search.Options{Strategy: *strategy, Seed: *seed, Schedules: *schedules})
	case *strategy != "":
		found, err = hunt(*catalog, *first, *right, search.Options{Strategy: *strategy, Seed: *seed, Schedules: *schedules, For: *long})
	default:
		found, err = find(*catalog, *first, *right, *limit)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "judge: %v\n", err)
		os.Exit(1)
	}
}

// story is a scenario and what is left to try of it.
type story struct {
	*search.Player
	plan    *scenarios.Plan
	singles []scenarios.Deviation
	random  uint64
}

// playAll plays the plan on standard input.
func playAll() (*finding.Finding, error) {
	data, err := io.ReadAll(os.Stdin)
	if err != nil {
		return nil, err
	}
	plan, err := file.LoadPlan("plan", data, objects.Vocabulary())
	if err != nil {
		return nil, err
	}
	s, err := sim.New()
	if err != nil {
		return nil, err
	}
	o, err := play.Run(context.Background(), plan, s.Backend(), nil)
	if err != nil {
		return nil, err
	}
	f := new(finding.Finding)
	if o.Meets() != "" {
		f.Broken, f.Reason = broken(o)
	}
	return f, nil
}

// excused reports whether the right controllers break the same in a schedule.
func excused(right string, o *play.Outcome, deviations []scenarios.Deviation) (bool, error) {
	if right == "" {
		return false, nil
	}
	f, err := finding.OfRight(right, o.Plan.With(deviations))
	if err != nil {
		return false, err
	}
	what, _ := broken(o)
	return f.Broken == what, nil
}

// find plays the benign schedule of every story first. Then it goes round: of each
// story some single deviations, and some random schedules.
func find(catalog, first, right string, limit time.Duration) (*finding.Finding, error) {
	ctx := context.Background()
	plans, err := load(catalog)
	if err != nil {
		return nil, err
	}
	s, err := sim.New()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	tried := 0
	judge := func(o *play.Outcome, err error, strategy string, deviations []scenarios.Deviation) (*finding.Finding, error) {
		tried++
		f := &finding.Finding{Scenario: o.Plan.Metadata.Name, Strategy: strategy, Schedules: tried, Took: time.Since(began)}
		for _, d := range deviations {
			f.Deviations = append(f.Deviations, d.String())
		}
		verdict, _ := o.Verdict()
		switch {
		case err != nil && o.Err == nil:
			return nil, err
		case o.Err == nil && o.Meets() == "", verdict == invariant.Unknown && o.Err == nil && strategy != finding.Story:
			return nil, nil
		}
		f.Broken, f.Reason = broken(o)
		if f.Broken == finding.Stuck && o.Plan.Spec.Expect.Violated != "" {
			return nil, nil // the mistake may hide the story's own, in the same controller: that proves nothing
		}
		if same, err := excused(right, o, deviations); same || err != nil {
			return nil, err
		}
		return f, nil
	}

	var stories []*story
	var stuck *finding.Finding
	for i, plan := range plans {
		steps, outcome, err := search.Benign(ctx, s, plan)
		if outcome == nil {
			return nil, err
		}
		f, err := judge(outcome, err, finding.Story, nil)
		switch {
		case err != nil:
			return nil, err
		case f != nil && f.Broken != finding.Stuck:
			return f, nil
		case f != nil && stuck == nil:
			stuck = f // better than nothing, should no guarantee be broken
		}
		if plan.Spec.Expect.Violated != "" || f != nil {
			continue
		}
		t := &story{Player: search.NewPlayer(s, &campaign.Story{Plan: plan}), plan: plan, singles: search.Singles(steps), random: uint64(i) << 32}
		shuffle := rand.New(rand.NewPCG(1, uint64(i)))
		shuffle.Shuffle(len(t.singles), func(a, b int) { t.singles[a], t.singles[b] = t.singles[b], t.singles[a] })
		stories = append(stories, t)
	}
	if stuck != nil {
		return stuck, nil
	}
	if i := slices.IndexFunc(stories, func(t *story) bool { return t.plan.Metadata.Name == first }); i >= 0 {
		stories[0], stories[i] = stories[i], stories[0]
	}
	for time.Since(began) < limit {
		for _, t := range stories {
			share := 8
			if t.plan.Metadata.Name == first {
				share = len(t.singles)
			}
			try := func(strategy string, schedule campaign.Schedule) (*finding.Finding, error) {
				o, played, err := t.Play(schedule)
				if o == nil {
					return nil, err
				}
				return judge(o, err, strategy, played.Deviations)
			}
			for range min(share, len(t.singles)) {
				single := campaign.Schedule{Deviations: t.singles[:1]}
				t.singles = t.singles[1:]
				if f, err := try(finding.Sweep, single); f != nil || err != nil {
					return f, err
				}
			}
			for range 4 {
				t.random++
				if f, err := try(finding.Random, campaign.Schedule{Seed: t.random, Draw: true}); f != nil || err != nil {
					return f, err
				}
			}
			if time.Since(began) >= limit {
				break
			}
		}
	}
	return &finding.Finding{Schedules: tried, Took: time.Since(began)}, nil
}

// searchOf plans a search of one scenario.
func searchOf(catalog, scenario string, o search.Options) (*sim.Simulator, *campaign.Search, error) {
	plans, err := load(catalog)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(plans, func(p *scenarios.Plan) bool { return p.Metadata.Name == scenario })
	if i < 0 {
		return nil, nil, fmt.Errorf("there is no scenario %q in %s that the simulator can tell", scenario, catalog)
	}
	s, err := sim.New()
	if err != nil {
		return nil, nil, err
	}
	tried, benign, err := search.New(context.Background(), s, new(scenarios.Scenario), plans[i], o)
	if err != nil {
		return nil, nil, err
	}
	if why := benign.Meets(); why != "" {
		return nil, nil, fmt.Errorf("there is nothing to search for: the benign schedule of %s breaks already: %s", scenario, why)
	}
	return s, tried, nil
}

// divided searches one scenario and returns its kinds of failures, with what divides them from the
// schedules that held.
func divided(catalog, scenario string, o search.Options) ([]campaign.Failure, error) {
	s, tried, err := searchOf(catalog, scenario, o)
	if err != nil {
		return nil, err
	}
	alone := search.NewAlone(s, tried.Story)
	tally := tried.Run(alone, nil)
	if err := errors.Join(tried.Explain(context.Background(), alone, &tally), alone.Close()); err != nil {
		return nil, err
	}
	slices.SortFunc(tally.Failed, func(a, b campaign.Failure) int { return b.Count - a.Count })
	return tally.Failed, nil
}

// hunt searches one scenario until a guarantee breaks.
func hunt(catalog, scenario, right string, o search.Options) (*finding.Finding, error) {
	s, tried, err := searchOf(catalog, scenario, o)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if o.For > 0 {
		tried.Over = func() bool { return time.Since(began) >= o.For }
	}
	f, player := new(finding.Finding), search.NewPlayer(s, tried.Story)
	var failed error
	signature, cause := "", ""
	tried.Until = func(schedule campaign.Schedule, r campaign.Result) bool {
		if r.Invariant == "" {
			return false
		}
		signature, cause = r.Signature, r.Cause
		failed = confirm(f, player, schedule, right)
		return failed != nil || f.Broken != ""
	}
	alone := search.NewAlone(s, tried.Story)
	tally := tried.Run(alone, nil)
	f.Scenario, f.Strategy, f.Schedules, f.Took = scenario, o.Strategy, tally.Tried, time.Since(began)
	if failed == nil && f.Broken != "" {
		tally.Failed = slices.DeleteFunc(tally.Failed, func(other campaign.Failure) bool { return other.Signature != signature || other.Cause != cause })
		began = time.Now()
		tried.Shrink(alone, &tally)
		left := tally.Failed[0].Schedule
		f.Shrunk = &finding.Shrunk{From: left.Shrunk.From, To: len(left.Deviations), Took: time.Since(began)}
		f.Deviations = nil
		for _, d := range left.Deviations {
			f.Deviations = append(f.Deviations, d.String())
		}
	}
	if err := errors.Join(failed, alone.Close()); err != nil {
		return nil, err
	}
	return f, nil
}

// confirm plays a schedule again that broke a guarantee, and notes what it broke unless the right
// controllers break the same in it.
func confirm(f *finding.Finding, player *search.Player, schedule campaign.Schedule, right string) error {
	o, played, err := player.Play(schedule)
	if err != nil {
		return err
	}
	if same, err := excused(right, o, played.Deviations); same || err != nil {
		return err
	}
	f.Broken, f.Reason = broken(o)
	for _, d := range played.Deviations {
		f.Deviations = append(f.Deviations, d.String())
	}
	return nil
}

// broken names the guarantees that were broken, or what else was, and says how.
func broken(o *play.Outcome) (what, reason string) {
	var ids []string
	for _, r := range o.Results {
		if r.Verdict == invariant.Violated {
			ids = append(ids, r.Invariant)
		}
	}
	_, reason = o.Verdict()
	switch {
	case len(ids) > 0:
		return strings.Join(ids, ", "), reason
	case o.Err != nil:
		return "the run", o.Err.Error()
	}
	return finding.Stuck, reason
}

// load compiles the scenarios of the catalogue that the simulator can play.
func load(catalog string) ([]*scenarios.Plan, error) {
	var plans []*scenarios.Plan
	err := filepath.WalkDir(catalog, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		cells, err := file.LoadCells(path, data, objects.Vocabulary(), nil)
		for _, scenario := range cells {
			worlds := scenario.Spec.Worlds
			if len(worlds) > 0 && !slices.Contains(worlds, "sim") {
				continue
			}
			plan, err := scenarios.Compile(scenario, 1)
			if err != nil {
				return err
			}
			plans = append(plans, plan)
		}
		return err
	})
	if err == nil && len(plans) == 0 {
		err = fmt.Errorf("load the scenarios of %s: none can be told in the simulator", catalog)
	}
	return plans, err
}
