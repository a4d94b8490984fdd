package invariant

import (
	"slices"

	"github.com/fencelab/fencelab/scenarios/history"
)

var noPanics = Invariant{
	ID:    "no-panics",
	Claim: "No reconcile of a controller under test panics.",
	Seed:  "000, 001, 002, 003, 004",
	Never: history.ControllerPanicked,
	New: func(p Params) Checker {
		return &panics{ruling: ruling{id: "no-panics"}, standIns: p.Timings.StandIns, unseen: slices.Contains(p.Timings.Unseen, history.ControllerPanicked)}
	},
}

// panics judges every life of a controller: what keeps a promise must go on. A panic is seen by whoever runs the controller,
// and is nothing that it says of itself.
type panics struct {
	ruling
	standIns []string
	// unseen says that the world has no eye on what happens in a process.
	unseen bool
}

func (c *panics) Observe(e *history.Event) *Violation {
	if slices.Contains(c.standIns, e.Actor) {
		return nil
	}
	switch e.Kind {
	case history.ControllerStarted:
		if !c.unseen {
			c.judged++
		}
	case history.ControllerPanicked:
		where := ""
		if e.Note != "" {
			where = ", in " + e.Note
		}
		c.breach(e, e, clause(e)+where)
	}
	return c.tell()
}

func (c *panics) Finish(complete bool) Result {
	if c.unseen {
		return c.verdict(complete, "this world doesn't see what happens in a reconcile")
	}
	return c.verdict(complete, "no controller ran")
}
