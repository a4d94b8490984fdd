package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/ci/lab"
	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim"
)

// vocabulary is what the scenario files of this program may speak of.
func vocabulary() file.Vocabulary {
	vocabulary := objects.Vocabulary()
	vocabulary.Worlds = worlds
	return vocabulary
}

// worlds are those that scenarios run in.
var worlds = []scenarios.Capabilities{sim.Capabilities, lab.Capabilities}

func listCommand() *cobra.Command {
	var invariants, registered bool
	var filter file.Filter
	cmd := &cobra.Command{
		Use:   "list [FILE|DIR...]",
		Short: "List scenarios, invariants or controllers",
		Long:  "List shows the scenarios in the given files and directories, or those in " + report.Catalog + ".",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case invariants:
				return report.Guarantees(cmd.OutOrStdout())
			case registered:
				return controllers.List(cmd.OutOrStdout())
			case len(args) == 0:
				args = []string{report.Catalog}
			}
			loaded, err := file.LoadFiles(args, vocabulary(), nil)
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

func doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Report which worlds can run here, and why the others can't",
		Long:  "Doctor exits with 0 if every world can run here, and with 4 if one cannot.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := sim.New(); err != nil {
				return exit.Coded(exit.Internal, err)
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "sim\n  ok       %-22s %d cores\nlab\n", "simulator", runtime.NumCPU())
			if !lab.Doctor(cmd.Context(), out) {
				return exit.Ended(exit.Environment)
			}
			return nil
		},
	}
}
