// Package report prints what comes of runs and searches, for people at a terminal.
package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/version"
)

// Console prints results to Out, and what else there is to say to Talk.
type Console struct {
	Out, Talk io.Writer
	// World is the one that plans are played in, and Real says that time passes there.
	World string
	Real  bool
	// Parts are what a lab is made of.
	Parts []*Part
	// Trace says that every event is printed as it happens.
	Trace bool
	// Dir is where all runs are saved. Without one, those that did not come out as
	// expected are saved below out.
	Dir string
	// Format is what is printed: text, or json for programs.
	Format string
	// Program is this program, as the user called it.
	Program string

	// Unfit says why a scenario is not played beside what it says itself, or nothing. It may
	// be nil.
	Unfit func(*scenarios.Scenario) string

	// Another makes a world like that of a run, to play a plan like its own in; nil in the
	// lab, where no run is like another.
	Another func() play.Backend

	// Twin plays a plan again with fencelab's own controllers; nil if nobody wants to know.
	Twin func(context.Context, *scenarios.Plan) (*play.Twin, error)

	// entry is what the ledger has of the scenario that runs; nil outside of a suite.
	entry *Entry
}

// Part is a choice of what the lab is made of.
type Part struct {
	// Flag is what the command line calls it.
	Flag string
	// Of are the choices, the default first, and Value is the one that was made.
	Of    []string
	Value string
}

// Chosen is what was chosen of a part, or "" if there is no choice.
func (c *Console) Chosen(flag string) string {
	for _, p := range c.Parts {
		if p.Flag == flag {
			return p.Value
		}
	}
	return ""
}

// Formats are those in which results can be printed.
var Formats = []string{"text", "json"}

// Line prints one result.
func (c *Console) Line(verdict invariant.Verdict, expected bool, name, text string) {
	word := string(verdict)
	if !expected {
		word = strings.ToUpper(word)
	}
	fmt.Fprintf(c.Out, "%s  %-44s %s\n", c.paint(word, verdict, expected), name, text)
}

// Check says what is wrong with the world and the directory of a command line, and with
// the parts of the lab: only the lab has more than the first of each.
func (c *Console) Check(worlds []string) error {
	if !slices.Contains(worlds, c.World) {
		return fmt.Errorf("--backend %s: choose %s", c.World, phrase.OneOf(worlds))
	}
	for _, p := range c.Parts {
		if i := slices.Index(p.Of, p.Value); i < 0 || i > 0 && c.World != "lab" {
			if i > 0 {
				return fmt.Errorf("--%s %s: only the lab has it: add --backend lab", p.Flag, p.Value)
			}
			return fmt.Errorf("--%s %s: choose %s, in the lab", p.Flag, p.Value, phrase.OneOf(p.Of))
		}
	}
	if c.Format != "" && !slices.Contains(Formats, c.Format) {
		return fmt.Errorf("--output %s: choose %s", c.Format, phrase.OneOf(Formats))
	}
	if c.Dir == "" {
		return nil
	}
	if err := Writable(c.Dir); err != nil {
		return fmt.Errorf("--out %s: %w", c.Dir, err)
	}
	return nil
}

// Play plays a plan. The error has an exit code.
func (c *Console) Play(ctx context.Context, plan *scenarios.Plan, backend play.Backend) (*play.Outcome, error) {
	var listen func(history.Event)
	switch {
	case c.Trace:
		listen = func(e history.Event) { fmt.Fprintf(c.Talk, "%5d %s\n", e.Seq, e) }
	case c.Real:
		listen = func(e history.Event) {
			if layer := e.Kind.Layer(); layer == history.World || layer == history.Engine {
				fmt.Fprintf(c.Talk, "  %s\n", e)
			}
		}
	}
	outcome, err := play.Run(ctx, plan, backend, listen)
	if err != nil {
		switch name, code := plan.Metadata.Name, play.CodeOfUnplayed(err); {
		case code == exit.Environment:
			return nil, exit.Coded(code, err)
		case code == exit.Internal && ctx.Err() != nil:
			return nil, exit.Coded(exit.Unknown, fmt.Errorf("%s: interrupted", name))
		default:
			return nil, exit.Coded(code, fmt.Errorf("%s: %w", name, err))
		}
	}
	outcome.World, outcome.Version = c.World, version.Built()
	return outcome, nil
}

// Single plays a plan, reports on it and returns the exit code.
func (c *Console) Single(ctx context.Context, plan *scenarios.Plan, backend play.Backend) (code int, err error) {
	began := time.Now()
	outcome, err := c.Play(ctx, plan, backend)
	if err != nil {
		return 0, err
	}
	code = play.CodeOfOutcome(outcome)
	if verdict, _ := outcome.Verdict(); verdict == invariant.Violated && c.Another != nil {
		outcome.Nearest = c.nearest(ctx, plan)
	}
	failed := c.outcome(outcome, time.Since(began))
	if c.Twin != nil && outcome.Meets() != "" {
		if err := c.Beside(ctx, outcome); err != nil {
			return 0, err
		}
	}
	if err := failed; err != nil {
		fmt.Fprintf(c.Talk, "fencelab: %v\n", err)
		if code == exit.Held {
			code = exit.Internal
		}
	}
	return code, nil
}

