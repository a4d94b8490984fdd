package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/ci/mutants/finding"
	"github.com/fencelab/fencelab/ci/mutants/source"
	"github.com/fencelab/fencelab/sim/search"
)

// contests are the mistakes that strategies are compared by, each in a story whose benign
// schedule doesn't show it: those that no story of the catalogue finds by itself.
var contests = []struct{ mutant, story string }{
	{"reboot-repeats-commands-at-once", "second-reboot-controller"},
	{"reboot-patch-without-version", "deprovisioned-during-the-remediation"},
	{"reboot-called-off-at-once", "bmc-on-after-off-asked-again"},
	{"reboot-forgets-on-after-crash", "bmc-on-after-off-asked-again"},
	{"remediation-acts-on-cache", "crash-before-deleting-the-node"},
	{"remediation-keep-mark-left", "keep-mark-does-not-hang"},
	{"remediation-node-error-is-absence", "cut-off-host"},
	{"remediation-read-error-is-absence", "three-hosts"},
	{"healthcheck-limit-rounds-up", "all-at-once"},
}

// compare prints a table of how many schedules each strategy but the sweep takes to the
// first violation: the median of the seeds, with the least and the most.
func compare(ctx context.Context, all []Mutant, dir, right string, seeds, schedules int) error {
	var strategies []string
	for _, name := range search.Strategies() {
		if name != "sweep" {
			strategies = append(strategies, name)
		}
	}
	fmt.Printf("| mistake | story | %s |\n|---|---|%s\n", strings.Join(strategies, " | "), strings.Repeat("---|", len(strategies)))
	for _, c := range contests {
		i := slices.IndexFunc(all, func(m Mutant) bool { return m.ID == c.mutant })
		if i < 0 {
			return fmt.Errorf("compare strategies: there is no mutant %s", c.mutant)
		}
		binary, err := build(ctx, all[i], dir)
		if err != nil {
			return err
		}
		row := fmt.Sprintf("| %s | `%s` |", cell(all[i].Mistake), c.story)
		for _, strategy := range strategies {
			found, err := hunt(ctx, binary, right, c.story, strategy, seeds, schedules)
			if err != nil {
				return fmt.Errorf("mutant %s: %w", c.mutant, err)
			}
			row += fmt.Sprintf(" %s (%s to %s) |", atMost(found[len(found)/2]), atMost(found[0]), atMost(found[len(found)-1]))
		}
		fmt.Println(row)
		os.Remove(binary)
	}
	return nil
}

// atMost is a number of schedules; without end when that was not enough.
func atMost(n int) string {
	if n == math.MaxInt {
		return "never"
	}
	return fmt.Sprint(n)
}

// hunt returns how many schedules a strategy took to the first violation, sorted, for
// each seed; math.MaxInt if there was none.
func hunt(ctx context.Context, binary, right, story, strategy string, seeds, schedules int) ([]int, error) {
	found, errs := make([]int, seeds), make([]error, seeds)
	inParallel(ctx, seeds, func(i int) {
		var f finding.Finding
		if err := finding.Ask(exec.CommandContext(ctx, binary, "-right", right, "-first", story, "-strategy", strategy,
			"-seed", fmt.Sprint(i+1), "-schedules", fmt.Sprint(schedules)), &f); err != nil {
			errs[i] = fmt.Errorf("search %s with %s: %w", story, strategy, err)
			return
		}
		if found[i] = f.Schedules; f.Broken == "" {
			found[i] = math.MaxInt
		}
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	slices.Sort(found)
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// build builds the judge with one mutant.
func build(ctx context.Context, m Mutant, dir string) (binary string, err error) {
	return source.Build(ctx, ".", "./ci/mutants/judge", dir, m.ID, m.Change)
}
