package cmd

import (
	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
)

// schemaCommand prints the schema of the files that people write.
func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "schema [scenario|campaign]",
		Short:     "Print the JSON Schema of scenario files, or of campaigns",
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"scenario", "campaign"},
		RunE: func(cmd *cobra.Command, args []string) error {
			of := file.Schema
			if len(args) == 1 && args[0] == "campaign" {
				of = file.CampaignSchema
			}
			schema, err := of(Vocabulary())
			if err != nil {
				return exit.Coded(exit.Internal, err)
			}
			_, err = cmd.OutOrStdout().Write(schema)
			return err
		},
	}
}
