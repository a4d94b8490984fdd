package report

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// Catalog is where the stories are that come with fencelab.
const Catalog = "scenarios/catalog"

// ScenarioArgs wants at least one scenario file or directory.
func ScenarioArgs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("name the scenario files or directories, such as %s", Catalog)
	}
	return nil
}

// LintCommand checks scenario files in the words of a vocabulary.
func LintCommand(vocabulary func() file.Vocabulary) *cobra.Command {
	return &cobra.Command{
		Use:   "lint FILE|DIR...",
		Short: "Check scenario files without running them",
		Args:  ScenarioArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return exit.BadInput(lint(cmd.OutOrStdout(), args, vocabulary()))
		},
	}
}

// lint prints a warning for each problem of scenario files that doesn't make them
// invalid, and how many there were.
func lint(w io.Writer, paths []string, vocabulary file.Vocabulary) error {
	loaded, err := file.LoadFiles(paths, vocabulary, nil)
	if err != nil {
		return err
	}
	warnings := 0
	err = file.EachFile(paths, func(path string, data []byte) error {
		problems, err := file.Lint(path, data, vocabulary)
		for _, p := range problems {
			fmt.Fprintf(w, "warning: %s\n", p)
			warnings++
		}
		return err
	})
	if err == nil {
		fmt.Fprintf(w, "%s valid, %s\n", phrase.Count(len(loaded), "scenario"), phrase.Count(warnings, "warning"))
	}
	return err
}

// SchemaCommand prints the schema of a vocabulary.
func SchemaCommand(vocabulary func() file.Vocabulary) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of scenario files",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			schema, err := file.Schema(vocabulary())
			if err != nil {
				return exit.Coded(exit.Internal, err)
			}
			_, err = cmd.OutOrStdout().Write(schema)
			return err
		},
	}
}
