package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/ci/mutants/finding"
	"github.com/fencelab/fencelab/sim/search"
)

// contests are the mistakes that strategies are compared by, each in a story whose benign
// schedule doesn't show it: those that no story of the catalogue finds by itself.
var contests = []struct{ mutant, story string }{
	{"deletion-age-not-checked-again", "answer-ages-before-the-node-goes"},
	{"hold-request-time-ignored", "answer-from-an-old-reading"},
	{"remediation-age-not-checked-again", "answer-ages-while-the-node-is-read"},
	{"reboot-patch-without-version", "deprovisioned-during-the-remediation"},
	{"reboot-called-off-at-once", "bmc-on-after-off-asked-again"},
	{"reboot-forgets-on-after-crash", "bmc-on-after-off-asked-again"},
	{"remediation-acts-on-cache", "crash-before-deleting-the-node"},
	{"remediation-node-error-is-absence", "cut-off-host"},
	{"remediation-read-error-is-absence", "three-hosts"},
	{"healthcheck-limit-rounds-up", "all-at-once"},
}

// compare prints a table of how many schedules each strategy but the sweep takes to the
// first violation: the median of the seeds, with the least and the most; and one of what
// those schedules shrink to.
func compare(ctx context.Context, all []Mutant, dir string, seeds, schedules int) error {
	var strategies []string
	for _, name := range search.Strategies() {
		if name != "sweep" {
			strategies = append(strategies, name)
		}
	}
	var mutants []Mutant
	for _, c := range contests {
		i := slices.IndexFunc(all, func(m Mutant) bool { return m.ID == c.mutant })
		if i < 0 {
			return fmt.Errorf("compare strategies: there is no mutant %s", c.mutant)
		}
		mutants = append(mutants, all[i])
	}
	p, err := build(ctx, judgeOf, dir, mistakes(mutants))
	if err != nil {
		return err
	}
	var shrunk []string
	fmt.Printf("| mistake | story | %s |\n|---|---|%s\n", strings.Join(strategies, " | "), strings.Repeat("---|", len(strategies)))
	for i, c := range contests {
		row := fmt.Sprintf("| %s | `%s` |", cell(mutants[i].Mistake), c.story)
		var reduced []finding.Shrunk
		for _, strategy := range strategies {
			found, err := p.hunt(ctx, c.mutant, c.story, strategy, seeds, schedules)
			if err != nil {
				return fmt.Errorf("mutant %s: %w", c.mutant, err)
			}
			row += fmt.Sprintf(" %s (%s to %s) |", atMost(found, len(found)/2), atMost(found, 0), atMost(found, len(found)-1))
			for _, f := range found {
				if f.Shrunk != nil {
					reduced = append(reduced, *f.Shrunk)
				}
			}
		}
		fmt.Println(row)
		shrunk = append(shrunk, shrinks(c.mutant, reduced))
	}
	fmt.Printf("\n| mistake | schedules | deviations, found with | left | longest |\n|---|---|---|---|---|\n%s", strings.Join(shrunk, ""))
	return nil
}

// shrinks writes a mistake's row: how small the schedules become that found it.
func shrinks(mutant string, all []finding.Shrunk) string {
	if len(all) == 0 {
		return fmt.Sprintf("| `%s` | 0 | | | |\n", mutant)
	}
	column := func(of func(finding.Shrunk) int) string {
		var values []int
		for _, s := range all {
			values = append(values, of(s))
		}
		slices.Sort(values)
		return fmt.Sprintf("%d (%d to %d)", values[len(values)/2], values[0], values[len(values)-1])
	}
	longest := slices.MaxFunc(all, func(a, b finding.Shrunk) int { return cmp.Compare(a.Took, b.Took) })
	return fmt.Sprintf("| `%s` | %d | %s | %s | %s |\n", mutant, len(all), column(func(s finding.Shrunk) int { return s.From }),
		column(func(s finding.Shrunk) int { return s.To }), longest.Took.Round(100*time.Millisecond))
}

// atMost is how many schedules the i-th took; without end when that was not enough.
func atMost(found []finding.Finding, i int) string {
	if found[i].Broken == "" {
		return "never"
	}
	return fmt.Sprint(found[i].Schedules)
}

// hunt returns what a strategy found, for each seed, sorted by how many schedules that took; what
// found nothing comes last.
func (p programs) hunt(ctx context.Context, mutant, story, strategy string, seeds, schedules int) ([]finding.Finding, error) {
	found, errs := make([]finding.Finding, seeds), make([]error, seeds)
	inParallel(ctx, seeds, func(i int) {
		if err := p.ask(ctx, mutant, &found[i], "-right", p.right, "-first", story, "-strategy", strategy,
			"-seed", fmt.Sprint(i+1), "-schedules", fmt.Sprint(schedules)); err != nil {
			errs[i] = fmt.Errorf("search %s with %s: %w", story, strategy, err)
		}
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	took := func(f finding.Finding) int {
		if f.Broken == "" {
			return math.MaxInt
		}
		return f.Schedules
	}
	slices.SortFunc(found, func(a, b finding.Finding) int { return cmp.Compare(took(a), took(b)) })
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}
