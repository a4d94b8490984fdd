package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"github.com/fencelab/fencelab/scenarios/play"
)

// besideLength is how many lines show what two runs did differently, and besideWidth how many
// columns each of them has.
const besideLength, besideWidth = 20, 56

// Beside shows side by side what came of a run and of its twin, and what was done in each
// from where they part.
func Beside(o *play.Outcome, twin *play.Twin) string {
	mine, other := deeds(o, twin.Instead), deeds(twin.Outcome, nil)
	same := 0
	for same < len(mine) && same < len(other) && mine[same] == other[same] {
		same++
	}
	rows := abreast(mine[same:], other[same:])
	last := time.Duration(1<<63 - 1)
	if v := o.Violation(); v != nil {
		last = v.Second.At
	}
	var b strings.Builder
	line := func(at, left, right string) {
		text := fmt.Sprintf("  %10s  %-*s  %s", at, besideWidth, clipped(left), clipped(right))
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	line("", "this run", "its twin: fencelab's "+strings.Join(replacing(twin.Instead), ", "))
	line("", inWords(o), inWords(twin.Outcome))
	for _, missed := range list("the twin came to no such deed", twin.Missed) {
		b.WriteString("  " + missed + "\n")
	}
	if same > 0 {
		line(history.Seconds(mine[same-1].at), fmt.Sprintf("the first %d are the same, up to:", same), "")
		line("", mine[same-1].text, mine[same-1].text)
	}
	shown := 0
	for _, r := range rows {
		if shown == besideLength || r.at > last {
			break
		}
		line(history.Seconds(r.at), r.left, r.right)
		shown++
	}
	if more := len(rows) - shown; more > 0 {
		line("", fmt.Sprintf("and %d more", more), "")
	}
	return b.String()
}

// inWords is a verdict in a few words: "violated: at-most-one".
func inWords(o *play.Outcome) string {
	verdict, reason := o.Verdict()
	if v := o.Violation(); v != nil {
		return string(verdict) + ": " + v.Invariant
	}
	if reason == "" {
		return string(verdict)
	}
	return string(verdict) + ": " + phrase.FirstLine(reason)
}

// replacing says who is in whose place: "remediation for team".
func replacing(instead map[string]string) []string {
	var all []string
	for name, own := range instead { // order does not matter: sorted below
		if name == own {
			all = append(all, own)
		} else {
			all = append(all, own+" for "+name)
		}
	}
	slices.Sort(all)
	return all
}

func clipped(text string) string {
	if runes := []rune(text); len(runes) > besideWidth {
		return string(runes[:besideWidth-1]) + "…"
	}
	return text
}

// done is an action or a happening, in words common to both runs.
type done struct {
	at   time.Duration
	text string
}

// comparable is the least weight of what is set beside another run.
const comparable = 4

// deeds returns the events of a run that matter in its story. Controllers bear the names of their
// twins.
func deeds(o *play.Outcome, names map[string]string) []done {
	var all []done
	begun := false
	for _, e := range o.History.Events() {
		begun = begun || e.Kind == history.RunStarted
		if !begun || weights[e.Kind] < comparable || e.Kind == history.Deviated {
			continue
		}
		e.Actor = scenarios.Renamed(e.Actor, names)
		all = append(all, done{e.At, withAuthor(&e)})
	}
	return all
}

// beside is a moment of two runs.
type beside struct {
	at          time.Duration
	left, right string
}

// abreast sets two runs beside each other by time. What both did at the same moment is one row.
func abreast(mine, other []done) []beside {
	var rows []beside
	for _, d := range mine {
		rows = append(rows, beside{at: d.at, left: d.text})
	}
	for _, d := range other {
		i := slices.IndexFunc(rows, func(r beside) bool { return r.at == d.at && r.left == d.text && r.right == "" })
		if i >= 0 {
			rows[i].right = d.text
		} else {
			rows = append(rows, beside{at: d.at, right: d.text})
		}
	}
	slices.SortStableFunc(rows, func(a, b beside) int { return cmp.Compare(a.at, b.at) })
	return rows
}
