// Package report prints what comes of runs and searches and writes it into files. It plays
// nothing: a Console is a sink of what a campaign plays.
package report

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/fencelab/fencelab/scenarios/campaign"
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
	// Parts are the replaceable parts of a lab.
	Parts []*Part
	// Changes says that the controllers of a plan are a module's, whose authors change them.
	Changes bool
	// Trace says that every event is printed as it happens.
	Trace bool
	// Dir is where all runs are saved. Without one, those that did not come out as
	// expected are saved below out.
	Dir string
	// Format is the form of the output: text, or json for programs.
	Format string
	// Quiet says that runs that came out as expected are only counted, of a Total of scenarios.
	Quiet bool
	Total int
	// progress counts them, and passed are how many there were.
	progress *Progress
	passed   int
	// Program is this program as the user called it, with what comes before its verbs.
	Program []string
}

// Part is a choice of what the lab is made of.
type Part struct {
	// Flag is its flag on the command line.
	Flag string
	// Of are the choices, the default first, and Value is the one that was made.
	Of    []string
	Value string
}

// Chosen returns the choice for a part, or "" if there is no choice.
func (c *Console) Chosen(flag string) string {
	for _, p := range c.Parts {
		if p.Flag == flag {
			return p.Value
		}
	}
	return ""
}

// Formats are the forms of output for results.
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

// Listen implements campaign.Sink: with Trace every event is printed, and in a world where time
// passes those of the world and of the scenario are.
func (c *Console) Listen() func(history.Event) {
	switch {
	case c.Trace:
		return func(e history.Event) { fmt.Fprintf(c.Talk, "%5d %s\n", e.Seq, e) }
	case c.Real:
		return func(e history.Event) {
			if layer := e.Kind.Layer(); layer == history.World || layer == history.Engine {
				fmt.Fprintf(c.Talk, "  %s\n", e)
			}
		}
	}
	return nil
}

// Print and Say implement campaign.Sink.
func (c *Console) Print(format string, args ...any) { fmt.Fprintf(c.Out, format, args...) }

func (c *Console) Say(format string, args ...any) { fmt.Fprintf(c.Talk, format, args...) }

// Keeps implements campaign.Sink.
func (c *Console) Keeps() bool { return c.Dir != "" || c.Format == "json" || c.Trace || c.Real }

// Beside implements campaign.Sink: it prints both runs side by side.
func (c *Console) Beside(o *play.Outcome, twin *play.Twin) { fmt.Fprint(c.Out, Beside(o, twin)) }

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

// Outcome implements campaign.Sink: it prints what came of a run that took so long, and saves
// what is worth keeping.
func (c *Console) Outcome(o *play.Outcome, took time.Duration) (*campaign.Shown, error) {
	mismatch := o.Meets()
	if c.Quiet && mismatch == "" && c.Dir == "" {
		c.counted()
		if !c.Keeps() {
			return &campaign.Shown{}, nil
		}
		return &campaign.Shown{Report: JSON(o, "")}, nil
	}
	if quiet := c.Quiet && mismatch == ""; quiet {
		defer c.counted()
		out := c.Out
		c.Out = io.Discard
		defer func() { c.Out = out }()
	} else if c.progress != nil {
		c.progress.Clear()
	}
	c.Headline(o)
	if c.Real {
		fmt.Fprintf(c.Out, "  wall time %s\n", took.Round(100*time.Millisecond))
	}
	if mismatch == "" { // else the brief report has them
		for _, note := range o.Notes {
			fmt.Fprintf(c.Out, "  note: %s\n", note)
		}
	}
	if c.Real && mismatch == "" {
		for _, line := range Elapsed(o) {
			fmt.Fprintf(c.Out, "  %s\n", line)
		}
	}
	if mismatch == "" && !c.Keeps() {
		return &campaign.Shown{}, nil
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
	brief := Brief(o, dir, replay)
	if mismatch != "" {
		fmt.Fprint(c.Out, brief)
	}
	return &campaign.Shown{Directory: dir, Report: JSON(o, replay), Text: brief, Replay: replay}, failed
}

// counted says how many scenarios have come out as expected so far.
func (c *Console) counted() {
	if c.progress == nil {
		c.progress = NewProgress(c.Talk, "as expected", c.Total)
		c.progress.of = "scenarios"
	}
	if c.passed++; c.passed == c.Total {
		c.progress.Clear()
		return
	}
	c.progress.At(c.passed, 0)
}

// Finish saves the ledger of a suite in Dir, if there is one, and prints it on out in the format
// json. It returns how the suite ended, or else that it couldn't.
func (c *Console) Finish(ledger *campaign.Ledger, out io.Writer, ended error) error {
	failed := error(nil)
	if c.Dir != "" {
		failed = saveLedger(ledger, c.Dir)
	}
	if c.Quiet && c.Dir != "" && failed == nil {
		c.Say("page: %s\n", filepath.Join(c.Dir, "index.html"))
	}
	if c.Format == "json" && failed == nil {
		var report []byte
		if report, failed = ledgerJSON(ledger); failed == nil {
			_, failed = out.Write(report)
		}
	}
	if failed != nil {
		c.Say("fencelab: %v\n", failed)
		if ended == nil {
			ended = exit.Ended(exit.Internal)
		}
	}
	return ended
}

// Ledger is an empty one of a suite with this strategy and seed.
func (c *Console) Ledger(strategy string, seed uint64) *campaign.Ledger {
	ledger := &campaign.Ledger{Version: version.Built(), Backend: c.World, Seed: seed, Strategy: strategy, Began: time.Now(), Results: []*campaign.Entry{}}
	if c.Real {
		ledger.Controllers, ledger.Hosts, ledger.Cluster, ledger.Power = c.Chosen("controllers"), c.Chosen("hosts"), c.Chosen("cluster"), c.Chosen("power")
	}
	return ledger
}

// Replay is the command that plays a saved run again. It calls this program as the
// user did, so that it works where the user is.
func (c *Console) Replay(dir string) string {
	var words []string
	for _, word := range slices.Concat(c.Program, []string{"replay", filepath.Join(dir, "plan.txt")}) {
		words = append(words, quoted(word))
	}
	command := strings.Join(words, " ")
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
