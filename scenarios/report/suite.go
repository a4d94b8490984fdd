package report

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"github.com/fencelab/fencelab/scenarios/version"
)

// Suite runs scenarios one after the other, each with a plan of its own that is compiled
// from the seed, and sums up. Play returns an exit code, or why the whole suite ends. What
// came of it all is saved in Dir, if there is one, and in the format json it is all that is
// printed.
func (c *Console) Suite(ctx context.Context, all []*scenarios.Scenario, strategy string, seed uint64, play func(*scenarios.Scenario, *scenarios.Plan) (int, error)) error {
	ledger := &Ledger{Version: version.Built(), Backend: c.World, Seed: seed, Strategy: strategy, Began: time.Now(), Results: []*Entry{}}
	if c.Real {
		ledger.Controllers, ledger.Hosts, ledger.Cluster, ledger.Power = c.Chosen("controllers"), c.Chosen("hosts"), c.Chosen("cluster"), c.Chosen("power")
	}
	out := c.Out
	if c.Format == "json" {
		c.Out = io.Discard
	}
	ended := c.suite(ctx, ledger, all, play)
	ledger.close(exit.Code(ended), time.Since(ledger.Began))
	failed := error(nil)
	if c.Dir != "" {
		failed = ledger.save(c.Dir)
	}
	if c.Out = out; c.Format == "json" && failed == nil {
		var report []byte
		if report, failed = ledger.JSON(); failed == nil {
			_, failed = out.Write(report)
		}
	}
	if failed != nil {
		fmt.Fprintf(c.Talk, "fencelab: %v\n", failed)
		if ended == nil {
			ended = exit.Ended(exit.Internal)
		}
	}
	return ended
}

// unfit says why a scenario is not played; empty if it is.
func (c *Console) unfit(s *scenarios.Scenario) string {
	if worlds := s.Spec.Worlds; len(worlds) > 0 && !slices.Contains(worlds, c.World) {
		return "it can be told in " + strings.Join(worlds, " and ") + " only"
	}
	if c.Unfit == nil {
		return ""
	}
	return c.Unfit(s)
}

// suite runs the scenarios, and keeps a ledger of them.
func (c *Console) suite(ctx context.Context, ledger *Ledger, all []*scenarios.Scenario, play func(*scenarios.Scenario, *scenarios.Plan) (int, error)) error {
	ran, unexpected, worst := 0, 0, exit.Held
	var ended error
	for _, scenario := range all {
		c.entry = ledger.begin(scenario)
		if ctx.Err() != nil || ended != nil {
			c.entry.skip("the invocation ended before")
			continue
		}
		if why := c.unfit(scenario); why != "" {
			c.entry.skip(why)
			fmt.Fprintf(c.Talk, "skipped   %s: %s\n", scenario.Metadata.Name, c.entry.Reason)
			continue
		}
		began := time.Now()
		plan, err := scenarios.Compile(scenario, ledger.Seed)
		if err != nil {
			err = exit.Coded(exit.Internal, err)
		}
		code := exit.Held
		if err == nil {
			code, err = play(scenario, plan)
		}
		if err != nil {
			c.entry.Reason = err.Error()
			c.entry.end(exit.Code(err), time.Since(began))
			ended = err
			continue
		}
		c.entry.end(code, time.Since(began))
		ran++
		if code != exit.Held {
			unexpected++
		}
		worst = exit.Worse(worst, code)
	}
	if ended != nil {
		return ended
	}
	summary := "as expected"
	if unexpected > 0 {
		summary = fmt.Sprintf("%d not as expected", unexpected)
	}
	left := ""
	if ctx.Err() != nil && ran < len(all) {
		left = fmt.Sprintf(", interrupted before the other %d", len(all)-ran)
	}
	fmt.Fprintf(c.Talk, "%s in %s: %s%s\n", phrase.Count(ran, "scenario"), time.Since(ledger.Began).Round(time.Millisecond), summary, left)
	if ran == 0 && worst == exit.Held {
		return exit.Coded(exit.Unknown, fmt.Errorf("none of the scenarios can be told in the %s", c.World))
	}
	return exit.Ended(worst)
}

// WorldNames are what the command line calls worlds.
func WorldNames(worlds []scenarios.Capabilities) (names []string) {
	for _, world := range worlds {
		names = append(names, world.World)
	}
	return names
}
