package play

import (
	"errors"

	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// CodeOfUnplayed returns the exit code of the error with which a world has not played a plan: it
// can't, something that it needs is missing, or it has failed.
func CodeOfUnplayed(err error) int {
	var unsupported *Unsupported
	var missing *Missing
	switch {
	case errors.As(err, &unsupported):
		return exit.Invalid
	case errors.As(err, &missing):
		return exit.Environment
	}
	return exit.Internal
}

// CodeOfOutcome is the exit code of one run.
func CodeOfOutcome(o *Outcome) int {
	if o.Meets() == "" {
		return exit.Held
	}
	verdict, _ := o.Verdict()
	if o.Err != nil && !o.Interrupted() && verdict != invariant.Violated {
		return exit.Internal
	}
	if verdict == invariant.Held {
		return exit.Violated // another one was expected
	}
	return CodeOfVerdict(verdict)
}

// CodeOfVerdict is the exit code of a verdict.
func CodeOfVerdict(v invariant.Verdict) int {
	switch v {
	case invariant.Held:
		return exit.Held
	case invariant.Unknown, invariant.Unjudged:
		return exit.Unknown
	}
	return exit.Violated
}
