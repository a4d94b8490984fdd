// Command judge looks for a scenario of the catalogue whose guarantees the
// controllers that it is built with break, until its time is up. It is built anew for
// each mutant and says what it found as JSON. A schedule that breaks the same
// guarantee without the mistake proves nothing and is passed over.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/ci/mutants/finding"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search"
)

func main() {
	catalog := flag.String("catalog", "scenarios/catalog", "directory of the scenarios")
	first := flag.String("first", "", "try the single deviations of this scenario first")
	limit := flag.Duration("limit", 30*time.Second, "how long to search")
	right := flag.String("right", "", "this command built with the right controllers")
	replay := flag.Bool("replay", false, "play the plan on standard input alone")
	flag.Parse()
	debug.SetGCPercent(400)
	var found *finding.Finding
	var err error
	if *replay {
		found, err = play()
	} else {
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
	search.Story
	singles []scenarios.Deviation
	random  uint64
}

// play plays the plan on standard input.
func play() (*finding.Finding, error) {
	data, err := io.ReadAll(os.Stdin)
	if err != nil {
		return nil, err
	}
	plan, err := scenarios.LoadPlan("plan", data, objects.Vocabulary())
	if err != nil {
		return nil, err
	}
	s, err := sim.New()
	if err != nil {
		return nil, err
	}
	o, err := scenarios.Run(context.Background(), plan, s.Backend(), nil)
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
func excused(right string, o *scenarios.Outcome, deviations []scenarios.Deviation) (bool, error) {
	if right == "" {
		return false, nil
	}
	cmd := exec.Command(right, "-replay")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(o.Plan.With(deviations).Text()), os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return false, fmt.Errorf("play %s with the right controllers: %w", o.Plan.Metadata.Name, err)
	}
	var f finding.Finding
	if err := json.Unmarshal(output, &f); err != nil {
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
	judge := func(o *scenarios.Outcome, err error, strategy string, deviations []scenarios.Deviation) (*finding.Finding, error) {
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
		t := &story{Story: search.Story{Plan: plan}, singles: search.Singles(steps), random: uint64(i) << 32}
		shuffle := rand.New(rand.NewPCG(1, uint64(i)))
		shuffle.Shuffle(len(t.singles), func(a, b int) { t.singles[a], t.singles[b] = t.singles[b], t.singles[a] })
		stories = append(stories, t)
	}
	if stuck != nil {
		return stuck, nil
	}
	if i := slices.IndexFunc(stories, func(t *story) bool { return t.Plan.Metadata.Name == first }); i >= 0 {
		stories[0], stories[i] = stories[i], stories[0]
	}
	for time.Since(began) < limit {
		for _, t := range stories {
			share := 8
			if t.Plan.Metadata.Name == first {
				share = len(t.singles)
			}
			try := func(strategy string, schedule search.Schedule) (*finding.Finding, error) {
				o, played, err := t.Play(s, schedule)
				if o == nil {
					return nil, err
				}
				return judge(o, err, strategy, played.Deviations)
			}
			for range min(share, len(t.singles)) {
				single := search.Schedule{Deviations: t.singles[:1]}
				t.singles = t.singles[1:]
				if f, err := try(finding.Sweep, single); f != nil || err != nil {
					return f, err
				}
			}
			for range 4 {
				t.random++
				if f, err := try(finding.Random, search.Schedule{Seed: t.random, Draw: true}); f != nil || err != nil {
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

// broken names the guarantees that were broken, or what else was, and says how.
func broken(o *scenarios.Outcome) (what, reason string) {
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

// load compiles the scenarios of the catalogue that the simulator can tell.
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
		scenario, err := scenarios.Load(path, data, objects.Vocabulary())
		if err != nil {
			return err
		}
		worlds := scenario.Spec.Worlds
		if len(worlds) > 0 && !slices.Contains(worlds, "sim") {
			return nil
		}
		plan, err := scenarios.Compile(scenario, 1)
		plans = append(plans, plan)
		return err
	})
	if err == nil && len(plans) == 0 {
		err = fmt.Errorf("load the scenarios of %s: none can be told in the simulator", catalog)
	}
	return plans, err
}
