package invariant

import (
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Shutdown records whether the operating system of a host has been asked to shut down since the
// last power edge, and no fault of the BMC has kept that from it.
type Shutdown struct{ asked bool }

// Observe takes in an event of the host.
func (s *Shutdown) Observe(e *history.Event) {
	switch e.Kind {
	case history.BMCCommand:
		s.asked = s.asked || AsksGuest(e)
	case history.BMCFault, history.PowerOff, history.PowerOn:
		s.asked = false
	}
}

// Asked reports whether it has been.
func (s *Shutdown) Asked() bool { return s.asked }

// Within is how long the host may take to go off by the settings of whoever has asked: patience,
// or 0 if it wasn't asked.
func (s *Shutdown) Within(patience time.Duration) time.Duration {
	if s.asked {
		return patience
	}
	return 0
}
