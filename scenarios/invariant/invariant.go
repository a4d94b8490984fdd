// Package invariant judges histories by guarantees. It has the rules on which checkers rest, and
// the panel that shows them the events. The guarantees themselves are in package guarantee.
//
// Each checker reads the events once, in order, and believes world and API
// events only: what a controller or a BMC says is no evidence. Its verdict has
// three values. A safety claim is violated at the event that broke it; a
// liveness claim when something is still missing after the faults were
// withdrawn; and a claim that nothing put to the test, or whose evidence is
// missing, is unknown and never held.
//
// The terms are those of the design. A boot is one incarnation of a host and
// runs until its last process is gone, by a power edge, a reset or the watchdog;
// a paused host still runs. It is complete when its kubelet has started. The Node
// of a boot is the Node object, by UID, that represented the host when fencing
// was decided, and fencing is decided by the first API write that asks for it.
package invariant

import (
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Verdict is a history's answer to a claim.
type Verdict string

// The verdicts.
const (
	Held     Verdict = "held"
	Violated Verdict = "violated"
	Unknown  Verdict = "unknown"
	// Unjudged is the verdict on a history with a harm at which no guarantee has looked.
	Unjudged Verdict = "unjudged"
)

// Undecided reports whether a verdict is neither that the claim held nor that it was
// violated.
func (v Verdict) Undecided() bool { return v == Unknown || v == Unjudged }

// Invariant is one guarantee.
type Invariant struct {
	// ID names it in scenarios and reports.
	ID string
	// Claim is the guarantee in one sentence.
	Claim string
	// Seed lists the seed documents that promise it.
	Seed string
	// Liveness says that it is judged after healing; otherwise it is safety,
	// judged at every event. A claim with both sides is marked by its liveness.
	Liveness bool
	// Never is a kind of event that breaks the claim whenever a controller under test is its
	// actor; "" for a claim about an order, or a time. Such a claim is always judged, and that
	// it held doesn't say that anything was put to the test: see [Always].
	Never history.Kind
	// Literal says that the checker sees the events as they are in the history, also where an
	// object of a system's own stands for the mark of a Machine.
	Literal bool
	// Wakes are the kinds of events of which the first puts the claim to the test; before that
	// nothing can break it, or hold anybody up for it. A panel asks the checker from then on, and
	// shows it first what came before. Nil stands for any event.
	Wakes []history.Kind
	// New returns a checker for one history.
	New func(Params) Checker
}

// Params is a checker's knowledge beside the history.
type Params struct {
	Timings Timings
	// Hosts are the hosts of the topology. No report about one of them is
	// missing evidence.
	Hosts []string
	// Members are the hosts with a member of the API server's store.
	Members []string
	// Unwatched are the hosts without a watchdog.
	Unwatched []string
	// Residents are the processes of controllers that run on a host by the story, by its name.
	Residents map[string][]string
	Roles     Roles
	// HealthCheck is the health check's configuration, nil without one.
	HealthCheck *HealthCheck
	// Claims are the fields that claim of hosts that they are off.
	Claims []Claim
	// Patience is how long nothing may come any closer once the faults were withdrawn.
	Patience time.Duration
	// Hindrances are the panel's hindrances.
	Hindrances *Hindrances
}

// Fault is what a fault of a BMC holds up. One that holds requests back holds up its BMC as long as
// it is in force, and For so long afterwards, for there may be such a request; or, if it Hangs, for
// as long as its client waits. Any other holds up the requests that it bends, of which events tell.
type Fault struct {
	HoldsBack, Hangs bool
	For              time.Duration
}

// Claim is a field that says of a host that it is off as long as it has a value.
type Claim struct {
	Host, Object string
	// Key is the JSONPath of the field. Without it, the field is status.poweredOn, which
	// PowerReported reports.
	Key, Value string
	// Within is how long the host and the field may differ.
	Within time.Duration
}

// Timings are the timings of the world that a history comes from.
type Timings struct {
	// Obstacles are the kinds of objects that users make to keep controllers from their work.
	Obstacles []string
	// Boot is the time from power on to a complete boot.
	Boot time.Duration
	// SoftOff and HardOff bound the time from a power-off command to off.
	SoftOff, HardOff time.Duration
	// Watchdog is the time after which an unfed watchdog resets its host, the longest of all
	// hosts', and Brief how long each agent may stand still and feeds its watchdog in time all the
	// same; 0 if none has any.
	Watchdog, Brief time.Duration
	// Silence is for how long an agent hears nothing, at least, before it lets its host be
	// reset, and Hearing how long it takes, at most, until one that could hear again has; 0 if
	// the world doesn't know.
	Silence, Hearing time.Duration
	// Refused says that an agent takes an API server that refuses what it asks for one that is
	// silent.
	Refused bool
	// SoftTimeout is how long the power controller gives a soft shutdown, Command how
	// long a command that was accepted; Poll is how often it looks at a host whose
	// power is to change, Steady how often otherwise, and Backoff the longest time
	// between attempts that fail. Answer is how long it waits for a BMC to answer.
	SoftTimeout, Command, Poll, Steady, Backoff, Answer time.Duration
	// Kinds are the kinds of the world's own objects; without any, all are.
	Kinds []string
	// StandIns are the controllers that the world has in the place of Kubernetes' own. They are
	// not under test.
	StandIns []string
	// Unseen are the kinds of events that the world never records.
	Unseen []history.Kind
	// Faults are the faults of BMCs, by name, that hold up requests.
	Faults map[string]Fault
	// Slack is how much longer a sequence of reconciles may take than its parts, boots of hosts
	// among them, and Act one that waits for no boot; 0 is Slack.
	Slack, Act time.Duration
	// Safe is the time after which a silent host can be assumed reset (seed 004), and
	// Release how long it takes then until what was bound to its Node is released.
	Safe, Release time.Duration
	// Freed is how long it takes at most, by everybody's settings, from when nothing on a fenced
	// host can write to its volume until that is free; 0 if no settings bound it.
	// Orphaned is that time where its Machine leaves, or another deletes its Node, so that the
	// fencer's way comes to no end.
	Freed, Orphaned time.Duration
	// Missing is for how long the health check lets a Machine be without a Node, at least,
	// whose Node was deleted; 0 if the world doesn't know.
	Missing time.Duration
	// Return is how long a Node that was remediated may stay away, by the remediation's own
	// settings, until its host is cycled again; 0 if that never happens, or the world doesn't
	// know.
	Return time.Duration
	// AtOnce says that the remediation, by its own settings, takes a mark away while its host is
	// still off.
	AtOnce bool
	// CoolDown is how long the health check marks no Machine after more Machines were unhealthy
	// than it acts on.
	CoolDown time.Duration
	// Guarded says that a guard of the health check may keep it from a Machine.
	Guarded bool
	// Retry is the longest time after which a controller tries again what has failed; 0
	// if the world doesn't know.
	Retry time.Duration
	// Skew is how far apart two observers may date the same moment: the order
	// of two events of different observers that are closer than this is not
	// known. The observers are the API server's and one for each host. It is 0
	// in the simulator.
	Skew time.Duration
	// Epoch is the time at which the run started, by the clock of its controllers; zero if the
	// world doesn't know, or a step sets a clock.
	Epoch time.Time
	// Quiet is how long a run goes on after nothing has been missing any more, so
	// that every timer of the controllers comes round.
	Quiet time.Duration
}

// Patience is how long a host may take to go off that is asked to, softly first.
func (t *Timings) Patience() time.Duration {
	return t.SoftTimeout + t.HardOff + 2*t.Poll + t.Slack
}

// Back is how long a Node that was remediated may be away altogether: until its host is cycled
// again, and has booted; 0 if that never happens.
func (t *Timings) Back() time.Duration {
	if t.Return == 0 {
		return 0
	}
	return t.Return + t.Boot + t.Slack
}

// Checker judges one history against one invariant.
type Checker interface {
	// Observe is called for every event in order. It returns the violation at
	// the first event at which one is certain, once.
	Observe(e *history.Event) *Violation
	// Pending describes in a sentence what a liveness claim still waits for; "" means nothing. It
	// is meaningful after healing.
	Pending() string
	// RuledOn reports whether the checker has ruled on an event, which it has just observed, and
	// because of which event it is allowed; the zero event if it isn't.
	RuledOn(e *history.Event) (because *history.Event, ok bool)
	// Finish returns the verdict on what was observed. Complete says that the
	// history was not cut short. It changes nothing.
	Finish(complete bool) Result
}

// Violation is how a claim was broken.
type Violation struct {
	Invariant string
	// First and Second are the two events that broke it, in order. While it is
	// Open, First is the event that made the forbidden state and Second the one
	// that must not happen in it.
	First, Second history.Event
	// Sentence names both and when they happened.
	Sentence string
	// Margin is the time from First to Second once both are known to be in the
	// wrong order, and 0 while it is Open.
	Margin time.Duration
	// Open says that the event that should have come first hasn't happened yet.
	// The checker that found the violation completes it in place, if the run
	// goes on for long enough to see that.
	Open bool
}

// Result is the verdict of one invariant on one history.
type Result struct {
	Invariant string
	Verdict   Verdict
	// Reason is a sentence: how it was violated, or why it is unknown. Empty
	// when held.
	Reason string
	// Violation is set when violated.
	Violation *Violation
	// Judged counts the occasions that put the claim to the test. Excused counts those on which it
	// would have been broken but for a hindrance.
	Judged, Excused int
	// Suspended is why a clause of a claim that held was not put to the test, or "".
	Suspended string
	// Closest is set when a claim about an order or a time held, if there was one.
	Closest *Closest
}

// Closest is where a claim that held was nearest to being broken: the two events that
// had to come in this order, and the time between them; or, if there is a Limit, the two
// events of which the second had to come that soon after the first, and the time that was
// left.
type Closest struct {
	First, Second history.Event
	Margin, Limit time.Duration
}
