package corpus

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim"
)

// Command plays the pairs among stories that are told in the words of a vocabulary.
func Command(vocabulary func() file.Vocabulary) *cobra.Command {
	const known = report.Catalog + "/regression"
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
			simulator, err := sim.New()
			if err != nil {
				return exit.Coded(exit.Internal, err)
			}
			to := &report.Console{Out: cmd.OutOrStdout(), Talk: cmd.ErrOrStderr(), World: "sim", Program: os.Args[0]}
			session := &campaign.Session{World: to.World, To: to, Now: time.Now, Another: simulator.Evident}
			return run(cmd.Context(), session, to, simulator, args, vocabulary(), table)
		},
	}
	cmd.Flags().StringVar(&table, "table", "", "write the track record to this file if all is as expected")
	return cmd
}
