package play

import (
	"context"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// Backend is a world that a plan can be played in. It is the one seam between
// the scenario engine and the simulator or the lab; backendtest is its contract.
//
// A backend is used by one goroutine and for one run.
type Backend interface {
	// Start builds the plan's topology, brings it up healthy and starts the
	// controllers. Operations and deviations that this world cannot perform
	// are refused up front, all reasons joined in an Unsupported error, and
	// then nothing is left behind. The events of bringing up come out of the
	// first Advance, followed by one history.RunStarted.
	Start(ctx context.Context, plan *scenarios.Plan) (invariant.Timings, error)
	// Apply performs one operation at the present time and returns when it has
	// been accepted. What it leads to comes out of Advance. An Ineffective error
	// says that there was nothing to do it to.
	Apply(op scenarios.Op) error
	// Advance lets the world run until the given time and hands over every
	// event in order, each exactly once. When each returns true the world
	// stops at that event's time. It returns the present time: until, or an
	// earlier one when it was stopped.
	Advance(until time.Duration, each func(history.Event) (stop bool)) (now time.Duration, err error)
	// Stop tears everything down and returns what is worth keeping beside the
	// history: consoles, BMC logs, API objects. It can be called after a
	// failed Start, and twice.
	Stop() ([]Artifact, error)
}

// A Scheduler is a Backend whose steps can deviate from their default.
type Scheduler interface {
	// EndSchedule ends the deviations: no step that is to come deviates, and what was
	// delayed comes when it would have come, or at once.
	EndSchedule()
}

// A Spender is a Backend that knows what it has taken of the machine's processors. It says so after
// Stop.
type Spender interface {
	Spent() []Spent
}

// A Claimer is a Backend that judges claims which its user has written in Go, too.
type Claimer interface {
	Claims() []invariant.Invariant
}

// A Noter is a Backend that has something to say of a run that is not part of its history, such as
// that a controller never rests. It says so after Stop.
type Noter interface {
	Notes() []string
}

// A Deeder is a Backend that knows the deeds of the steps at which the plan deviates, by the steps.
// It says so after Stop.
type Deeder interface {
	Deeds() map[string]string
}

// Spent is how much time of the processors a part of a world took in a phase.
type Spent struct {
	Phase   string  `json:"phase"`
	Part    string  `json:"part"`
	Seconds float64 `json:"seconds"`
}

// Artifact is a file of evidence for the report's directory.
type Artifact struct {
	Name string
	Data []byte
}

// Ineffective says why an operation could not be done to the world as it was by
// then, though it could in another schedule: the object was not there, or could not be changed so.
type Ineffective struct {
	Reason string
	// Missing says that the object isn't there.
	Missing bool
}

func (i *Ineffective) Error() string { return i.Reason }

// Unsupported says that a backend cannot perform something that a plan asks for.
type Unsupported struct {
	Backend string
	Reasons []string
}

func (u *Unsupported) Error() string {
	text := "the " + u.Backend + " cannot perform this plan:"
	for _, reason := range u.Reasons {
		text += "\n  " + reason
	}
	return text
}

// Missing says what this machine lacks for a world.
type Missing struct {
	World   string
	Reasons []string
	// Remedy says what to do.
	Remedy string
}

func (m *Missing) Error() string {
	return "the " + m.World + " cannot run here:\n  " + strings.Join(m.Reasons, "\n  ") + "\n" + m.Remedy
}
