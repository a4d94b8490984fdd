package search

import (
	"context"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim"
)

// Reproduce plays a plan of the simulator in another world, and says whether that breaks what the plan broke in the
// simulator. The error has an exit code.
func Reproduce(ctx context.Context, to *report.Console, plan *scenarios.Plan, backend play.Backend) error {
	simulator, err := sim.New()
	if err != nil {
		return exit.Coded(exit.Internal, err)
	}
	told, err := simulator.Deeds(ctx, plan)
	if err != nil {
		return exit.Coded(exit.Invalid, err)
	}
	if len(told.Untold) > 0 {
		return to.Untold(plan.Metadata.Name, told.Untold)
	}
	return to.Reproduce(ctx, told.Plan, told.Outcome.Broke(), backend)
}
