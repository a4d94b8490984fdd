package explore_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/explore"
)

func load(t testing.TB, file string) *scenarios.Plan {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	scenario, err := scenarios.Load(file, data, objects.Vocabulary())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := scenarios.Compile(scenario, 1)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// BenchmarkSchedules plays random schedules of a remediation on three hosts: the
// figure that docs/performance.md reports. Run it with GOMAXPROCS=1.
func BenchmarkSchedules(b *testing.B) {
	s, err := sim.New()
	if err != nil {
		b.Fatal(err)
	}
	plan := load(b, "../../scenarios/catalog/machine-remediation/three-hosts.yaml")
	var simulated time.Duration
	for i := 0; b.Loop(); i++ {
		outcome, _, err := explore.PlayRandom(context.Background(), s, plan, uint64(i), 0)
		if err != nil {
			b.Fatal(err)
		}
		simulated += outcome.Duration()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "schedules/s")
	b.ReportMetric(simulated.Seconds()/b.Elapsed().Seconds(), "simulated/wall")
}
