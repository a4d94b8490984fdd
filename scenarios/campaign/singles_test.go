package campaign

import (
	"slices"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
)

// TestWays: each fault comes with each of its extents, a broken watch with its own, and no delay
// goes beyond the latest.
func TestWays(t *testing.T) {
	ways := Ways{Delays: []time.Duration{1, 5, 9}, Extents: []time.Duration{5, 9}, Relist: 7}
	faults := []scenarios.StepFault{scenarios.FaultRelist, scenarios.FaultLate, scenarios.FaultCrashBefore}
	for latest, delays := range map[time.Duration][]time.Duration{0: {1, 5, 9}, 5: {1, 5}, 6: {1, 5}, 20: {1, 5, 9}} {
		of := func(fault scenarios.StepFault, d time.Duration) scenarios.Deviation {
			return scenarios.Deviation{Step: "s", Fault: fault, Delay: scenarios.Duration(d)}
		}
		want := []scenarios.Deviation{of(scenarios.FaultRelist, 7), of(scenarios.FaultLate, 5), of(scenarios.FaultLate, 9), of(scenarios.FaultCrashBefore, 0)}
		for _, d := range delays {
			want = append(want, of("", d))
		}
		if got := ways.Singles("s", faults, latest); !slices.Equal(got, want) {
			t.Errorf("at most %s late: %v, want %v", latest, got, want)
		}
	}
}
