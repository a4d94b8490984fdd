package report

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/play"
)

// Replayed prints what came of a plan that was played again.
func (c *Console) Replayed(o *play.Outcome) {
	c.Headline(o)
	fmt.Fprint(c.Out, Brief(o, c.Dir, ""))
}

// Again saves a run that was replayed where the user wants it, shows it up to an event, and says
// whether it came out as before. File is the plan's; until is the number of an event, or 0.
// The error has an exit code.
func (c *Console) Again(o *play.Outcome, file string, until int) error {
	if c.Dir != "" {
		if err := Save(o, c.Dir, c.Replay(c.Dir)); err != nil {
			return exit.Coded(exit.Internal, err)
		}
	}
	if err := showUntil(until, c.Out, o); err != nil {
		return err
	}
	if !c.Real {
		if err := c.asBefore(o, filepath.Join(filepath.Dir(file), "history.jsonl")); err != nil {
			return err
		}
	}
	return exit.Ended(play.CodeOfOutcome(o))
}

// Reproduced says whether a plan that was played broke what it broke in the simulator, and saves
// the run where the user wants it. The error has an exit code.
func (c *Console) Reproduced(o *play.Outcome, broke []string) error {
	c.Replayed(o)
	if c.Dir != "" {
		if err := Save(o, c.Dir, c.Replay(c.Dir)); err != nil {
			return exit.Coded(exit.Internal, err)
		}
	}
	word, reason := o.Reproduces(broke)
	fmt.Fprintf(c.Out, "%s: %s\n", word, reason)
	if word == play.Diverged {
		return exit.Ended(exit.Unknown)
	}
	verdict, _ := o.Verdict()
	return exit.Ended(play.CodeOfVerdict(verdict))
}

// Untold says which deviations a world has no hand in, so that it would only diverge. The error has
// an exit code.
func (c *Console) Untold(name string, reasons []string) error {
	c.Line(invariant.Unknown, false, name, "not played")
	for _, reason := range reasons {
		fmt.Fprintf(c.Out, "%s: at %s\n", play.Diverged, reason)
	}
	return exit.Ended(exit.Unknown)
}

// asBefore says whether a replay came out as its plan was saved, with the history that
// was saved beside it. The error has an exit code.
func (c *Console) asBefore(o *play.Outcome, saved string) error {
	err := o.Replayed(saved)
	var different *play.Different
	switch {
	case errors.As(err, &different) && different.Plan:
		return exit.Coded(exit.Invalid, err)
	case err != nil && c.Changes:
		return exit.Coded(exit.Invalid, fmt.Errorf("%w\nthe controllers of the module have changed since the plan was saved, or don't always do the same: save it anew from a run of today", err))
	case err != nil:
		return exit.Coded(exit.Internal, err)
	case o.Plan.Digest != "":
		fmt.Fprintf(c.Out, "replayed: %d events, every one as before\n", o.History.Len())
	}
	return nil
}
