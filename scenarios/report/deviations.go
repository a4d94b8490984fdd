package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/page"
	"github.com/fencelab/fencelab/scenarios/play"
)

// deviations describes the effect of each deviation of the plan, and the name of its step in the
// plan. Only the trace knows the work of the simulator's steps; one that never came is described by
// its name.
func deviations(o *play.Outcome) (told []string) {
	for _, d := range deviated(o) {
		switch {
		case d.words == "":
			told = append(told, d.String())
		case d.writes == "":
			told = append(told, fmt.Sprintf("%s (%s)", d.words, d.Step))
		default:
			told = append(told, fmt.Sprintf("%s: %s (%s)", d.words, d.writes, d.Step))
		}
	}
	return told
}

// Told says in words what each deviation did that came, without the name of its step.
func Told(o *play.Outcome) (told []string) {
	for _, d := range deviated(o) {
		if d.words != "" {
			told = append(told, d.words)
		}
	}
	return told
}

// deviation is one of a plan, with what it did in words and what its step wrote, as far as that is
// known.
type deviation struct {
	scenarios.Deviation
	words, writes string
}

// deviated are the deviations of a plan, as they came out.
func deviated(o *play.Outcome) (all []deviation) {
	var trace []page.Entry
	if run, err := Look(o); err == nil {
		trace = run.Trace
	}
	for _, d := range o.Plan.Deviations {
		told := deviation{Deviation: d}
		at := slices.IndexFunc(trace, func(e page.Entry) bool { return e.What == "deviated" && e.Key == d.String() })
		if deed, err := scenarios.ParseDeed(d.Step); scenarios.NamesDeed(d.Step) && err == nil {
			told.words = d.Tell(deed.Actor, deed.Does, "")
		} else if at >= 0 {
			told.words, told.writes = d.Tell(trace[at].Process, trace[at].Action, trace[at].After), writes(trace[at:], d)
		} else if at = slices.IndexFunc(trace, func(e page.Entry) bool { return d.After != "" && e.What == "deviated" && e.Key == d.Waiting() }); at >= 0 {
			told.words = scenarios.Possessive(trace[at].Process, trace[at].Action) + " waited in vain for " + d.After
		}
		all = append(all, told)
	}
	return all
}

// fieldsTold bounds how many fields of a write are listed.
const fieldsTold = 2

// writes describes the first changes that the deviating step made to the object that it names, in a
// trace that begins with it.
func writes(trace []page.Entry, d scenarios.Deviation) string {
	step, until := trace[0], trace[0].At
	if d.Fault.HasExtent() {
		until += time.Duration(d.Delay)
	}
	_, object, _ := strings.Cut(step.Action, " ")
	for _, e := range trace[1:] {
		if e.What != "changed" || e.Process != step.Process || e.Object != object || e.At < step.At || e.At > until {
			continue
		}
		var fields []string
		for _, f := range e.Fields {
			if len(fields) == fieldsTold {
				fields = append(fields, "...")
				break
			}
			value := f.Is
			if value == "" {
				value = "gone"
			}
			fields = append(fields, f.Path+" "+value)
		}
		return strings.Join(fields, ", ")
	}
	return ""
}
