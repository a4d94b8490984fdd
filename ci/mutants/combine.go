package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/ci/mutants/finding"
	"github.com/fencelab/fencelab/sim/corpus/source"
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
	fmt.Print("| mutant | stories that break | the first | what it breaks |\n|---|---|---|---|\n")
	inParallel(ctx, len(chosen), func(i int) { fmt.Println(combine(ctx, chosen[i], dir, sample)) })
	return ctx.Err()
}

// survivors are the mutants that are chosen; if none are, those that nothing finds by the page.
func survivors(all []Mutant, only string) ([]Mutant, error) {
	page, err := os.ReadFile("docs/measured/mutants.md")
	return slices.DeleteFunc(all, func(m Mutant) bool {
		return !isChosen(only, m.ID) || only == "" && !strings.Contains(string(page), "| "+cell(m.Mistake)+" | nothing |")
	}), err
}

func combine(ctx context.Context, m Mutant, dir string, sample int) (row string) {
	binary, err := source.Build(ctx, ".", "./ci/combine", dir, m.ID, m.Change)
	if err != nil {
		return fmt.Sprintf("| %s | could not be built: %v | | |", m.ID, err)
	}
	defer os.Remove(binary)
	var broken []combined
	switch err := finding.Ask(exec.CommandContext(ctx, binary, "-violated", "-sample", fmt.Sprint(sample)), &broken); {
	case err != nil:
		return fmt.Sprintf("| %s | could not be judged: %v | | |", m.ID, err)
	case len(broken) == 0:
		return fmt.Sprintf("| %s | none | | |", m.ID)
	}
	return fmt.Sprintf("| %s | %d | `%s` | %s |", m.ID, len(broken), broken[0].Story, cell(broken[0].Reason))
}
