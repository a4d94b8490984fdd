// Package finding holds the results of the search for a mutant's mistake.
package finding

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/fencelab/fencelab/scenarios"
)

// The strategies, in the order in which they are tried.
const (
	Story  = "story"
	Sweep  = "sweep"
	Random = "random"
)

// Stuck stands for a guarantee when a story doesn't come to its end.
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
	// Shrunk is the result of shrinking that schedule, if it was shrunk.
	Shrunk *Shrunk `json:"shrunk,omitempty"`
}

// Shrunk says how many deviations a schedule had, how many it needs, and how long it took to find
// out.
type Shrunk struct {
	From int           `json:"from"`
	To   int           `json:"to"`
	Took time.Duration `json:"took"`
}

// OfRight returns the finding of the right controllers in a plan; right is the judge that is built
// with them.
func OfRight(right string, plan *scenarios.Plan) (*Finding, error) {
	cmd := exec.Command(right, "-replay")
	cmd.Stdin = bytes.NewReader(plan.Text())
	f := new(Finding)
	if err := Ask(cmd, f); err != nil {
		return nil, fmt.Errorf("play %s with the right controllers: %w", plan.Metadata.Name, err)
	}
	return f, nil
}

// Ask runs a command and reads the JSON that it prints.
func Ask(cmd *exec.Cmd, answer any) error {
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(output, answer)
	}
	return err
}

// Led is the result of looking for leads: the first schedule in which a mistake showed beside the
// right controllers, and the first story whose retelling came out otherwise. Broken is the
// first story whose default schedule isn't as expected: it needs no lead.
type Led struct {
	Schedules int    `json:"schedules"`
	Broken    string `json:"broken,omitempty"`
	Twin      *Lead  `json:"twin,omitempty"`
	Retold    *Lead  `json:"retold,omitempty"`
}

// Lead is the strangest lead of a schedule: what the mistake did, and what the reference did.
type Lead struct {
	Name       string   `json:"name"`
	Mine       string   `json:"mine"`
	Reference  string   `json:"reference"`
	Scenario   string   `json:"scenario"`
	Deviations []string `json:"deviations,omitempty"`
	// Schedules and Took are how many were played until then, and for how long.
	Schedules int           `json:"schedules"`
	Took      time.Duration `json:"took"`
}

// Audit is the result of looking for excuses that right controllers don't need.
type Audit struct {
	// Schedules is how many were played, and Excused in how many of them something was that
	// would have been a violation.
	Schedules int    `json:"schedules"`
	Excused   int    `json:"excused"`
	Holes     []Hole `json:"holes,omitempty"`
}

// Hole is such an excuse: a guarantee that a wrong controller would have violated if nothing
// had held anybody up, and the right one would have kept.
type Hole struct {
	Scenario   string   `json:"scenario"`
	Deviations []string `json:"deviations,omitempty"`
	Guarantee  string   `json:"guarantee"`
	// Sentence is how it would have been violated, and HeldUp what excuses it: who was held up, and
	// the event, a line each.
	Sentence string   `json:"sentence"`
	HeldUp   []string `json:"heldUp"`
}
