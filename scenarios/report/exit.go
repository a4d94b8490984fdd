package report

import (
	"context"
	"errors"
	"slices"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// Exit codes. Scripts rely on them.
const (
	ExitHeld        = 0 // every guarantee held, or the expected one was violated
	ExitViolated    = 1 // a guarantee was violated, or an expected violation did not happen
	ExitUnknown     = 2 // no verdict: the story didn't happen, or evidence is missing
	ExitInvalid     = 3 // the scenario, the plan or the command line is wrong
	ExitEnvironment = 4 // this machine lacks what the world needs
	ExitInternal    = 5 // fencelab itself failed
)

// Exit is an error that carries an exit code. Without an error of its own it has
// nothing to say: the result was printed.
type Exit struct {
	Code int
	Err  error
}

func (e *Exit) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

func (e *Exit) Unwrap() error { return e.Err }

// Ended is how a command ends whose result was printed.
func Ended(code int) error {
	if code == ExitHeld {
		return nil
	}
	return &Exit{Code: code}
}

// UnlessEnded has no error when whoever waits has called it off.
func UnlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Coded gives an error an exit code; no error stays none.
func Coded(code int, err error) error {
	if err == nil {
		return nil
	}
	return &Exit{code, err}
}

// Invalid is an error in what the user gave us.
func Invalid(err error) error { return Coded(ExitInvalid, err) }

// CodeOf is the exit code of an error. What carries none is an error of the command
// line.
func CodeOf(err error) int {
	var e *Exit
	switch {
	case err == nil:
		return ExitHeld
	case errors.As(err, &e):
		return e.Code
	}
	return ExitInvalid
}

// CodeOfUnplayed returns the exit code of the error with which a world has not played a plan: it can't, something that it
// needs is missing, or it has failed.
func CodeOfUnplayed(err error) int {
	var unsupported *scenarios.Unsupported
	var missing *scenarios.Missing
	switch {
	case errors.As(err, &unsupported):
		return ExitInvalid
	case errors.As(err, &missing):
		return ExitEnvironment
	}
	return ExitInternal
}

// Worse returns the exit code that counts when several runs end differently. A
// violation that was seen stands, whatever else is unknown.
func Worse(a, b int) int {
	order := [...]int{ExitHeld, ExitUnknown, ExitViolated, ExitInvalid, ExitEnvironment, ExitInternal}
	return order[max(slices.Index(order[:], a), slices.Index(order[:], b))]
}

// CodeOfOutcome is the exit code of one run.
func CodeOfOutcome(o *scenarios.Outcome) int {
	if o.Meets() == "" {
		return ExitHeld
	}
	verdict, _ := o.Verdict()
	if o.Err != nil && !o.Interrupted() && verdict != invariant.Violated {
		return ExitInternal
	}
	if verdict == invariant.Held {
		return ExitViolated // another one was expected
	}
	return CodeOfVerdict(verdict)
}

// CodeOfVerdict is the exit code of a verdict.
func CodeOfVerdict(v invariant.Verdict) int {
	switch v {
	case invariant.Held:
		return ExitHeld
	case invariant.Unknown, invariant.Unjudged:
		return ExitUnknown
	}
	return ExitViolated
}
