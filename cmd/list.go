package cmd

import (
	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/report"
)

func listCommand() *cobra.Command {
	var invariants, registered bool
	var filter file.Filter
	cmd := &cobra.Command{
		Use:   "list [FILE|DIR...]",
		Short: "List scenarios, invariants or controllers",
		Long:  "List shows the scenarios in the given files and directories, or those that come with fencelab.",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case invariants:
				return report.Guarantees(cmd.OutOrStdout())
			case registered:
				return controllers.List(cmd.OutOrStdout())
			case len(args) == 0:
				args = []string{catalogue()}
			}
			loaded, err := file.LoadFiles(args, Vocabulary(), nil)
			if err == nil {
				loaded, err = filter.Of(loaded)
			}
			if err != nil {
				return exit.BadInput(err)
			}
			return report.Scenarios(cmd.OutOrStdout(), loaded)
		},
	}
	cmd.Flags().Var(&filter, "filter", file.FilterUsage)
	cmd.Flags().BoolVar(&invariants, "invariants", false, "list the guarantees that can be judged")
	cmd.Flags().BoolVar(&registered, "controllers", false, "list the controllers, and the facts and actions of their overlays")
	cmd.MarkFlagsMutuallyExclusive("invariants", "controllers")
	return cmd
}
