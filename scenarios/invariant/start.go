package invariant

import (
	"slices"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Start records what led to the next power-on of one host, as reported by the API and the BMC. It
// only ever excuses: a power-on that was under way before it was forbidden is not the controllers'
// fault.
type Start struct {
	// recorded is the boot that was recorded since the last power-on, and answered
	// the last request that was recorded or answered.
	recorded, answered *history.Event
	// unseen is a recorded boot that began without a report of the API: the controller that
	// recorded it commands it again when it is over.
	unseen *history.Event
	// command is the last command from a process under test that powers the host on, since the
	// last power-on, and begun holds what was recorded when the BMC received it.
	command *history.Event
	begun   struct{ recorded, answered *history.Event }
	// before are the earlier commands, which a fault of the BMC may still hold back.
	before []*history.Event
}

// Observe takes in an event of this host.
func (s *Start) Observe(e *history.Event, roles *Roles) {
	switch e.Kind {
	case history.LastPoweredOn:
		if e.Value != "" {
			s.recorded, s.unseen = e, nil
		}
	case history.PowerReported:
		if e.Value == "true" {
			s.unseen = nil
		}
	case history.PendingRebootSince, history.HeldOffFor:
		if e.Value != "" {
			s.answered = e
		}
	case history.BMCCommand:
		if PowersOn(e) && !roles.Blameless(e) {
			if s.command != nil {
				s.before = append(s.before, s.command)
			}
			s.command, s.begun.recorded, s.begun.answered = e, s.recorded, s.answered
			if e.Key == history.Late {
				earlier := *e
				earlier.Seq, s.command = 0, &earlier // it was sent before anything that matters now
			}
		}
	case history.PowerOn:
		if s.recorded != nil {
			s.unseen = s.recorded
		}
		// The command has had its effect: another power-on has another cause.
		s.recorded, s.begun.recorded, s.command = nil, nil, nil
	}
}

// PowersOn reports whether a command can switch a host on.
func PowersOn(e *history.Event) bool {
	return e.Value != "ForceOff" && e.Value != "GracefulShutdown" && e.Value != "Nmi"
}

// PowersOff reports whether a command can switch a host off.
func PowersOff(e *history.Event) bool {
	return e.Value != "On" && e.Value != "ForceOn" && e.Value != "Nmi"
}

// AsksGuest reports whether a command only asks the operating system, which takes its own time.
func AsksGuest(e *history.Event) bool {
	return e.Value == "GracefulShutdown" || e.Value == "GracefulRestart" || e.Value == "PushPowerButton"
}

// UnderWay reports whether a power-on, e, was under way when forbidden happened. It was
// when the BMC had received the command, and carries it out late. And it was when the boot
// had been recorded, which is the last moment at which the API can refuse a controller that
// does not know yet, and the command was decided before anybody could know: the record
// alone excuses nothing, for whoever has written it can look again.
func (s *Start) UnderWay(e, forbidden *history.Event, h *Hindrances) bool {
	if s.command != nil && s.command.Seq < forbidden.Seq {
		return true
	}
	if slices.ContainsFunc(s.before, func(c *history.Event) bool { return c.Seq < forbidden.Seq && h.HeldBack(c, e) }) {
		return true
	}
	sent := e
	if s.command != nil {
		sent = s.command
	}
	before := func(recorded, answered *history.Event) bool {
		return recorded != nil && recorded.Seq < forbidden.Seq && orNone(answered).Seq < forbidden.Seq
	}
	unaware := func(recorded, answered *history.Event) bool {
		return before(recorded, answered) && h.Unaware(sent, forbidden)
	}
	// The record was made long ago when the boot is commanded again, so a look is due just before.
	return before(s.unseen, s.answered) && h.OnItsWay(sent, forbidden) || unaware(s.recorded, s.answered) || unaware(s.begun.recorded, s.begun.answered)
}
