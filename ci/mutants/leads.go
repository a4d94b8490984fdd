package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/ci/mutants/finding"
)

// leadAll looks for leads of the mutants that no guarantee objects to, and writes the table.
func leadAll(ctx context.Context, all []Mutant, dir, right, only string, limit time.Duration, table string) error {
	chosen, err := survivors(all, only)
	if err != nil {
		return err
	}
	chosen = slices.DeleteFunc(chosen, func(m Mutant) bool { return only == "" && m.Equivalent != "" })
	found, errs := make([]*finding.Led, len(chosen)), make([]error, len(chosen))
	inParallel(ctx, len(chosen), func(i int) {
		if found[i], errs[i] = lead(ctx, chosen[i], dir, right, limit); errs[i] == nil {
			fmt.Println(leadRow(chosen[i], found[i]))
		}
	})
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return err
	}
	page := leadPage(chosen, found, limit)
	fmt.Print(string(page[:bytes.Index(page, []byte("\n| "))]))
	if table == "" {
		return nil
	}
	return os.WriteFile(table, page, 0o644)
}

func lead(ctx context.Context, m Mutant, dir, right string, limit time.Duration) (*finding.Led, error) {
	binary, err := build(ctx, m, dir)
	if err != nil {
		return nil, err
	}
	defer os.Remove(binary)
	f := new(finding.Led)
	controller := path.Base(path.Dir(m.File))
	if err := finding.Ask(exec.CommandContext(ctx, binary, "-right", right, "-first", m.Story, "-leads", controller, "-limit", limit.String()), f); err != nil {
		return nil, fmt.Errorf("look for leads of mutant %s: %w", m.ID, err)
	}
	return f, nil
}

// leadRow is the line of the table about one mutant.
func leadRow(m Mutant, f *finding.Led) string {
	show := func(l *finding.Lead, who string) string {
		if l == nil {
			return "nothing"
		}
		where := "`" + l.Scenario + "`"
		if len(l.Deviations) > 0 {
			where += " in a random schedule"
		}
		return fmt.Sprintf("%s (%s; %s: %s), %s", l.Name, l.Mine, who, l.Reference, where)
	}
	broken := ""
	if f.Broken != "" {
		broken = "`" + f.Broken + "`"
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |", m.ID, cell(m.Mistake), cell(show(f.Twin, "the right ones")), cell(show(f.Retold, "told again")), broken)
}

// leadPage is the document about leads.
func leadPage(chosen []Mutant, found []*finding.Led, limit time.Duration) []byte {
	shown, broken := 0, 0
	var rows strings.Builder
	for i, f := range found {
		if f.Twin != nil || f.Retold != nil {
			shown++
		} else if f.Broken != "" {
			broken++
		}
		rows.WriteString(leadRow(chosen[i], f) + "\n")
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Leads of mistakes that no guarantee finds

For those who read [leads](../reports.md#leads). Each line is a mistake in the source of a controller that [nothing
finds](mutants.md), and the strangest lead of the first schedule that gave one within %s: beside the right controllers in
the same schedule, and beside its own story told again. Of %d mistakes %d show as a lead, and %d others break a story by now.
Where there is nothing, no schedule that was played reaches the mistake, or it makes too small a difference.
`+"`go run ./ci/mutants -leads -limit %s -table docs/measured/leads.md`"+` writes this page.

| mutant | mistake | beside the right ones | told again | breaks |
|---|---|---|---|---|
%s`, limit, len(chosen), shown, broken, limit, rows.String())
	return b.Bytes()
}
