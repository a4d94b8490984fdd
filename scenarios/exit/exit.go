// Package exit is how the program ends: its exit codes, and errors that carry one.
package exit

import (
	"context"
	"errors"
	"slices"
)

// Exit codes. Scripts rely on them.
const (
	Held        = 0 // every guarantee held, or the expected one was violated
	Violated    = 1 // a guarantee was violated, or an expected violation did not happen
	Unknown     = 2 // no verdict: the story didn't happen, or evidence is missing
	Invalid     = 3 // the scenario, the plan or the command line is wrong
	Environment = 4 // this machine lacks what the world needs
	Internal    = 5 // fencelab itself failed
	Interrupted = 6 // it was stopped before its end, and the same command goes on where it was
)

// Error carries an exit code. Without an error of its own it has
// nothing to say: the result was printed.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Ended is how a command ends whose result was printed.
func Ended(code int) error {
	if code == Held {
		return nil
	}
	return &Error{Code: code}
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
	return &Error{code, err}
}

// BadInput is an error in what the user gave us.
func BadInput(err error) error { return Coded(Invalid, err) }

// Code is the exit code of an error. What carries none is an error of the command
// line.
func Code(err error) int {
	var e *Error
	switch {
	case err == nil:
		return Held
	case errors.As(err, &e):
		return e.Code
	}
	return Invalid
}

// Worse returns the exit code that counts when several runs end differently. A
// violation that was seen stands, whatever else is unknown.
func Worse(a, b int) int {
	order := [...]int{Held, Unknown, Interrupted, Violated, Invalid, Environment, Internal}
	return order[max(slices.Index(order[:], a), slices.Index(order[:], b))]
}
