package cmd

import (
	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/sim/search/workers"
)

// workerCommand is the hidden command that is the other side of [workers.Of].
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    workers.Argument,
		Short:  "Play schedules for a search",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return exit.Coded(exit.Internal, workers.Serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout()))
		},
	}
}
