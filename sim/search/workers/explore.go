package workers

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search"
)

// Explore searches the schedules of a scenario in worker processes, at most n of them,
// reports what they found and returns the exit code. A worker is this very program, which
// has to have [Command]. When the context ends, what was found so far counts.
func Explore(ctx context.Context, session *campaign.Session, simulator *sim.Simulator, scenario *scenarios.Scenario, plan *scenarios.Plan,
	o search.Options, n int) (code int, err error) {
	internal := func(err error) (int, error) { return 0, &exit.Error{Code: exit.Internal, Err: err} }
	show := func(ctx context.Context, plan *scenarios.Plan) (int, error) {
		return session.Single(ctx, plan, simulator.Evident())
	}
	s, benign, err := search.New(ctx, simulator, scenario, plan, o)
	if err != nil {
		return internal(err)
	}
	if benign.Meets() != "" || plan.Spec.Expect.Violated != "" || benign.Err != nil {
		// Nothing to search for: the benign schedule breaks it already. It is
		// played again, for its evidence.
		return show(ctx, plan)
	}
	self, err := os.Executable()
	if err != nil {
		return internal(fmt.Errorf("find the own executable: %w", err))
	}
	began := time.Now()
	tally, err := session.Search(s, Start(ctx, min(n, max(1, s.Total)), s.Story, self, Command().Name()))
	if err != nil {
		return 0, err
	}
	session.To.Say("  %.0f schedules/s\n", float64(tally.Tried)/time.Since(began).Seconds())
	code = play.CodeOfVerdict(tally.Verdict(s.Total))
	// What an interrupted search has found is still shown.
	ctx = context.WithoutCancel(ctx)
	err = session.Failures(s, tally, func(plan *scenarios.Plan) error {
		shown, err := show(ctx, plan)
		code = exit.Worse(code, shown)
		return err
	})
	return code, err
}