// nearest returns a run of the same story that held and whose schedule is near to the
// plan's: without one of its deviations, or without any.
func (c *Console) nearest(ctx context.Context, plan *scenarios.Plan) *play.Outcome {
	quiet := *c
	quiet.Trace = false
	var fewer [][]scenarios.Deviation
	for i := range plan.Deviations[:min(nearestTried, len(plan.Deviations))] {
		fewer = append(fewer, slices.Delete(slices.Clone(plan.Deviations), i, i+1))
	}
	if len(plan.Deviations) > 1 {
		fewer = append(fewer, nil)
	}
	for _, deviations := range fewer {
		near, err := quiet.Play(ctx, plan.With(deviations), c.Another())
		if err != nil {
			return nil // it is only for comparison
		}
		if verdict, _ := near.VerdictOfSchedule(); verdict == invariant.Held {
			return near
		}
	}
	return nil
}

// nearestTried is how many deviations are left out, one by one, before all are.
const nearestTried = 8

// Beside plays the twin of a run, and prints both side by side. The error has an exit code.
func (c *Console) Beside(ctx context.Context, o *play.Outcome) error {
	twin, err := c.Twin(ctx, o.Plan)
	if err != nil {
		return exit.Coded(exit.Invalid, err)
	}
	fmt.Fprint(c.Out, Beside(o, twin))
	return nil
}

// Headline prints what came of a run in one line.
func (c *Console) Headline(o *play.Outcome) {
	mismatch := o.Meets()
	verdict, _ := o.Verdict()
	text := fmt.Sprintf("%s, %d events, digest %s", o.Duration().Round(time.Millisecond), o.History.Len(), o.History.Digest())
	if injected := o.Injected.String(); injected != "" {
		text += ", " + injected
	}
	if o.Plan.Spec.Expect.Violated != "" && mismatch == "" {
		text += ", as expected: " + o.Plan.Spec.Expect.Violated
	}
	c.Line(verdict, mismatch == "", o.Plan.Metadata.Name, text)
}

// outcome prints what came of a run that took so long, and saves what is worth keeping.
// The error is that nothing could be saved.
func (c *Console) outcome(o *play.Outcome, took time.Duration) error {
	mismatch := o.Meets()
	c.Headline(o)
	if c.Real {
		fmt.Fprintf(c.Out, "  wall time %s\n", took.Round(100*time.Millisecond))
	}
	if c.Real && mismatch == "" {
		for _, line := range Elapsed(o) {
			fmt.Fprintf(c.Out, "  %s\n", line)
		}
	}
	dir := c.Dir
	if dir == "" && mismatch != "" {
		dir = "out"
	}
	var failed error
	replay := ""
	if dir != "" {
		dir = filepath.Join(dir, fmt.Sprintf("%s-%s-%s", o.Plan.Metadata.Name, o.World, o.Plan.ID()))
		replay = c.Replay(dir)
		if failed = Save(o, dir, replay); failed != nil {
			dir, replay = "", "" // there is nothing to replay
		}
	}
	if mismatch != "" {
		fmt.Fprint(c.Out, Brief(o, dir, replay))
	}
	c.entry.ran(o, dir, replay)
	return failed
}

// Replay is the command that plays a saved run again. It calls this program as the
// user did, so that it works where the user is.
func (c *Console) Replay(dir string) string {
	command := fmt.Sprintf("%s replay %s", quoted(c.Program), quoted(filepath.Join(dir, "plan.txt")))
	if c.Real {
		command += " --backend " + c.World
	}
	for _, p := range c.Parts {
		if c.Real && p.Value != p.Of[0] {
			command += " --" + p.Flag + " " + p.Value
		}
	}
	return command
}

// quoted is a word as a shell reads it.
func quoted(word string) string {
	if word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./+:,@%=") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// paint colours a word on a terminal: green when all is as expected, red when not.
func (c *Console) paint(word string, verdict invariant.Verdict, expected bool) string {
	padded := fmt.Sprintf("%-8s", word)
	if !terminal(c.Out) || os.Getenv("NO_COLOR") != "" {
		return padded
	}
	colour := "31"
	switch {
	case expected:
		colour = "32"
	case verdict.Undecided():
		colour = "33"
	}
	return "\x1b[" + colour + "m" + padded + "\x1b[0m"
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Writable makes sure that reports can be saved in a directory, before a run that
// would be lost otherwise.
func Writable(dir string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		var probe *os.File
		if probe, err = os.CreateTemp(dir, ".fencelab-*"); err == nil {
			return errors.Join(probe.Close(), os.Remove(probe.Name()))
		}
	}
	return fmt.Errorf("%w; name a directory that can be written", err)
}
