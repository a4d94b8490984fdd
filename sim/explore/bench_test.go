package explore_test

import (
	"context"
	"runtime/debug"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/sim/explore"
)

// BenchmarkSchedules plays schedules of a remediation on three hosts as a worker
// process does: the figures that docs/performance.md reports. Run it with
// GOMAXPROCS=1.
func BenchmarkSchedules(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(200 << 20))
	s, plan := simulator(b), load(b, "machine-remediation/three-hosts.yaml")
	report := func(b *testing.B, simulated time.Duration) {
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "schedules/s")
		b.ReportMetric(simulated.Seconds()/b.Elapsed().Seconds(), "simulated/wall")
	}
	b.Run("benign", func(b *testing.B) {
		var simulated time.Duration
		for b.Loop() {
			outcome, err := explore.Play(context.Background(), s, plan, nil)
			if err != nil {
				b.Fatal(err)
			}
			simulated += outcome.Played()
		}
		report(b, simulated)
	})
	for _, strategy := range []explore.Strategy{explore.Sweep, explore.Random} {
		b.Run(string(strategy), func(b *testing.B) {
			search, _, err := explore.NewSearch(context.Background(), s, new(scenarios.Scenario), plan, strategy, 1, 1000)
			if err != nil {
				b.Fatal(err)
			}
			var simulated time.Duration
			for i := 0; b.Loop(); i++ {
				outcome, _, err := search.Play(s, i%search.Total)
				if err != nil {
					b.Fatal(err)
				}
				simulated += outcome.Played()
			}
			report(b, simulated)
		})
	}
}
