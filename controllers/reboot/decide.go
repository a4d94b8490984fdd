// Package reboot is the controller of a host's power: it honours spec.online and
// the reboot annotations of a BareMetalHost (seeds 000 and 001).
//
// A reconcile reads the host and asks its BMC for the power state, decides, and has one effect:
// one write to the API or one power command. Commands are only ever accepted; a later reading
// shows whether they took effect. The two times in the host's status make a request exact:
// pendingRebootSince is later than lastPoweredOn from the moment that a request was seen until the
// host, known to be off, may boot again. They survive a crash at any point, so that each request
// causes one power cycle.
//
// A client that holds a host off waits for an answer, status.provisioning.heldOffFor,
// and each answer names its question. It is given by a reading that says Off and that began
// after the annotation was read, and taken back when the host is seen on and
// before it may boot; so it says that every process which ran when the annotation
// was set is gone. No Off counts from when a boot was recorded until the host was
// seen on or the boot was called off: a command may be under way that a BMC which
// reports late, or is slow, does not show yet.
package reboot

import "fmt"

// PowerState is the knowledge about a host's power.
type PowerState string

// Only a BMC that says exactly Off makes a host Off. On is everything else that
// a BMC may say, PoweringOff, PoweringOn and Paused included: the host is not
// known to be off (design, decision 10). Unreachable is no answer at all.
const (
	On          PowerState = "On"
	Off         PowerState = "Off"
	Unreachable PowerState = "Unreachable"
)

// UnmarshalText accepts the three names only.
func (p *PowerState) UnmarshalText(text []byte) error {
	switch state := PowerState(text); state {
	case On, Off, Unreachable:
		*p = state
		return nil
	}
	return fmt.Errorf("%q is none of %s, %s, %s", text, On, Off, Unreachable)
}

// ParsePowerState maps the PowerState property of a Redfish ComputerSystem (DSP2046),
// empty when it is null, to what it proves.
func ParsePowerState(property string) PowerState {
	if property == string(Off) {
		return Off
	}
	return On
}

// State is every fact that the decision about one host rests on.
type State struct {
	// Provisioned hosts take part in the reboot interface; others are out of
	// its scope (seed 000).
	Provisioned bool `json:"provisioned"`
	// Deprovisioned hosts have no image any more, or lose it just now.
	Deprovisioned bool `json:"deprovisioned"`
	// Online is spec.online.
	Online bool `json:"online"`
	// Plain and Keyed say that reboot annotations of that form are present.
	Plain bool `json:"plain"`
	Keyed bool `json:"keyed"`
	// Hard is set when at least one of them asks for a hard reboot: it takes
	// priority over all that are soft (seed 000).
	Hard bool `json:"hard"`
	// StatusOn is status.poweredOn.
	StatusOn bool `json:"statusOn"`
	// Power is the BMC's present answer.
	Power PowerState `json:"power"`
	// Pending is a recorded request that has not led to a boot yet.
	Pending bool `json:"pending"`
	// Unanswered says that status.provisioning.heldOffFor doesn't answer exactly the present keyed
	// annotations.
	Unanswered bool `json:"unanswered"`
	// BootRecorded says that lastPoweredOn was written less than bootTimeout ago, that no reading
	// has shown the host on since, and that the boot was not called off.
	BootRecorded bool `json:"bootRecorded"`
	// OnSent says that a PowerOn was sent after that, as far as is known here;
	// after a crash it may have been.
	OnSent bool `json:"onSent"`
	// SoftFailed says that the soft shutdown had its time, or was refused.
	SoftFailed bool `json:"softFailed"`
	// ShutDownSent says that a soft shutdown was requested. A crash forgets it, and then it is
	// requested once more.
	ShutDownSent bool `json:"shutDownSent"`
	// Commanded says that the command which would bring the host to where it
	// should be, PowerOff or PowerOn, was accepted a moment ago.
	Commanded bool `json:"commanded"`
	// ErrorStale says that status.errorType and its count don't reflect the BMC's failures, or
	// their end.
	ErrorStale bool `json:"errorStale"`
}

// Action is the one thing to do next.
type Action string

