package cmd

import (
	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
)

// schemaCommand prints the schema of scenario files.
func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of scenario files",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			schema, err := file.Schema(Vocabulary())
			if err != nil {
				return exit.Coded(exit.Internal, err)
			}
			_, err = cmd.OutOrStdout().Write(schema)
			return err
		},
	}
}
