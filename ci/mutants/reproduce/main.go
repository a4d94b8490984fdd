// Command reproduce looks in the simulator for a single deviation with which the controllers that
// it is built with break a guarantee, of those that a gate can make, and plays it in the lab, with
// model hosts. It says what came of it as JSON. What the right controllers break, too, proves
// nothing and is passed over.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fencelab/fencelab/ci/mutants/finding"
	"github.com/fencelab/fencelab/lab"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search"
	"github.com/fencelab/fencelab/sim/steps"
	"github.com/fencelab/fencelab/vms/keeper"
)

func main() {
	keeper.Main() // does not return in the process that cleans up after us
	catalog := flag.String("catalog", "scenarios/catalog", "directory of the scenarios")
	story := flag.String("story", "", "name of the scenario")
	right := flag.String("right", "", "the judge built with the right controllers")
	times := flag.Int("times", 3, "how often a plan is played in the lab")
	plans := flag.Int("plans", 3, "how many plans are tried, until one is reproduced")
	verbose := flag.Bool("v", false, "say what the lab does")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	found, err := reproduce(ctx, *catalog, *story, *right, *times, *plans, *verbose)
	stop()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "reproduce: %v\n", err)
		os.Exit(1)
	}
}

func reproduce(ctx context.Context, catalog, story, right string, times, plans int, verbose bool) (*finding.Reproduced, error) {
	plan, err := load(catalog, story)
	if err != nil {
		return nil, err
	}
	s, err := sim.New()
	if err != nil {
		return nil, err
	}
	steps, benign, err := search.Benign(ctx, s, plan)
	if err != nil {
		return nil, err
	}
	if why := benign.Meets(); why != "" {
		return nil, fmt.Errorf("there is nothing to search for: the benign schedule of %s breaks already: %s", story, why)
	}
	best := &finding.Reproduced{}
	player := search.NewPlayer(s, &campaign.Story{Plan: plan})
	tried := make(map[string]bool)
	for i, single := range search.Singles(steps) {
		if len(tried) == plans || ctx.Err() != nil {
			break
		}
		if !passesGate(single.Step) {
			continue
		}
		o, _, err := player.Play(campaign.Schedule{Number: i, Deviations: []scenarios.Deviation{single}})
		if err != nil {
			return nil, err
		}
		if verdict, _ := o.VerdictOfSchedule(); verdict != invariant.Violated {
			continue
		}
		if excused, err := excused(right, o); err != nil || excused {
			if err != nil {
				return nil, err
			}
			continue
		}
		told, err := s.Deeds(ctx, plan.With([]scenarios.Deviation{single}))
		if err != nil {
			return nil, err
		}
		broke := told.Outcome.Broke()
		if len(told.Untold) > 0 || len(broke) == 0 || tried[told.Plan.Deviations[0].Step] {
			continue // another delay of the same step is no other plan
		}
		tried[told.Plan.Deviations[0].Step] = true
		r := &finding.Reproduced{Deviation: single.String(), Deed: told.Plan.Deviations[0].String(), Broken: strings.Join(broke, ", "), Plans: len(tried)}
		for range times {
			options := lab.Options{Hosts: lab.Model}
			if verbose {
				options.Log = os.Stderr
			}
			o, err := play.Run(ctx, told.Plan, lab.New(options), nil)
			if unsupported := (*play.Unsupported)(nil); errors.As(err, &unsupported) {
				r.Refused = unsupported.Reasons[0]
				return r, nil
			}
			if err != nil {
				return nil, err
			}
			word, reason := o.Reproduces(broke)
			if verbose {
				fmt.Fprintf(os.Stderr, "%s (%s): %s: %s\n%s\n", r.Deed, r.Deviation, word, reason, report.Text(o, ""))
			}
			switch word {
			case play.Reproduced:
				r.Times++
			case play.Diverged:
				r.Diverged++
			}
			r.Of++
		}
		if best.Deed == "" || r.Times > best.Times {
			best = r
		}
		if r.Times == r.Of {
			break
		}
	}
	return best, nil
}

// passesGate reports whether a step of the simulator is of a class that passes gates.
func passesGate(step string) bool {
	parts := strings.Split(step, "/")
	return slices.Contains([]steps.Class{steps.ClassAPI, steps.ClassBMC, steps.ClassDeliver, steps.ClassStart}, steps.Class(parts[len(parts)-2]))
}

// load compiles the scenario of a name.
func load(catalog, name string) (*scenarios.Plan, error) {
	files, err := filepath.Glob(filepath.Join(catalog, "*", name+".yaml"))
	if err != nil || len(files) != 1 {
		return nil, fmt.Errorf("find the scenario %s: %d files have that name: %w", name, len(files), err)
	}
	all, err := file.LoadFiles(files, objects.Vocabulary(), nil)
	if err != nil {
		return nil, err
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("the scenario %s is a matrix", name)
	}
	return scenarios.Compile(all[0], 1)
}

// excused reports whether the right controllers break the same in a schedule.
func excused(right string, o *play.Outcome) (bool, error) {
	f, err := finding.OfRight(right, o.Plan)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(strings.Split(f.Broken, ", "), func(id string) bool { return slices.Contains(o.Broke(), id) }), nil
}
