package cmd

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/scenarios/catalog"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// lintCommand checks scenario files.
func lintCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lint FILE|DIR...",
		Short: "Check the files of scenarios, systems and campaigns without running them",
		Args:  scenarioArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return exit.BadInput(lint(cmd.OutOrStdout(), args, Vocabulary()))
		},
	}
}

// maxWarnings is how many a run prints: what matters then is its verdicts.
const maxWarnings = 5

// warn prints what lint would say of the user's own files, before they are played.
func warn(w io.Writer, paths []string, vocabulary file.Vocabulary) error {
	own := slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return strings.HasPrefix(path, catalog.Prefix) })
	warnings, err := printWarnings(w, own, vocabulary, maxWarnings)
	if more := warnings - maxWarnings; more > 0 {
		fmt.Fprintf(w, "and %s more: fencelab lint prints them\n", phrase.Count(more, "warning"))
	}
	return err
}

// printWarnings prints a warning for each problem of scenario files that doesn't make them invalid,
// but no more than most, and returns how many there are.
func printWarnings(w io.Writer, paths []string, vocabulary file.Vocabulary, most int) (warnings int, err error) {
	err = file.EachFile(paths, func(path string, data []byte) error {
		problems, err := file.Lint(path, data, vocabulary)
		for _, p := range problems {
			if warnings++; warnings <= most {
				fmt.Fprintf(w, "warning: %s\n", p)
			}
		}
		return err
	})
	return warnings, err
}

// lint prints every warning about scenario files, and how many there were. Systems and campaigns
// have none.
func lint(w io.Writer, paths []string, vocabulary file.Vocabulary) error {
	found, stories, err := file.LintOthers(paths, vocabulary)
	loaded, failed := file.LoadFiles(stories, vocabulary, nil)
	if err = errors.Join(failed, err); err != nil {
		return err
	}
	warnings, err := printWarnings(w, stories, vocabulary, math.MaxInt)
	if err != nil {
		return err
	}
	var valid []string
	if len(found) == 0 || len(loaded) > 0 {
		valid = append(valid, phrase.Count(len(loaded), "scenario"))
	}
	for _, kind := range slices.Sorted(maps.Keys(found)) {
		valid = append(valid, phrase.Count(found[kind], strings.ToLower(kind)))
	}
	if last := len(valid) - 1; last > 0 {
		valid = []string{strings.Join(valid[:last], ", ") + " and " + valid[last]}
	}
	fmt.Fprintf(w, "%s valid, %s\n", valid[0], phrase.Count(warnings, "warning"))
	return nil
}
