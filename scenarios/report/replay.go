package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/fencelab/fencelab/scenarios"
)

// PlayFile plays a saved plan. The error has an exit code.
func (c *Console) PlayFile(ctx context.Context, file string, vocabulary scenarios.Vocabulary, backend scenarios.Backend) (*scenarios.Outcome, error) {
	plan, err := scenarios.LoadPlanFile(file, vocabulary)
	if err != nil {
		return nil, &Exit{ExitInvalid, err}
	}
	return c.Play(ctx, plan, backend)
}

// Again reports on a plan that was played again, saves the run where the user wants it,
// lets him look at it, and says whether it came out as before. File is the plan's, and
// in is where the user says what he wants to see. The error has an exit code.
func (c *Console) Again(o *scenarios.Outcome, file string, walk Walk, in io.Reader) error {
	c.Headline(o)
	fmt.Fprint(c.Out, o.Brief(c.Dir, ""))
	if c.Dir != "" {
		if err := o.Save(c.Dir, c.Replay(c.Dir)); err != nil {
			return &Exit{ExitInternal, err}
		}
	}
	if err := walk.Take(in, c.Out, o); err != nil {
		return err
	}
	if !c.Real {
		if err := c.asBefore(o, filepath.Join(filepath.Dir(file), "history.jsonl")); err != nil {
			return err
		}
	}
	return Ended(CodeOfOutcome(o))
}

// asBefore says whether a replay came out as its plan was saved, with the history that
// was saved beside it. The error has an exit code.
func (c *Console) asBefore(o *scenarios.Outcome, saved string) error {
	err := o.Replayed(saved)
	var different *scenarios.Different
	switch {
	case errors.As(err, &different) && different.Plan:
		return &Exit{ExitInvalid, err}
	case err != nil:
		return &Exit{ExitInternal, err}
	case o.Plan.Digest != "":
		fmt.Fprintf(c.Out, "replayed: %d events, every one as before\n", o.History.Len())
	}
	return nil
}
