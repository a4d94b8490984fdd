package fakebmc

import "time"

// Clock is the time that a BMC lives on: wall time in the lab, virtual time in
// the simulator.
type Clock interface {
	// Now is the time since the clock started. It never decreases.
	Now() time.Duration
	// AfterFunc calls f once when d has passed, never from within AfterFunc
	// itself. stop reports whether it prevented the call.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}