// The actions. Nothing and Wait have no effect: the host is looked at again
// after the steady interval, or after the poll interval because a change of its
// power is expected.
const (
	Nothing Action = "Nothing"
	Wait    Action = "Wait"
	// ClearAnnotations removes every reboot annotation, in one patch.
	ClearAnnotations Action = "ClearAnnotations"
	// ForgetRequest removes pendingRebootSince and the answers: they are about
	// an image that is gone.
	ForgetRequest Action = "ForgetRequest"
	// RecordPower writes the reading to status.poweredOn, and with an Off the
	// answers.
	RecordPower Action = "RecordPower"
	// RecordPending writes pendingRebootSince.
	RecordPending Action = "RecordPending"
	// RecordAnswer writes heldOffFor: the reading said Off.
	RecordAnswer Action = "RecordAnswer"
	// RecordError writes or clears the power management error.
	RecordError Action = "RecordError"
	// RemovePlain removes the plain annotation: the host is off, so the request
	// had what it asked for and the recorded times do the rest.
	RemovePlain Action = "RemovePlain"
	// RecordBoot writes lastPoweredOn and takes all answers back, before the host
	// is powered on.
	RecordBoot Action = "RecordBoot"
	// PowerOn, ShutDown (soft) and PowerOff (hard) command the BMC.
	PowerOn  Action = "PowerOn"
	ShutDown Action = "ShutDown"
	PowerOff Action = "PowerOff"
)

// PoweringOn says that a PowerOn may be under way, so that an Off proves nothing.
func (s State) PoweringOn() bool {
	return s.Power == Off && !s.Pending && s.BootRecorded && s.OnSent
}

// CallsOff says that a PowerOn which may be under way is not waited for. Only a client that asks
// for a soft reboot without holding the host is served better by a host that boots and then shuts
// down.
func (s State) CallsOff() bool { return s.PoweringOn() && (s.Hard || s.Keyed || !s.Online) }

// Actions is every action.
var Actions = []Action{
	Nothing, Wait, ClearAnnotations, ForgetRequest, RecordPower, RecordPending, RecordAnswer, RecordError,
	RemovePlain, RecordBoot, PowerOn, ShutDown, PowerOff,
}

// Decide says what to do next about a host. What is on record is brought up to
// date first, so that whoever reads the status never sees a request answered by
// a power state from before it.
func Decide(s State) Action {
	requested := s.Plain || s.Keyed
	switch {
	case !s.Provisioned:
		return leave(s, requested)
	case s.Power == Unreachable:
		if s.ErrorStale {
			return RecordError
		}
		return Wait
	case (s.Power == On) != s.StatusOn:
		return RecordPower
	case requested && !s.Pending && s.Power == On:
		return RecordPending
	case s.ErrorStale:
		return RecordError
	case s.Power == On && (s.Pending || !s.Online):
		return turnOff(s)
	case requested && s.PoweringOn():
		// Answered now, it would be by the Off from before the boot, and the Node
		// of a host that boots would be deleted.
		return settle(s)
	case s.Power == Off && s.Unanswered && !s.PoweringOn() && (s.Keyed || !s.Online):
		// An answer that no client waits for any more goes with the record of the boot.
		return RecordAnswer
	case s.Power == Off && s.Keyed:
		return Wait // until every holder has let go of the host
	case s.Power == Off && s.Online:
		return turnOn(s)
	}
	return Nothing
}

// leave ends what a deprovisioned host was asked to do (seed 000).
func leave(s State, requested bool) Action {
	switch {
	case s.Deprovisioned && requested:
		return ClearAnnotations
	case s.Deprovisioned && (s.Pending || s.Unanswered):
		return ForgetRequest
	}
	return Nothing
}

// settle makes sure of a host that may be powering on: it is forced off, or let on.
func settle(s State) Action {
	switch {
	case s.Commanded:
		return Wait
	case s.CallsOff():
		return PowerOff
	}
	return PowerOn
}

// turnOff is soft first and hard when that failed, or at once when any request
// says so.
func turnOff(s State) Action {
	switch {
	case !s.Hard && !s.SoftFailed && !s.ShutDownSent:
		return ShutDown
	case !s.Hard && !s.SoftFailed, s.Commanded:
		return Wait
	}
	return PowerOff
}

// turnOn lets go of a host that is off and that no client holds: the plain annotation goes first,
// then the boot is recorded, and only then is the host powered on. A crash between any two of
// these is resumed and causes no second reboot (design, decisions 2 and 3).
func turnOn(s State) Action {
	switch {
	case s.Plain:
		return RemovePlain
	case s.Pending || !s.BootRecorded:
		return RecordBoot
	case s.Commanded:
		return Wait
	}
	return PowerOn
}
