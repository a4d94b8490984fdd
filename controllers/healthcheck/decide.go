// Package healthcheck acts on Cluster API's MachineHealthChecks: it gives the
// external-remediation annotation, which starts seeds 002 and 004, to the
// Machines that are unhealthy for too long, and to no more of them at once than
// the MachineHealthCheck allows.
//
// How long a Machine has been without a Node is kept in its own condition
// HealthCheckSucceeded, because a Node that is gone keeps no time. It takes the
// place of Machine.status.lastUpdated in seed 002's assumption: a Node that
// was deleted for remediation has its whole start-up time to return.
package healthcheck

import "fmt"

// Verdict is what is on record about a Machine: its condition
// HealthCheckSucceeded.
type Verdict string

// A Machine that nothing was recorded of is Healthy. Waiting (Unknown) is a
// Machine whose Node has to start, and since when. Unhealthy (False) is one in
// remediation.
const (
	Healthy   Verdict = "Healthy"
	Waiting   Verdict = "Waiting"
	Unhealthy Verdict = "Unhealthy"
)

// UnmarshalText accepts the three names only.
func (v *Verdict) UnmarshalText(text []byte) error {
	switch verdict := Verdict(text); verdict {
	case Healthy, Waiting, Unhealthy:
		*v = verdict
		return nil
	}
	return fmt.Errorf("%q is none of %s, %s, %s", text, Healthy, Waiting, Unhealthy)
}

// State is every fact that the decision about one Machine rests on.
type State struct {
	// Remediating: the Machine is marked, or its host is still asked to reboot
	// because it was.
	Remediating bool `json:"remediating"`
	// Missing: the Machine has no Node.
	Missing bool `json:"missing"`
	// Sick: it or its Node has an unhealthy condition, for however long.
	Sick bool `json:"sick"`
	// Expired: it has been Missing or Sick for longer than it may.
	Expired bool `json:"expired"`
	// Allowed: as many Machines are unhealthy as the MachineHealthCheck acts on,
	// this one and those in remediation included.
	Allowed bool `json:"allowed"`
	// Calm: it is long enough ago that more were unhealthy than that.
	Calm bool `json:"calm"`
	// Guarded: without its host, the guarded Pods may be too few.
	Guarded bool `json:"guarded"`
	// Shared: its Node may be another host's as well, so that a mark would wait for a user, and
	// count as unhealthy after the silence is over.
	Shared bool `json:"shared"`
	// Recorded is the verdict on record.
	Recorded Verdict `json:"recorded"`
}

// Action is the one thing to do next.
type Action string

// The actions.
const (
	Nothing Action = "Nothing"
	// RecordHealthy, RecordWaiting and RecordUnhealthy write the condition.
	RecordHealthy   Action = "RecordHealthy"
	RecordWaiting   Action = "RecordWaiting"
	RecordUnhealthy Action = "RecordUnhealthy"
	// Mark adds the external-remediation annotation.
	Mark Action = "Mark"
)

// Actions is every action.
var Actions = []Action{Nothing, RecordHealthy, RecordWaiting, RecordUnhealthy, Mark}

// Decide says what to do next about a Machine.
func Decide(s State) Action {
	switch {
	case s.Remediating && s.Recorded != Unhealthy:
		return RecordUnhealthy
	case s.Remediating:
		return Nothing
	case !s.Missing && !s.Sick && s.Recorded != Healthy:
		return RecordHealthy
	case !s.Missing && !s.Sick:
		return Nothing
	case s.Recorded == Unhealthy, s.Missing && s.Recorded == Healthy:
		// Its remediation is over, or its Node has just vanished: from now on
		// it has the start-up time.
		return RecordWaiting
	case s.Expired && s.Allowed && s.Calm && !s.Guarded && !s.Shared:
		return Mark
	}
	return Nothing
}
