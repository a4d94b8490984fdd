package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/page"
)

func showCommand() *cobra.Command {
	r := &runner{backend: "sim"}
	var output string
	cmd := &cobra.Command{
		Use:   "show DIR|PLAN|HISTORY",
		Short: "Draw a saved run as a page",
		Long: `Show draws a saved run as one HTML page that needs nothing beside it, and says
where it is. It is given the directory of a report, its history.jsonl, or a plan;
a plan without a history beside it is played in the simulator first.`,
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
				return invalid(err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), output)
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "the page's file (default: "+page.Name+" beside the run)")
	return cmd
}

// saved is the directory of the report that a user names, by itself or by one of
// its files.
func (r *runner) saved(cmd *cobra.Command, name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", invalid(fmt.Errorf("show a run: %w", err))
	}
	if info.IsDir() {
		return name, nil
	}
	dir := filepath.Dir(name)
	if _, err := os.Stat(filepath.Join(dir, "history.jsonl")); !errors.Is(err, fs.ErrNotExist) {
		return dir, nil
	}
	data, err := scenarios.ReadFile(name)
	if err != nil {
		return "", invalid(err)
	}
	plan, err := scenarios.LoadPlan(name, data, vocabulary())
	if err != nil {
		return "", invalid(err)
	}
	if err := r.start(cmd); err != nil {
		return "", err
	}
	outcome, err := r.play(cmd.Context(), plan)
	if err != nil {
		return "", err
	}
	r.console.Dir = filepath.Join("out", plan.Metadata.Name+"-"+plan.ID())
	if err := outcome.Save(r.console.Dir, r.console.Replay(r.backend, r.console.Dir)); err != nil {
		return "", &exit{exitInternal, err}
	}
	return r.console.Dir, nil
}
