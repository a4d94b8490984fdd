// Package steps says what the simulator can do next as whoever chooses sees it: who does what to
// what, what can go wrong with it, and which other steps it may concern.
package steps

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/sim/model"
)

// Class is a kind of step. What can go wrong with a step depends on it.
type Class string

// The classes of steps.
const (
	ClassAPI      Class = "api"      // a controller's call reaches the API server
	ClassDeliver  Class = "deliver"  // a change reaches a cache
	ClassLate     Class = "late"     // a request is executed whose client has given up, or died
	ClassStart    Class = "start"    // a controller process starts, or restarts
	ClassLease    Class = "lease"    // a process takes part in the election of a leader
	ClassWork     Class = "work"     // a worker takes the next request of its queue
	ClassTimer    Class = "timer"    // a delayed request becomes due
	ClassBMC      Class = "bmc"      // a request reaches a BMC
	ClassAnswer   Class = "answer"   // a BMC's own timer fires
	ClassPeer     Class = "peer"     // an agent's request reaches the one on another host
	ClassTimeout  Class = "timeout"  // a client gives up on a BMC
	ClassPower    Class = "power"    // a host's power changes
	ClassBoot     Class = "boot"     // a host reaches the next stage of its boot
	ClassKubelet  Class = "kubelet"  // a kubelet talks to the API server
	ClassWorkload Class = "workload" // a container starts or stops
	ClassWatchdog Class = "watchdog" // a watchdog fires
)

// Step is a step as a strategy sees it.
type Step struct {
	Actor string
	Class Class
	// N counts the actor's steps of this class from 1.
	N int
	// At is when it will be taken by default.
	At time.Duration
	// Effect says that the step changes the world outside of its actor: an API
	// write or a BMC command.
	Effect bool
	// Assumed is what the scenario assumes.
	Assumed Premises
	// Verb and Object say what is done to what.
	Verb   string
	Object Object
	// Place is the process, the host or the BMC that takes it.
	Place string
	// By is who delivers, nil for a step that is no delivery.
	By deliverer
}

// deliverer tells a cache of changes.
type deliverer interface {
	// Tells names the process whose cache it is, and what the delivery that is scheduled now will
	// tell that of.
	Tells() (process, of string)
}

// Premises are what a scenario assumes of the world: of BMCs, of what is sent, of
// watchdogs, and of the agents on hosts.
type Premises struct{ obedient, prompt, punctual, running bool }

// PremisesOf returns those that a scenario names.
func PremisesOf(spec *scenarios.Spec) Premises {
	has := func(premise string) bool { return slices.Contains(spec.Assumes, premise) }
	return Premises{
		obedient: has(scenarios.BMCObeys), prompt: has(scenarios.RequestsArrive),
		punctual: has(scenarios.WatchdogsFire), running: has(scenarios.AgentsRun),
	}
}

// Name is how a plan refers to the step.
func (s Step) Name() string { return fmt.Sprintf("%s/%s/%d", s.Actor, s.Class, s.N) }

// What can go wrong with a step depends on who waits for what.
var (
	requestFaults = []scenarios.StepFault{scenarios.FaultCrashBefore, scenarios.FaultErrorBefore, scenarios.FaultCrashStale}
	effectFaults  = join(requestFaults, scenarios.FaultCrashAfter, scenarios.FaultErrorAfter, scenarios.FaultLate, scenarios.FaultCrashLate)
	commandFaults = join(effectFaults, scenarios.FaultIgnore)
	readFaults    = join(requestFaults, scenarios.FaultForbidden, scenarios.FaultTooMany, scenarios.FaultInternal)
	writeFaults   = join(effectFaults, scenarios.FaultForbidden, scenarios.FaultTooMany, scenarios.FaultInternal, scenarios.FaultConflict)
	deliverFaults = []scenarios.StepFault{scenarios.FaultRelist}
	startFaults   = []scenarios.StepFault{scenarios.FaultStaleList}
	silentFaults  = []scenarios.StepFault{scenarios.FaultErrorBefore}
)

