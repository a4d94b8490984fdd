package search

import (
	"context"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim"
)

// Explore searches the schedules of a scenario, reports its findings and returns the exit code.
// Workers makes the pool that plays them. When the context ends, the findings so far count.
func Explore(ctx context.Context, session *campaign.Session, simulator *sim.Simulator, scenario *scenarios.Scenario, plan *scenarios.Plan,
	o Options, workers func(*campaign.Search) (campaign.Pool, error)) (code int, err error) {
	show := func(ctx context.Context, plan *scenarios.Plan) (int, error) {
		return session.Single(ctx, plan, simulator.Evident())
	}
	s, benign, err := New(ctx, simulator, scenario, plan, o)
	if err != nil {
		return 0, exit.Coded(exit.Internal, err)
	}
	if benign.Meets() != "" || plan.Spec.Expect.Violated != "" || benign.Err != nil {
		// Nothing to search for: the benign schedule breaks it already. It is
		// played again, for its evidence.
		if code, err = show(ctx, plan); err == nil && benign.Meets() != "" {
			session.To.Say("no other schedule was tried: the default one does not come out as expected\n")
		}
		return code, err
	}
	pool, err := workers(s)
	if err != nil {
		return 0, exit.Coded(exit.Internal, err)
	}
	began := session.Time()
	tally, err := session.Search(s, pool)
	if err != nil {
		return 0, err
	}
	if took := session.Time().Sub(began); took > 0 {
		session.To.Say("  %.0f schedules/s\n", float64(tally.Tried)/took.Seconds())
	}
	code = play.CodeOfVerdict(tally.Verdict(s.Total))
	// The findings of an interrupted search are still shown.
	ctx = context.WithoutCancel(ctx)
	err = session.Failures(s, tally, func(plan *scenarios.Plan) error {
		shown, err := show(ctx, plan)
		code = exit.Worse(code, shown)
		return err
	})
	return code, err
}
