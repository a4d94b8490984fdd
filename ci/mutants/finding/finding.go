// Package finding is what the search for a mutant's mistake says.
package finding

import "time"

// The strategies, in the order in which they are tried.
const (
	Story  = "story"
	Sweep  = "sweep"
	Random = "random"
)

// Stuck is what is broken when a story doesn't come to its end.
const Stuck = "the story"

// Finding is the first schedule in which a mutant broke a guarantee, or only what was
// tried if there was none.
type Finding struct {
	Scenario string `json:"scenario,omitempty"`
	Strategy string `json:"strategy,omitempty"`
	// Broken names the guarantees, or is Stuck.
	Broken     string   `json:"broken,omitempty"`
	Reason     string   `json:"reason,omitempty"`
	Deviations []string `json:"deviations,omitempty"`
	// Schedules is how many were played, the last being the one.
	Schedules int           `json:"schedules"`
	Took      time.Duration `json:"took"`
}