func join(some []scenarios.StepFault, more ...scenarios.StepFault) []scenarios.StepFault {
	return append(slices.Clone(some), more...)
}

// Faults returns what can go wrong with the step, besides coming late, in a world
// that a right controller has to bear. One thing is left to plans that say so:
// whoever takes a resource that isn't served at all for an object that is gone, as
// everybody does, waits for an event that may not come.
func (s Step) Faults() []scenarios.StepFault {
	possible := s.faults()
	if s.Effect && (s.Assumed.prompt || s.Assumed.obedient) {
		possible = slices.DeleteFunc(slices.Clone(possible), func(f scenarios.StepFault) bool {
			return s.Assumed.obedient && f == scenarios.FaultIgnore ||
				s.Assumed.prompt && (f == scenarios.FaultLate || f == scenarios.FaultCrashLate)
		})
	}
	return possible
}

// Latest is by how much the step may come late, or 0 when there is no limit to that.
func (s Step) Latest() time.Duration {
	switch {
	case s.Assumed.prompt && s.Effect:
		return time.Second
	case s.Assumed.obedient && s.Class == ClassPower:
		return 5 * time.Second
	case s.Assumed.punctual && s.Class == ClassWatchdog && s.Verb == model.Resets:
		return time.Second
	case s.Assumed.running && s.Place == PlaceAgent && (s.Class == ClassStart || s.Class == ClassTimer || s.Class == ClassPower || s.Class == ClassTimeout || s.Class == ClassWatchdog):
		return time.Second
	}
	return 0
}

func (s Step) faults() []scenarios.StepFault {
	switch s.Class {
	case ClassAPI:
		if s.Effect {
			return writeFaults
		}
		return readFaults
	case ClassBMC:
		if s.Effect {
			return commandFaults
		}
		return requestFaults
	case ClassDeliver:
		return deliverFaults
	case ClassStart:
		return startFaults
	case ClassKubelet, ClassLease, ClassPeer:
		return silentFaults
	}
	return nil
}

// Can reports whether the fault can befall the step, in a search or in a plan.
func (s Step) Can(fault scenarios.StepFault) bool {
	return slices.Contains(s.faults(), fault) || fault == scenarios.FaultNotFound && s.Class == ClassAPI
}

// Sends reports whether steps of the class are requests on their way, which say what was
// decided before.
func (c Class) Sends() bool {
	return c == ClassAPI || c == ClassBMC || c == ClassLate || c == ClassPeer
}

// Deed is the step as one sees it who stands between its process and the rest of the world: what is done, but not which
// time. It is false for what happens within a process, or within the world. It may be asked of a step only while that is
// scheduled.
func (s Step) Deed() (scenarios.Deed, bool) {
	d := scenarios.Deed{Actor: s.Actor}
	switch s.Class {
	case ClassAPI:
		d.Does = s.Verb + " " + s.Object.Kind + "/" + s.Object.Name
	case ClassBMC:
		if d.Does = s.Verb + " BMC/" + s.Object.Name; s.Effect {
			d.Does = "bmc " + s.Verb + " " + s.Object.Name
		}
	case ClassDeliver:
		if s.By == nil {
			return d, false // it lists anew
		}
		d.Actor, d.Does = s.By.Tells()
	case ClassStart:
		d.Does = "start Process/" + s.Actor
	}
	return d, d.Does != ""
}

// Told is who takes a step that is scheduled now, and what it does, also where nobody outside sees it.
func Told(s Step) (actor, does string) {
	if deed, seen := s.Deed(); seen {
		return deed.Actor, deed.Does
	}
	does = s.Verb
	if s.Object.Kind != "" || s.Object.Name != "" {
		does += " " + strings.Trim(s.Object.Kind+"/"+s.Object.Name, "/")
	}
	return s.Actor, does
}
