package report

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
)

// Suite runs scenarios one after the other, each with a plan of its own that is compiled
// from the seed, and sums up. Play returns an exit code, or why the whole suite ends.
func (c *Console) Suite(ctx context.Context, all []*scenarios.Scenario, seed uint64, play func(*scenarios.Scenario, *scenarios.Plan) (int, error)) error {
	began := time.Now()
	ran, unexpected, worst := 0, 0, ExitHeld
	for _, scenario := range all {
		if worlds := scenario.Spec.Worlds; len(worlds) > 0 && !slices.Contains(worlds, c.World) {
			fmt.Fprintf(c.Talk, "skipped   %s: it can be told in %s only\n", scenario.Metadata.Name, strings.Join(worlds, " and "))
			continue
		}
		plan, err := scenarios.Compile(scenario, seed)
		if err != nil {
			return &Exit{ExitInternal, err}
		}
		code, err := play(scenario, plan)
		if err != nil {
			return err
		}
		ran++
		if code != ExitHeld {
			unexpected++
		}
		worst = Worse(worst, code)
		if ctx.Err() != nil {
			break
		}
	}
	summary := "as expected"
	if unexpected > 0 {
		summary = fmt.Sprintf("%d not as expected", unexpected)
	}
	fmt.Fprintf(c.Talk, "%s in %s: %s\n", Count(ran, "scenario"), time.Since(began).Round(time.Millisecond), summary)
	if ran == 0 && worst == ExitHeld {
		return &Exit{ExitUnknown, fmt.Errorf("none of the scenarios can be told in the %s", c.World)}
	}
	return Ended(worst)
}

// Lint prints a warning for each problem of scenario files that doesn't make them
// invalid, and how many there were.
func Lint(w io.Writer, paths []string, vocabulary scenarios.Vocabulary) error {
	loaded, err := scenarios.LoadFiles(paths, vocabulary)
	if err != nil {
		return err
	}
	warnings := 0
	err = scenarios.EachFile(paths, func(file string, data []byte) error {
		problems, err := scenarios.Lint(file, data, vocabulary)
		for _, p := range problems {
			fmt.Fprintf(w, "warning: %s\n", p)
			warnings++
		}
		return err
	})
	if err == nil {
		fmt.Fprintf(w, "%s valid, %s\n", Count(len(loaded), "scenario"), Count(warnings, "warning"))
	}
	return err
}

// OneOf names what there is to choose from: "a, b or c".
func OneOf(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// WorldNames are what the command line calls worlds.
func WorldNames(worlds []scenarios.Capabilities) (names []string) {
	for _, world := range worlds {
		names = append(names, world.World)
	}
	return names
}
