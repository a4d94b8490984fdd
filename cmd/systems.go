package cmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
)

// Presets is the directory of the systems that come with fencelab.
const Presets = "systems"

// systemsCommand says what systems under test there are.
func systemsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "systems",
		Short: "Say what systems under test come with fencelab",
		Args:  verbOnly,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "list [FILE...]",
		Short: "List systems: what they were tried with, how they are built, and what is not covered",
		Long: `List shows the systems in the given files, or those in ` + Presets + `: what each was tried
with, which scripts build it and whether that was done here, what was adapted, and what
a run with it says nothing about.`,
		RunE: func(cmd *cobra.Command, files []string) error {
			return exit.BadInput(systems(cmd.OutOrStdout(), files, Vocabulary()))
		},
	})
	return cmd
}

// systems prints the systems in files, or the presets.
func systems(w io.Writer, files []string, vocabulary file.Vocabulary) error {
	if len(files) == 0 {
		files, _ = filepath.Glob(Presets + "/*/system.yaml") // the pattern is right
		if len(files) == 0 {
			return fmt.Errorf("no %s/*/system.yaml here: change to the directory with fencelab's source, or name system files", Presets)
		}
	}
	var loaded []*scenarios.System
	var failures []error
	for _, path := range files {
		system, err := file.LoadSystem(path, vocabulary)
		loaded, failures = append(loaded, system), append(failures, err)
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	for i, system := range loaded {
		if i > 0 {
			fmt.Fprintln(w)
		}
		describe(w, files[i], system)
	}
	return nil
}

// describe prints what one has to know of a system.
func describe(w io.Writer, file string, s *scenarios.System) {
	fmt.Fprintf(w, "%s: %s\n", s.Metadata.Name, s.Metadata.Description)
	say := func(what string, values ...string) {
		for _, value := range values {
			fmt.Fprintf(w, "  %-11s  %s\n", what, value)
			what = ""
		}
	}
	say("file", file)
	plays := s.Parts()
	if s.Spec.BMC != nil {
		plays = append(plays, "bmc")
	}
	say("plays", strings.Join(plays, ", "))
	if about := s.About; about != nil {
		say("tried with", about.Tried...)
		say("needs", about.Needs...)
	}
	here := "all that it runs"
	if missing := missingOf(s); len(missing) > 0 {
		here = "all but " + strings.Join(missing, ", ")
	}
	say("here", here)
	if about := s.About; about != nil {
		say("stories", about.Stories)
		say("adapted", about.Adapted...)
		say("not covered", about.Uncovered...)
	}
}

// missingOf returns the files of a system that don't exist, relative to the working directory.
func missingOf(s *scenarios.System) (missing []string) {
	here, err := os.Getwd()
	for _, file := range s.Files() {
		if _, absent := scenarios.Locate(file); absent == nil {
			continue
		}
		if near, far := filepath.Rel(here, file); err == nil && far == nil && filepath.IsAbs(file) {
			file = near
		}
		missing = append(missing, file)
	}
	slices.Sort(missing)
	return missing
}
