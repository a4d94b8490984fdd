package cmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim"
)

func replayCommand() *cobra.Command {
	r := &runner{}
	var until int
	var test string
	cmd := &cobra.Command{
		Use:   "replay PLAN",
		Short: "Replay a saved plan",
		Long: `Replay plays the plan.txt of a saved run. In the simulator every event must come
out as before: if the plan has the digest of its history, that is checked, and the
first event that differs from the history.jsonl beside it is shown. With --until you can
look at the moment of an event.

In the lab the plan's deviations are made at the gates of the controllers: in effects,
reads, and what reaches caches. The answer is reproduced (exit code 1) if a guarantee
that is broken in the simulator is broken here, not reproduced (0), or diverged (2) at
a step that never came, or that passes no gate.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: completePlans,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := report.CheckUntil(until, r.World); err != nil {
				return exit.BadInput(err)
			}
			if err := r.unusedParts(cmd); err != nil {
				return exit.BadInput(err)
			}
			if err := r.start(cmd); err != nil {
				return err
			}
			plan, err := file.LoadPlanFile(args[0], Vocabulary())
			if err != nil {
				return exit.BadInput(err)
			}
			if test != "" && r.Real {
				return exit.BadInput(errors.New("--test: a test plays a plan in the simulator; leave out --backend"))
			}
			if r.Real && plan.NamesSteps() {
				return r.reproduce(cmd.Context(), plan)
			}
			outcome, err := r.session.Play(cmd.Context(), plan, r.backend())
			if err != nil {
				return err
			}
			known := Vocabulary().Controllers
			r.Changes = slices.ContainsFunc(plan.Spec.Controllers, func(c scenarios.Controller) bool { return known[c.Name].Brought })
			r.Replayed(outcome)
			if test != "" {
				if err := report.Guards(outcome, filepath.Join(filepath.Dir(args[0]), "history.jsonl")); err != nil {
					return exit.BadInput(fmt.Errorf("write the test %s: %w", test, err))
				}
				name, err := report.WriteTest(outcome, test, moduleExpression())
				if err != nil {
					return exit.BadInput(err)
				}
				fmt.Fprintf(r.Out, "test: go test -run '^%s$' %s\n", name, relative(filepath.Dir(test)))
			}
			if err := r.session.Beside(cmd.Context(), outcome); err != nil {
				return err
			}
			return r.Again(outcome, args[0], until)
		},
	}
	r.flags(cmd, "replay", "directory for the report (default: none)")
	cmd.Flags().IntVar(&until, "until", 0, "show what was true and what was believed just after the event with this number")
	cmd.Flags().StringVar(&test, "test", "", "write a Go test that plays the plan, to this file of the module, which ends in _test.go")
	return cmd
}

// reproduce plays a plan of the simulator in the lab, and says whether that breaks what the plan
// broke in the simulator. The error has an exit code.
func (r *runner) reproduce(ctx context.Context, plan *scenarios.Plan) error {
	simulator, err := sim.New()
	if err != nil {
		return exit.Coded(exit.Internal, err)
	}
	told, err := simulator.Deeds(ctx, plan)
	if err != nil {
		return exit.Coded(exit.Invalid, err)
	}
	if len(told.Untold) > 0 {
		return r.Untold(plan.Metadata.Name, told.Untold)
	}
	outcome, err := r.session.Play(ctx, told.Plan, r.backend())
	if err != nil {
		return err
	}
	return r.Reproduced(outcome, told.Outcome.Broke())
}
