package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
)

// combined is a generated story that a mutant breaks.
type combined struct {
	Story  string `json:"story"`
	Reason string `json:"reason"`
}

// combineAll prints a table: which mutants a sample of the generated stories finds.
func combineAll(ctx context.Context, all []Mutant, only, dir string, sample int) error {
	chosen, err := survivors(all, only)
	if err != nil {
		return err
	}
	p, err := build(ctx, "./ci/combine", dir, mistakes(chosen))
	if err != nil {
		return err
	}
	fmt.Print("| mutant | stories that break | the first | what it breaks |\n|---|---|---|---|\n")
	inParallel(ctx, len(chosen), func(i int) { fmt.Println(p.combine(ctx, chosen[i], sample)) })
	return ctx.Err()
}

// survivors are the mutants that are chosen; if none are, those that nothing finds by the page.
func survivors(all []Mutant, only string) ([]Mutant, error) {
	page, err := os.ReadFile("docs/measured/mutants.md")
	return slices.DeleteFunc(all, func(m Mutant) bool {
		return !isChosen(only, m.ID) || only == "" && !strings.Contains(string(page), "| "+cell(m.Mistake)+" | nothing |")
	}), err
}

func (p programs) combine(ctx context.Context, m Mutant, sample int) (row string) {
	var broken []combined
	switch err := p.ask(ctx, m.ID, &broken, "-violated", "-sample", fmt.Sprint(sample)); {
	case err != nil:
		return fmt.Sprintf("| %s | could not be judged: %v | | |", m.ID, err)
	case len(broken) == 0:
		return fmt.Sprintf("| %s | none | | |", m.ID)
	}
	return fmt.Sprintf("| %s | %d | `%s` | %s |", m.ID, len(broken), broken[0].Story, cell(broken[0].Reason))
}
