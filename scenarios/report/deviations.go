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

// deviations say what each deviation of the plan did, in words, and how the plan names its step. Only the trace knows what a
// step of the simulator does; one that never came is told by its name.
func deviations(o *play.Outcome) []string {
	var trace []page.Entry
	if run, err := Look(o); err == nil {
		trace = run.Trace
	}
	var told []string
	for _, d := range o.Plan.Deviations {
		told = append(told, deviation(trace, d))
	}
	return told
}

func deviation(trace []page.Entry, d scenarios.Deviation) string {
	if deed, err := scenarios.ParseDeed(d.Step); scenarios.NamesDeed(d.Step) && err == nil {
		return fmt.Sprintf("%s (%s)", d.Tell(deed.Actor, deed.Does), d.Step)
	}
	at := slices.IndexFunc(trace, func(e page.Entry) bool { return e.What == "deviated" && e.Key == d.String() })
	if at < 0 {
		return d.String()
	}
	text := d.Tell(trace[at].Process, trace[at].Action)
	if said := writes(trace[at:], d); said != "" {
		text += ": " + said
	}
	return fmt.Sprintf("%s (%s)", text, d.Step)
}

// fieldsTold bounds how many fields of a write are told.
const fieldsTold = 2

// writes is what the step that deviates first changed of the object that it names, in a trace that begins with it.
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
