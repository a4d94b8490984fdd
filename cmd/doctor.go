package cmd

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/lab"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/sim"
)

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
