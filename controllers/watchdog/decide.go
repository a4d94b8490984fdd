// Package watchdog is the smallest agent that fences its own host: it feeds the host's
// watchdog as long as the API server answers it, through the host's own links. A host
// that is cut off, hangs, or loses its agent is reset by its watchdog, and whatever ran
// there is gone.
//
// It asks no other host. When the API server itself is away, every host resets itself, once: a
// boot that has not reached the API server yet keeps its watchdog fed.
package watchdog

// State is every fact that the decision about the watchdog rests on.
type State struct {
	// Reached: the API server has answered in this boot.
	Reached bool `json:"reached"`
	// Answers: it has answered within the time that the settings give it.
	Answers bool `json:"answers"`
}

// Action is the action on the watchdog.
type Action string

// The actions.
const (
	// Feed keeps the host running for as long as the watchdog waits.
	Feed Action = "Feed"
	// Starve lets the watchdog reset the host, unless it is fed again in time.
	Starve Action = "Starve"
)

// Actions are all actions.
var Actions = []Action{Feed, Starve}

// Decide returns what to do. A host that has never reached the API server runs nothing from there
// that could run twice, and a reset would bring it no nearer.
func Decide(s State) Action {
	if s.Reached && !s.Answers {
		return Starve
	}
	return Feed
}
