package search_test

import (
	"context"
	"path"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/sim/search"
)

// designs are the stories of which the benign schedule is measured: one of each
// design, all with the same text since commit 2fb350a.
var designs = []string{
	"machine-remediation/three-hosts.yaml", "reboot-annotation/plain-power-cycle.yaml", "deletion-hooks/both-points.yaml",
	"agents/cut-off-host-resets-itself.yaml", "health-check/flapping-node.yaml",
}

// BenchmarkSchedules plays schedules of a remediation on three hosts as a worker
// process does: the figures that docs/performance.md reports. Run it with
// GOMAXPROCS=1.
func BenchmarkSchedules(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(100 << 20))
	s, plan := simulator(b), load(b, "machine-remediation/three-hosts.yaml")
	report := func(b *testing.B, simulated time.Duration) {
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "schedules/s")
		b.ReportMetric(simulated.Seconds()/b.Elapsed().Seconds(), "simulated/wall")
	}
	for _, file := range designs {
		b.Run("benign/"+strings.TrimSuffix(path.Base(file), ".yaml"), func(b *testing.B) {
			var simulated time.Duration
			player := search.NewPlayer(s, &campaign.Story{Plan: load(b, file)})
			for b.Loop() {
				outcome, _, err := player.Play(campaign.Schedule{})
				if err != nil {
					b.Fatal(err)
				}
				simulated += outcome.Played()
			}
			report(b, simulated)
		})
	}
	for _, strategy := range []string{"sweep", "random"} {
		b.Run(strategy, func(b *testing.B) {
			tried, _, err := search.New(context.Background(), s, new(scenarios.Scenario), plan, search.Options{Strategy: strategy, Seed: 1, Schedules: 1000})
			if err != nil {
				b.Fatal(err)
			}
			player := search.NewPlayer(s, tried.Story)
			var simulated time.Duration
			for i := 0; b.Loop(); i++ {
				schedule, _ := tried.Next(i % tried.Total)
				outcome, _, err := player.Play(schedule)
				if err != nil {
					b.Fatal(err)
				}
				simulated += outcome.Played()
			}
			report(b, simulated)
		})
	}
}
