package cmd

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim/corpus"
)

// corpusCommand plays the pairs of a known bug and the right controllers.
func corpusCommand() *cobra.Command {
	const known = Catalog + "/regression"
	table := ""
	cmd := &cobra.Command{
		Use:   "corpus [FILE|DIR...]",
		Short: "Reproduce known bugs, and show that the right controllers don't have them",
		Long: `Corpus plays pairs: a known bug of some controller, which must break a guarantee, and
the right controllers in the same story, which must keep them all. Without arguments
it plays those in ` + known + `. Mistakes in the source are built first, so it
must run in the source tree of fencelab.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{known}
			}
			to := &report.Console{Out: cmd.OutOrStdout(), Talk: cmd.ErrOrStderr(), World: "sim", Program: os.Args[:1]}
			return corpus.Run(cmd.Context(), to, args, Vocabulary(), table)
		},
	}
	cmd.Flags().StringVar(&table, "table", "", "write the track record to this file if all is as expected")
	return cmd
}
