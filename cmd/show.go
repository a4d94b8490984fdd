package cmd

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/page"
	"github.com/fencelab/fencelab/scenarios/report"
)

func showCommand() *cobra.Command {
	r := &runner{}
	r.World = "sim"
	var output string
	cmd := &cobra.Command{
		Use:   "show DIR|PLAN|HISTORY",
		Short: "Draw a saved run as a page",
		Long: `Show draws a saved run as one self-contained HTML page, and prints where it is. Its
argument is the directory of a report, its history.jsonl, or a plan; a plan without
a history beside it is played in the simulator first.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := r.saved(cmd, args[0])
			if err != nil {
				return err
			}
			if output == "" {
				output = filepath.Join(dir, page.Name)
			}
			if err := page.Write(os.DirFS(dir), output); err != nil {
				return exit.BadInput(err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), output)
			return nil
		},
	}
	cmd.Flags().StringVar(&output, "out", "", "the page's file (default: "+page.Name+" beside the run)")
	return cmd
}

// saved is the directory of the report that a user names, by itself or by one of
// its files. A plan alone is played first.
func (r *runner) saved(cmd *cobra.Command, name string) (string, error) {
	dir, err := page.Dir(name)
	if err != nil || dir != "" {
		return dir, exit.BadInput(err)
	}
	if err := r.start(cmd); err != nil {
		return "", err
	}
	plan, err := file.LoadPlanFile(name, Vocabulary())
	if err != nil {
		return "", exit.BadInput(err)
	}
	outcome, err := r.session.Play(cmd.Context(), plan, r.backend())
	if err != nil {
		return "", err
	}
	r.Dir = filepath.Join("out", outcome.Plan.Metadata.Name+"-"+outcome.Plan.ID())
	return r.Dir, exit.Coded(exit.Internal, report.Save(outcome, r.Dir, r.Replay(r.Dir)))
}
