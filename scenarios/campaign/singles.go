package campaign

import (
	"time"

	"github.com/fencelab/fencelab/scenarios"
)

// Ways are how single steps are made to deviate in a world.
type Ways struct {
	// Delays are how late a step comes, in ascending order.
	Delays []time.Duration
	// Extents are how late or how old a fault makes something, if it has an extent.
	Extents []time.Duration
	// Relist is for how long a watch is broken before its cache lists anew. A cache that lacks only
	// one change would lose nothing by listing at once.
	Relist time.Duration
}

// Singles returns every single deviation of a step that can have some faults: each fault with each
// of its extents, then each delay. Latest is how late it may come; 0 is without limit.
func (w Ways) Singles(step string, faults []scenarios.StepFault, latest time.Duration) (all []scenarios.Deviation) {
	for _, fault := range faults {
		extents := []time.Duration{0}
		switch {
		case fault == scenarios.FaultRelist:
			extents[0] = w.Relist
		case fault.HasExtent():
			extents = w.Extents
		}
		for _, extent := range extents {
			all = append(all, scenarios.Deviation{Step: step, Fault: fault, Delay: scenarios.Duration(extent)})
		}
	}
	for _, delay := range w.Delays {
		if latest > 0 && delay > latest {
			break
		}
		all = append(all, scenarios.Deviation{Step: step, Delay: scenarios.Duration(delay)})
	}
	return all
}
