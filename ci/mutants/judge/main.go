// Command judge looks for a scenario of the catalogue whose guarantees the
// controllers that it is built with break, until its time is up. It is built anew for
// each mutant and says what it found as JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
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
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/explore"
)

func main() {
	catalog := flag.String("catalog", "scenarios/catalog", "directory of the scenarios")
	only := flag.String("only", "", "play this scenario alone")
	limit := flag.Duration("limit", 30*time.Second, "how long to search")
	flag.Parse()
	debug.SetGCPercent(400)
	found, err := search(*catalog, *only, *limit)
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
	plan    *scenarios.Plan
	singles []scenarios.Deviation
	random  uint64
}

// search plays the benign schedule of every story first. Then it goes round: of each
// story some single deviations, and some random schedules.
func search(catalog, only string, limit time.Duration) (*finding.Finding, error) {
	ctx := context.Background()
	plans, err := load(catalog, only)
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
		verdict, reason := o.Verdict()
		switch {
		case o.Err != nil:
			f.Broken, f.Reason = "the run", o.Err.Error()
		case err != nil:
			return nil, err
		case verdict == invariant.Violated && o.Meets() != "":
			f.Broken, f.Reason = broken(o), reason
		case verdict == invariant.Unknown && strategy == finding.Story && o.Meets() != "":
			f.Broken, f.Reason = finding.Stuck, reason
		default:
			return nil, nil
		}
		return f, nil
	}

	var stories []*story
	var stuck *finding.Finding
	for i, plan := range plans {
		steps, outcome, err := explore.Steps(ctx, s, plan)
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
		t := &story{plan: plan, singles: explore.Sweep(steps), random: uint64(i) << 32}
		shuffle := rand.New(rand.NewPCG(1, uint64(i)))
		shuffle.Shuffle(len(t.singles), func(a, b int) { t.singles[a], t.singles[b] = t.singles[b], t.singles[a] })
		stories = append(stories, t)
	}
	if stuck != nil {
		return stuck, nil
	}
	for time.Since(began) < limit {
		for _, t := range stories {
			for range min(8, len(t.singles)) {
				d := t.singles[:1]
				t.singles = t.singles[1:]
				o, err := explore.Play(ctx, s, t.plan, d)
				if o == nil {
					return nil, err
				}
				if f, err := judge(o, err, finding.Sweep, d); f != nil || err != nil {
					return f, err
				}
			}
			for range 4 {
				t.random++
				o, drawn, err := explore.PlayRandom(ctx, s, t.plan, t.random)
				if o == nil {
					return nil, err
				}
				if f, err := judge(o, err, finding.Random, drawn); f != nil || err != nil {
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

// broken names the guarantees that were broken.
func broken(o *scenarios.Outcome) string {
	var ids []string
	for _, r := range o.Results {
		if r.Verdict == invariant.Violated {
			ids = append(ids, r.Invariant)
		}
	}
	return strings.Join(ids, ", ")
}

// load compiles the scenarios of the catalogue that the simulator can tell.
func load(catalog, only string) ([]*scenarios.Plan, error) {
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
		if len(worlds) > 0 && !slices.Contains(worlds, "sim") || only != "" && scenario.Metadata.Name != only {
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
