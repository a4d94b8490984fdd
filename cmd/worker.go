package cmd

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/sim/search/jobs"
	"github.com/fencelab/fencelab/sim/search/workers"
)

// workerCommand is the hidden command that is the other side of [workers.Of] and of [jobs.Crew].
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use:       workers.Argument,
		Short:     "Play schedules for a search",
		Hidden:    true,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{jobs.Argument},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Coded(exit.Internal, jobs.Serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), time.Now))
			}
			return exit.Coded(exit.Internal, workers.Serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout()))
		},
	}
}
