package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/fencelab/fencelab/scenarios/campaign"
)

// divided are the mistakes whose failures are divided, each in a story whose benign schedule
// doesn't show it, beside the contests.
var divided = []struct{ mutant, story string }{
	{"deletion-conflict-is-success", "drain-has-a-time-out"},
	{"deletion-host-error-is-absence", "drain-has-a-time-out"},
	{"deletion-node-error-is-absence", "drain-has-a-time-out"},
	{"deletion-pods-error-is-absence", "drain-has-a-time-out"},
	{"healthcheck-host-by-machine-name", "boot-of-a-host-with-another-name"},
	{"healthcheck-conflict-is-success", "cut-off-host"},
	{"reboot-command-is-proof", "cut-off-host"},
	{"reboot-status-says-off-when-unreachable", "cut-off-host"},
	{"remediation-conflict-is-success", "cut-off-host"},
}

// judgement says of a fact whether the patch of the mistake bears it out.
type judgement struct {
	Mutant string `json:"mutant"`
	// Fact has no counts.
	Fact string `json:"fact"`
	// Is says that it is right, wider than right, or wrong, and why.
	Is string `json:"is"`
}

// judgements is the file of them.
const judgements = "ci/mutants/divides/judged.yaml"

// divideAll prints a table of what divides the failures of each of those mistakes, by its most
// frequent violation, from the schedules that hold, with what was said of that.
func divideAll(ctx context.Context, all []Mutant, dir, only string, schedules int, table string) error {
	data, err := os.ReadFile(judgements)
	if err != nil {
		return err
	}
	var judged []judgement
	if err := yaml.UnmarshalStrict(data, &judged); err != nil {
		return fmt.Errorf("read %s: %w", judgements, err)
	}
	p, err := build(ctx, judgeOf, dir, mistakes(all))
	if err != nil {
		return err
	}
	page := fmt.Sprintf(dividesHead, schedules, schedules)
	var failed error
	for _, c := range slices.Concat(contests, divided) {
		at := slices.IndexFunc(all, func(m Mutant) bool { return m.ID == c.mutant })
		if !isChosen(only, c.mutant) {
			continue
		}
		if at < 0 {
			return fmt.Errorf("divide failures: there is no mutant %s", c.mutant)
		}
		var found []campaign.Failure
		if err := p.ask(ctx, c.mutant, &found, "-divide", "-strategy", "portfolio", "-first", c.story, "-schedules", fmt.Sprint(schedules)); err != nil {
			failed = errors.Join(failed, fmt.Errorf("search %s with mutant %s: %w", c.story, c.mutant, err))
			continue
		}
		row := fmt.Sprintf("| %s | `%s` | 0 | | |", cell(all[at].Mistake), c.story)
		if i := slices.IndexFunc(found, func(f campaign.Failure) bool { return f.Invariant != "" }); i >= 0 {
			f, said := found[i], "**not judged**"
			fact := factOf(f.Divides)
			for _, j := range judged {
				if j.Mutant == c.mutant && j.Fact == fact {
					said = j.Is
				}
			}
			row = fmt.Sprintf("| %s | `%s` | %d: %s | %s | %s |", cell(all[at].Mistake), c.story, f.Count, cell(f.Signature), cell(f.Divides), cell(said))
		}
		fmt.Println(c.mutant, row)
		if page += row + "\n"; table != "" && only == "" {
			if err := os.WriteFile(table, []byte(page), 0o644); err != nil { // after each: it takes long
				return err
			}
		}
	}
	return failed
}

// factOf leaves out the counts of what divides.
func factOf(divides string) string {
	if _, fact, ok := strings.Cut(divides, " in which "); ok {
		if i := strings.LastIndex(fact, ", and held in "); i >= 0 {
			return fact[:i]
		}
	}
	return "nothing"
}

const dividesHead = `# What divides the failures of mistakes

For those who change what searches say of their failures. Each line is a mistake that was put into the source of a controller, a story
whose default schedule doesn't show it, the violation that most of %d schedules of a search had,
and what divides these from the schedules that held. Whether that is right was judged by reading
the patch: *wider* says that it holds of more than the mistake does, *none* that nothing was found.
` + "`go run ./ci/mutants -divide %d -table docs/measured/divides.md`" + ` writes this page; the judgements are in ci/mutants/divides/judged.yaml.

| mistake | story | fails in | what divides | judged |
|---|---|---|---|---|
`
