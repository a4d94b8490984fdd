package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fencelab/fencelab/ci/mutants/finding"
)

// twofold searches for mistakes of which each takes two deviations, and writes a table of how long
// that took. One that a single deviation shows, or that is not found in time, is an error.
func twofold(ctx context.Context, dir, only string, limit time.Duration, table string) error {
	const of = "ci/mutants/twofold"
	all, err := Load(of)
	if err != nil {
		return err
	}
	p, err := build(ctx, judgeOf, dir, mistakes(all))
	if err != nil {
		return err
	}
	rows, wrong := twofoldHead, error(nil)
	for _, m := range all {
		if !isChosen(only, m.ID) {
			continue
		}
		hunt := func(f *finding.Finding, args ...string) error {
			err := p.ask(ctx, m.ID, f, append(args, "-catalog", of+"/stories", "-right", p.right, "-first", m.Story, "-schedules", "0")...)
			if err != nil {
				return fmt.Errorf("search with mutant %s: %w", m.ID, err)
			}
			return nil
		}
		var one, two finding.Finding
		if err := errors.Join(hunt(&one, "-strategy", "orders"), hunt(&two, "-strategy", "portfolio", "-for", limit.String())); err != nil {
			return err
		}
		row := fmt.Sprintf("| %s | `%s` | %d | %d | %s |", cell(m.Mistake), m.Story, one.Schedules, two.Schedules, two.Broken)
		fmt.Println(row, two.Took.Round(100*time.Millisecond), strings.Join(two.Deviations, ", "))
		if one.Broken != "" || two.Broken == "" {
			wrong = errors.Join(wrong, fmt.Errorf("mutant %s: with one deviation %q is broken (%v), with two %q", m.ID, one.Broken, one.Deviations, two.Broken))
			continue
		}
		if rows += row + "\n"; table != "" && only == "" {
			if err := os.WriteFile(table, []byte(rows), 0o644); err != nil { // after each: it takes long
				return err
			}
		}
	}
	return wrong
}

const twofoldHead = `# Mistakes that take two deviations

For those who change the searches. Each mistake was put into the source of a controller, and shows in
no schedule with one deviation: each order, fault and length of its story was played. A search then
took so many schedules until a guarantee was broken that the right controllers keep in the same
schedule, each within a minute. ` + "`go run ./ci/mutants -twofold 60s -table docs/measured/twofold.md`" + ` writes this page.

| mistake | story | single deviations that don't show it | schedules until found | breaks |
|---|---|---|---|---|
`
