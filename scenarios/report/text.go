package report

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/guarantee"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/page"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"github.com/fencelab/fencelab/scenarios/play"
)

// storyLength bounds how many events the report shows before a violation.
const storyLength = 24

// deviationsShown bounds how many deviations the report shows.
const deviationsShown = 10

// Text is the report for people. Replay is the command that plays the run again.
func Text(o *play.Outcome, replay string) string {
	var b strings.Builder
	verdict, reason := o.Verdict()
	fmt.Fprintf(&b, "%s: %s\n", o.Plan.Metadata.Name, strings.ToUpper(string(verdict)))
	if reason != "" {
		fmt.Fprintf(&b, "  %s\n", reason)
	}
	if mismatch := o.Meets(); mismatch != "" && mismatch != reason {
		fmt.Fprintf(&b, "  %s\n", mismatch)
	}
	fmt.Fprintf(&b, "\nGuarantees\n")
	for _, r := range o.Results {
		fmt.Fprintf(&b, "  %-24s %-9s", r.Invariant, r.Verdict)
		switch {
		case r.Reason != "":
			fmt.Fprintf(&b, " %s\n", r.Reason)
		default:
			fmt.Fprintf(&b, " put to the test %s%s\n", phrase.Times(r.Judged), excused(r.Excused))
			if r.Suspended != "" {
				fmt.Fprintf(&b, "  %-24s %-9s a clause was suspended: %s\n", "", "", r.Suspended)
			}
		}
		if r.Verdict == invariant.Violated {
			if inv, err := guarantee.Lookup(r.Invariant); err == nil {
				fmt.Fprintf(&b, "  %-24s %-9s claim: %s (seed %s)\n", "", "", inv.Claim, inv.Seed)
			}
		}
	}
	if excuses := o.Excuses(); len(excuses) > 0 {
		fmt.Fprintf(&b, "\nKept only because somebody was held up\n")
		for _, e := range excuses {
			fmt.Fprintf(&b, "  %-24s %s\n", e.Invariant, strings.Join(because(&e), "\n"+strings.Repeat(" ", 27)))
		}
	}
	if v := o.Violation(); v != nil {
		fmt.Fprintf(&b, "\nWhat led to it (the two events that broke the claim are marked)\n")
		story(o, &b, v.Second.Seq, v.First.Seq, v.Second.Seq)
	} else if verdict.Undecided() {
		fmt.Fprintf(&b, "\nThe last events of the story\n")
		story(o, &b, storyEnd(o))
		if open := scenarios.InForce(o.Plan.Spec.Steps[:o.Steps]); len(open) > 0 {
			fmt.Fprintf(&b, "Still in force then: %s\n", strings.Join(open, ", "))
		}
	}
	fmt.Fprintf(&b, "\nRun\n  seed %d, %d of %d steps done, %d events in %s, digest %s\n",
		o.Plan.Seed, o.Steps, len(o.Plan.Spec.Steps), o.History.Len(), o.Duration().Round(time.Millisecond), o.History.Digest())
	if injected := o.Injected.String(); injected != "" {
		fmt.Fprintf(&b, "  had an effect: %s\n", injected)
	}
	for _, idle := range o.Injected.Idle {
		fmt.Fprintf(&b, "  without effect: %s\n", idle)
	}
	for _, note := range o.Notes {
		fmt.Fprintf(&b, "  note: %s\n", note)
	}
	if s := o.Plan.Shrunk; s != nil {
		fmt.Fprintf(&b, "  shrunk from %s to %d in %s", phrase.Count(s.From, "deviation"), len(o.Plan.Deviations), phrase.Count(s.Tried, "schedule"))
		if s.Needed {
			fmt.Fprintf(&b, ": without any one of them, or with a slighter one, it does not fail in the same way")
		}
		fmt.Fprintln(&b)
	}
	for i, d := range deviations(o) {
		if i == deviationsShown {
			fmt.Fprintf(&b, "  ... and %d more, in the plan\n", len(o.Plan.Deviations)-i)
			break
		}
		fmt.Fprintf(&b, "  deviation: %s\n", d)
	}
	if replay != "" {
		fmt.Fprintf(&b, "  replay: %s\n", replay)
	}
	return b.String()
}

