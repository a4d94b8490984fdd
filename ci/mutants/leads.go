package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/fencelab/fencelab/ci/mutants/finding"
)

// leadAll looks for leads of the mutants that no guarantee objects to. One of which it is known why
// nothing finds it has to be asked for.
func leadAll(ctx context.Context, all []Mutant, dir, only string, limit time.Duration) error {
	chosen, err := survivors(all, only)
	if err != nil {
		return err
	}
	chosen = slices.DeleteFunc(chosen, func(m Mutant) bool { return only == "" && m.Equivalent != "" })
	p, err := build(ctx, judgeOf, dir, mistakes(chosen))
	if err != nil {
		return err
	}
	found, errs := make([]*finding.Led, len(chosen)), make([]error, len(chosen))
	inParallel(ctx, len(chosen), func(i int) {
		if found[i], errs[i] = p.lead(ctx, chosen[i], limit); errs[i] == nil {
			fmt.Println(leadRow(chosen[i], found[i]))
		}
	})
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return err
	}
	shown, broken := 0, 0
	for _, f := range found {
		if f.Twin != nil || f.Retold != nil {
			shown++
		} else if f.Broken != "" {
			broken++
		}
	}
	fmt.Printf("%d mistakes that no guarantee has found: %d show as a lead within %s, and %d others break a story by now\n", len(chosen), shown, limit, broken)
	return nil
}

func (p programs) lead(ctx context.Context, m Mutant, limit time.Duration) (*finding.Led, error) {
	f := new(finding.Led)
	controller := path.Base(path.Dir(m.File))
	if err := p.ask(ctx, m.ID, f, "-right", p.right, "-first", m.Story, "-leads", controller, "-limit", limit.String()); err != nil {
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
