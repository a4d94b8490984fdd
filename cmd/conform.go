package cmd

import (
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/lab/conform"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/file"
)

// conformCommand plays the stories of conformance with a system, in labs of model hosts.
func conformCommand() *cobra.Command {
	var o conform.Options
	cmd := &cobra.Command{
		Use:   "conform SYSTEM",
		Short: "Tell the stories of conformance with a system under test",
		Long: `Conform tells the fixed set of stories in ` + conform.Stories + ` with the programs that the
file SYSTEM names, in labs of model hosts: what comes first, holds, several clients,
crashes, BMCs that lie, and partitions. It prints a table, and writes a report that can
be published: conformance.json and conformance.md, below --out.

Exit codes: 0 every story held, 1 a guarantee was violated, 2 a story has no verdict, 3 the
system has no part in any.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return conform.Run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], Vocabulary(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Dir, "out", "out/conformance", "directory for the report, and for what is needed to look into each run")
	flags.StringVar(&o.Release, "release", "", "what the report calls the release of the system (default: what its file says that it was tried with)")
	flags.StringArrayVar(&o.Images, "image", nil, scenarios.ImagesUsage)
	flags.IntVar(&o.Workers, "workers", runtime.NumCPU(), "how many labs at a time")
	flags.Var(&o.Filter, "filter", file.FilterUsage+"; the report says that it is a part")
	return cmd
}
