package cmd

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/sim/search/workers"
)

func shrinkCommand() *cobra.Command {
	r := &runner{}
	r.World = "sim"
	cmd := &cobra.Command{
		Use:   "shrink PLAN",
		Short: "Reduce a saved plan that fails to what it needs",
		Long: `Shrink plays the plan.txt of a saved run again and again, each time with less: without
some of its deviations, with slighter ones, without steps, hosts, controllers and
settings of its story. It keeps what still fails in the same way: the same guarantee is
broken, by the same kinds of events of the same hosts. What is left is shown and saved
like any run, and each of its deviations is needed.`,
		Example: "  fencelab shrink out/cut-off-host-sim-409d1f136f9a/plan.txt",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.workers < 1 {
				return exit.BadInput(fmt.Errorf("--workers %d: at least one is needed", r.workers))
			}
			if err := r.start(cmd); err != nil {
				return err
			}
			plan, err := file.LoadPlanFile(args[0], Vocabulary())
			if err != nil {
				return exit.BadInput(err)
			}
			return r.shrink(cmd, plan)
		},
	}
	cmd.Flags().StringVar(&r.Dir, "out", "", "directory for the report of what is left (default: out)")
	cmd.Flags().IntVar(&r.workers, "workers", runtime.NumCPU(), "how many worker processes it uses")
	return cmd
}

// shrink reduces a plan and shows the run of what is left. The error has an exit code.
func (r *runner) shrink(cmd *cobra.Command, plan *scenarios.Plan) error {
	outcome, err := r.session.Play(cmd.Context(), plan, r.backend())
	if err != nil {
		return err
	}
	failed := campaign.ResultOf(outcome)
	if failed.Verdict == invariant.Held {
		return exit.BadInput(fmt.Errorf("shrink %s: it holds, so that nothing could be kept; give it the plan.txt of a run that failed", plan.Metadata.Name))
	}
	pool, err := workers.Of(cmd.Context(), r.workers)(&campaign.Search{Story: &campaign.Story{Plan: plan}, Total: r.workers})
	if err != nil {
		return exit.Coded(exit.Internal, err)
	}
	reduced, err := campaign.Reduce(pool, plan, failed, func(spec map[string]any) *scenarios.Plan { return toldAgain(plan, spec) })
	if closed := pool.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return exit.Coded(exit.Internal, err)
	}
	was, is := &plan.Spec, &reduced.Spec
	r.Print("%d of %d deviations, %d of %d steps, %d of %d hosts and %d of %d controllers are left, after %d runs\n",
		len(reduced.Deviations), len(plan.Deviations), len(is.Steps), len(was.Steps), len(is.Topology.Hosts), len(was.Topology.Hosts),
		len(is.Controllers), len(was.Controllers), reduced.Shrunk.Tried)
	code, err := r.session.Single(cmd.Context(), reduced, r.backend())
	if err != nil {
		return err
	}
	return exit.Ended(code)
}

// toldAgain is a plan with another spec, or nil if that is no scenario.
func toldAgain(plan *scenarios.Plan, spec map[string]any) *scenarios.Plan {
	data, err := json.Marshal(map[string]any{
		"apiVersion": scenarios.APIVersion, "kind": scenarios.KindScenario, "spec": spec,
		"metadata": map[string]any{"name": "reduced", "description": "What is left of a scenario."},
	})
	if err != nil {
		return nil
	}
	scenario, err := file.Load("reduced", data, Vocabulary())
	if err != nil {
		return nil
	}
	told, err := scenarios.Compile(scenario, plan.Seed)
	if err != nil {
		return nil
	}
	told.Metadata = plan.Metadata
	return told
}
