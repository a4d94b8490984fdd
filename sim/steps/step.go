// Package steps describes the simulator's possible next steps to a strategy: the actor, the action
// and its object, what can go wrong with it, and which other steps it may affect.
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
	ClassStorage  Class = "storage"  // a request reaches the storage
	ClassAnswer   Class = "answer"   // a BMC's own timer fires
	ClassPeer     Class = "peer"     // an agent's request reaches the one on another host
	ClassTimeout  Class = "timeout"  // a client gives up on a BMC
	ClassPower    Class = "power"    // a host's power changes
	ClassBoot     Class = "boot"     // a host reaches the next stage of its boot
	ClassKubelet  Class = "kubelet"  // a kubelet talks to the API server
	ClassWorkload Class = "workload" // a container starts or stops
	ClassWatchdog Class = "watchdog" // a watchdog fires
)

// Name names a step in a plan.
type Name struct {
	Actor string
	Class Class
	// N counts the actor's steps of this class from 1.
	N int
}

func (n Name) String() string { return fmt.Sprintf("%s/%s/%d", n.Actor, n.Class, n.N) }

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
	// Assumed holds the scenario's assumptions.
	Assumed Premises
	// Verb and Object say what is done to what.
	Verb   string
	Object Object
	// Place is the process, the host or the BMC that takes it.
	Place string
	// By is the deliverer, nil for a step that is no delivery.
	By deliverer
	// Answers is the place of the agent that the step is a part of an answer to, "" for none.
	Answers string
	// Node is the Node of the host that the step is about.
	Node string
	// Watched says that somebody watches Leases.
	Watched bool
	// Whole says that it touches all of the processes that take part: an answer shares a rate limit
	// with the agent's steps, the agent is about to end, or a process makes its controllers itself.
	Whole bool
	// Apart says that reconciles of different requests share no memory.
	Apart bool
	// Cause is the step that led to this one; the zero Name if none did.
	Cause Name
	// Alone says that its actor does one thing at a time. An actor that does several still does one
	// at a time for each Request.
	Alone   bool
	Request string
}

// deliverer delivers changes to a cache.
type deliverer interface {
	// Tells returns the process that owns the cache, and the event that the delivery being
	// scheduled brings it.
	Tells() (process, of string)
}

// Premises are a scenario's assumptions about the world: about BMCs, requests, watchdogs, the
// agents on hosts, and controllers.
type Premises struct{ obedient, prompt, punctual, running, awake bool }

// PremisesOf returns the premises that a scenario names.
func PremisesOf(spec *scenarios.Spec) Premises {
	has := func(premise string) bool { return slices.Contains(spec.Assumes, premise) }
	return Premises{
		obedient: has(scenarios.BMCObeys), prompt: has(scenarios.RequestsArrive),
		punctual: has(scenarios.WatchdogsFire), running: has(scenarios.AgentsRun), awake: has(scenarios.ControllersRun),
	}
}

// Name is the step's name in a plan.
func (s Step) Name() string { return Name{s.Actor, s.Class, s.N}.String() }

// The possible faults of a step depend on who waits for it.
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

// Faults returns what can go wrong with the step, besides coming late, in a world that a right
// controller has to bear. FaultNotFound is left to plans that ask for it: a controller that
// mistakes a resource that isn't served for a deleted object, as all controllers do, waits for an
// event that may not come.
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

// Latest returns how late the step may come, or 0 when there is no limit.
func (s Step) Latest() time.Duration {
	switch {
	case s.Assumed.prompt && (s.Effect || s.Class == ClassKubelet):
		return time.Second
	case s.Assumed.obedient && s.Class == ClassPower:
		return 5 * time.Second
	case s.Assumed.punctual && s.Class == ClassWatchdog && s.Verb == model.Resets:
		return time.Second
	case s.Assumed.running && strings.HasPrefix(s.Place, PlaceAgent) && (s.Class == ClassStart || s.Class == ClassTimer || s.Class == ClassPower || s.Class == ClassTimeout || s.Class == ClassWatchdog):
		return time.Second
	case s.Assumed.awake && strings.HasPrefix(s.Place, PlaceProcess) && s.Class != ClassLate:
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
	case ClassStorage:
		return effectFaults
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

// Lasts reports whether a step of the class comes when its time is up: a timer, or a length of
// something in the world.
func (c Class) Lasts() bool {
	switch c {
	case ClassTimer, ClassAnswer, ClassTimeout, ClassPower, ClassBoot, ClassWatchdog, ClassStart:
		return true
	}
	return false
}

// Sends reports whether steps of the class are requests under way, which carry out an earlier
// decision.
func (c Class) Sends() bool {
	return c == ClassAPI || c == ClassBMC || c == ClassStorage || c == ClassLate || c == ClassPeer
}

// Manner returns the part that steps of the class have in the work of their process.
func (c Class) Manner() scenarios.Manner {
	return scenarios.Manner{Sent: c.Sends(), GivesUp: c == ClassTimeout}
}

// Deed is the step as seen between its process and the rest of the world: the action, but not its
// number. It returns false for a step within a process or within the world. It may be called for a
// step only while that is being scheduled.
func (s Step) Deed() (scenarios.Deed, bool) {
	d := scenarios.Deed{Actor: s.process()}
	switch s.Class {
	case ClassAPI:
		d.Does = s.Verb + " " + s.Object.Kind + "/" + s.Object.Name
	case ClassBMC:
		switch { // what is neither has no name in a world of real requests
		case s.Effect:
			d.Does = "bmc " + s.Verb + " " + s.Object.Name
		case s.Verb == "read":
			d.Does = "read BMC/" + s.Object.Name
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

// process is the process whose step it is, of which the actor may be one part, or else the actor.
func (s Step) process() string {
	if name, is := strings.CutPrefix(s.Place, PlaceProcess); is {
		return name
	}
	return s.Actor
}

// Told returns the actor of a step that is being scheduled, and its action, even if it is not seen
// from outside.
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