// excused says how many of the rulings only a hindrance saved.
func excused(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of them excused", n)
}

// reasonsShown bounds how much the report shows of what held somebody up.
const reasonsShown = 3

// because describes a hindrance: its cause, its party, and its time.
func because(e *invariant.Excuse) []string {
	var lines []string
	for i, held := range e.Because {
		if i == reasonsShown {
			return append(lines, fmt.Sprintf("... and %d more like that", len(e.Because)-i))
		}
		lines = append(lines, held.String())
	}
	return lines
}

// storyEnd is the last event before the faults were withdrawn, or of all.
func storyEnd(o *play.Outcome) int {
	for _, e := range o.History.Events() {
		if e.Kind == history.Healed {
			return e.Seq - 1
		}
	}
	return o.History.Len()
}

// story prints the last events up to one, and those that are marked wherever they
// are. Effects are left out: they repeat what the API and BMC events say.
func story(o *play.Outcome, b *strings.Builder, last int, marked ...int) {
	var events []history.Event
	for _, e := range o.History.Events()[:last] {
		switch e.Kind {
		case history.ControllerEffect, history.ControllerError, history.NodeLabels:
			if !slices.Contains(marked, e.Seq) {
				continue
			}
		}
		events = append(events, e)
	}
	skipped := 0
	for i, e := range events {
		mark := " "
		if slices.Contains(marked, e.Seq) {
			mark = ">"
		}
		if mark == " " && i < len(events)-storyLength {
			skipped++
			continue
		}
		if skipped > 0 {
			fmt.Fprintf(b, "      ... %s\n", phrase.Count(skipped, "more event"))
			skipped = 0
		}
		fmt.Fprintf(b, "  %s %4d %s\n", mark, e.Seq, e)
	}
}

// Elapsed are the times between the scenario's landmarks, for reports of real
// runs: from the first fault to fenced, and to recovered.
func Elapsed(o *play.Outcome) []string {
	var start time.Duration
	var lines []string
	seen := map[history.Kind]bool{}
	for _, e := range o.History.Events() {
		switch e.Kind {
		case history.RunStarted:
			start = e.At
			lines = append(lines, fmt.Sprintf("%8.3fs topology up", e.At.Seconds()))
		case history.OpApplied:
			lines = append(lines, fmt.Sprintf("%8.3fs %s", (e.At-start).Seconds(), e.Value))
		case history.PowerOff, history.NodeDeleted, history.PowerOn, history.NodeCreated, history.WorkloadStarted, history.BootComplete:
			if start > 0 && !seen[e.Kind] {
				seen[e.Kind] = true
				lines = append(lines, fmt.Sprintf("%8.3fs %s", (e.At-start).Seconds(), e.Phrase()))
			}
		}
	}
	return lines
}

// Save writes everything that is known of the run into a directory: the plan,
// the history, the report for people and for programs, the backend's evidence, and a
// page that shows it all.
func Save(o *play.Outcome, dir, replay string) error {
	if near := o.Nearest; near != nil {
		if err := Save(near, filepath.Join(dir, page.Held), ""); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save the report: %w", err)
	}
	var h strings.Builder
	if _, err := o.History.WriteTo(&h); err != nil {
		return fmt.Errorf("save the history: %w", err)
	}
	plan := *o.Plan
	plan.Digest, plan.Version = o.History.Digest(), o.Version
	if here, err := os.Getwd(); err == nil {
		plan = *plan.Portable(here)
	}
	text := Text(o, replay)
	if o.Version != "" {
		text += fmt.Sprintf("  backend %s, fencelab %s\n", o.World, o.Version)
	}
	files := []play.Artifact{
		{Name: "plan.txt", Data: plan.Text()}, {Name: "history.jsonl", Data: []byte(h.String())},
		{Name: "report.txt", Data: []byte(text)}, {Name: "report.json", Data: JSON(o, replay)},
	}
	for _, f := range append(files, o.Artifacts...) {
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f.Name)), f.Data, 0o644); err != nil {
			return fmt.Errorf("save the report: %w", err)
		}
	}
	return page.Write(os.DirFS(dir), filepath.Join(dir, page.Name))
}
