package explore

import (
	"fmt"
	"regexp"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// Tally counts outcomes and keeps the first of each kind that was not expected.
// Merging tallies gives the same in any order.
type Tally struct {
	// Tried is how many schedules were played.
	Tried int `json:"tried"`
	// Held, Violated and Unknown are how many of them came out how.
	Held     int `json:"held"`
	Violated int `json:"violated"`
	Unknown  int `json:"unknown"`
	// Idle is in how many of them a fault, a crash or a deviation had no effect.
	Idle int `json:"idle"`
	// Simulated is the virtual time of all schedules.
	Simulated time.Duration `json:"simulated"`
	// Failed has one failure for each signature.
	Failed []Failure `json:"failed,omitempty"`
}

// Failure is schedules that broke a guarantee in the same way, or whose verdict is
// unknown for the same reason.
type Failure struct {
	// Signature is what they have in common.
	Signature string `json:"signature"`
	// Invariant is the guarantee, or "" for an unknown verdict.
	Invariant string `json:"invariant"`
	// Schedule is the number of the first one, and Deviations those that it had.
	Schedule   int                   `json:"schedule"`
	Deviations []scenarios.Deviation `json:"deviations"`
	// Count is how many there were.
	Count int `json:"count"`
}

// Add counts the outcome of a schedule.
func (t *Tally) Add(o *scenarios.Outcome, schedule int, deviations []scenarios.Deviation) {
	t.Tried++
	t.Simulated += o.Played()
	if len(o.Injected.Idle) > 0 {
		t.Idle++
	}
	f := Failure{Schedule: schedule, Deviations: deviations, Count: 1}
	switch verdict, reason := o.VerdictOfSchedule(); verdict {
	case invariant.Held:
		t.Held++
		return
	case invariant.Violated:
		t.Violated++
		v := o.Violation()
		f.Invariant = v.Invariant
		f.Signature = v.Invariant + ": " + sign(&v.First) + ", " + sign(&v.Second)
	default:
		t.Unknown++
		f.Signature = numbers.ReplaceAllString(reason, "${1}N")
	}
	t.fail(f)
}

// sign is what an event has in common with its likes in other schedules.
func sign(e *history.Event) string { return fmt.Sprintf("%s %s by %s", e.Kind, e.Host, e.Actor) }

// numbers are the times and the counts in a reason, not the digits of a name.
var numbers = regexp.MustCompile(`(^|[ (])[0-9][0-9.]*(?:[hmsµn][0-9.hmsµn]*)?\b`)

func (t *Tally) fail(f Failure) {
	for i := range t.Failed {
		same := &t.Failed[i]
		if same.Signature != f.Signature {
			continue
		}
		f.Count += same.Count
		if same.Schedule < f.Schedule {
			f.Schedule, f.Deviations = same.Schedule, same.Deviations
		}
		*same = f
		return
	}
	t.Failed = append(t.Failed, f)
}

// Merge adds another tally.
func (t *Tally) Merge(other Tally) {
	t.Tried += other.Tried
	t.Held += other.Held
	t.Violated += other.Violated
	t.Unknown += other.Unknown
	t.Idle += other.Idle
	t.Simulated += other.Simulated
	for _, f := range other.Failed {
		t.fail(f)
	}
}
