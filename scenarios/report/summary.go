package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// summaryOf is summary.md, for the summary of a job: what needs attention first.
func summaryOf(l *campaign.Ledger) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "## fencelab: %s\n\n", word(l))
	fmt.Fprintf(&b, "%s in %s: %d passed (%d of them by a violation that was expected), %d failed, %d unknown, %d errors, %d skipped. ",
		phrase.Count(l.Counts.Scenarios, "scenario"), time.Duration(l.Wall*float64(time.Second)).Round(time.Millisecond),
		l.Counts.Passed, l.Counts.Expected, l.Counts.Failed, l.Counts.Unknown, l.Counts.Errors, l.Counts.Skipped)
	fmt.Fprintf(&b, "World %s, seed %d, strategy %s, fencelab %s.\n", l.Backend, l.Seed, l.Strategy, Cell(l.Version))
	var bad, skipped []*campaign.Entry
	for _, e := range l.Results {
		switch e.Status {
		case campaign.Passed:
		case campaign.Skipped:
			skipped = append(skipped, e)
		default:
			bad = append(bad, e)
		}
	}
	if len(bad) > 0 {
		b.WriteString("\n| scenario | result | why | play it again |\n|---|---|---|---|\n")
	}
	for _, e := range bad {
		replays := ""
		for _, run := range e.Runs {
			if run.Replay != "" {
				replays += Cell(run.Replay) + "<br>"
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", Cell(e.Scenario), e.Status, Cell(e.Reason), strings.TrimSuffix(replays, "<br>"))
	}
	for _, e := range bad {
		if e.Search == nil || len(e.Search.Failures) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s: %s of failure\n\n| schedules | first | what they have in common |\n|---|---|---|\n",
			Cell(e.Scenario), phrase.Count(len(e.Search.Failures), "kind"))
		for _, f := range e.Search.Failures {
			fmt.Fprintf(&b, "| %d | %d | %s |\n", f.Schedules, f.First, Cell(f.What()))
		}
	}
	if len(skipped) > 0 {
		b.WriteString("\n| skipped | why |\n|---|---|\n")
	}
	for _, e := range skipped {
		fmt.Fprintf(&b, "| %s | %s |\n", Cell(e.Scenario), Cell(e.Reason))
	}
	return []byte(b.String())
}

// word sums an invocation up.
func word(l *campaign.Ledger) string {
	if good(l) {
		return "as expected"
	}
	return fmt.Sprintf("%d not as expected", l.Counts.Failed+l.Counts.Unknown+l.Counts.Errors)
}

// good says that all of an invocation came out as expected.
func good(l *campaign.Ledger) bool { return l.Counts.Failed+l.Counts.Unknown+l.Counts.Errors == 0 }

// Cell is a text in a table of Markdown, as it is.
func Cell(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.NewReplacer(`\`, `\\`, "|", `\|`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "&", "&amp;", "<", "&lt;", ">", "&gt;", "@", "&#64;", "#", "&#35;").Replace(text)
}
