package guarantee

import (
	"slices"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var noPanics = invariant.Invariant{
	ID:    "no-panics",
	Claim: "No reconcile of a controller under test panics.",
	Seed:  "000, 001, 002, 003, 004",
	Never: history.ControllerPanicked,
	New: func(p invariant.Params) invariant.Checker {
		return &panics{Ruling: invariant.Ruling{ID: "no-panics"}, standIns: p.Timings.StandIns, unseen: slices.Contains(p.Timings.Unseen, history.ControllerPanicked)}
	},
}

// panics judges every life of a controller: what keeps a promise must go on. A panic is seen by
// whoever runs the controller, and is nothing that it says of itself.
type panics struct {
	invariant.Ruling
	standIns []string
	// unseen says that the world has no eye on what happens in a process.
	unseen bool
}

func (c *panics) Observe(e *history.Event) *invariant.Violation {
	if slices.Contains(c.standIns, e.Actor) {
		return nil
	}
	switch e.Kind {
	case history.ControllerStarted:
		if !c.unseen {
			c.Judged++
		}
	case history.ControllerPanicked:
		where := ""
		if e.Note != "" {
			where = ", in " + e.Note
		}
		c.Breach(e, e, invariant.Clause(e)+where)
	}
	return c.Tell()
}

func (c *panics) Finish(complete bool) invariant.Result {
	if c.unseen {
		return c.Conclude(complete, "this world doesn't see what happens in a program, but for what its log says")
	}
	return c.Conclude(complete, "no controller ran")
}
