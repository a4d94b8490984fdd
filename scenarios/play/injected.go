package play

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// Injected counts the failures that a run planned and those that took effect. A fault that bent
// nothing and a crash that hit no process test nothing.
type Injected struct {
	Faults, Crashes, Deviations Count
	// Idle names those that had no effect, a clause each.
	Idle []string
}

// Count is how many there were, and how many of them had an effect.
type Count struct {
	Took int `json:"took"`
	Of   int `json:"of"`
}

func (c Count) String() string { return fmt.Sprintf("%d of %d", c.Took, c.Of) }

func (c *Count) add(took bool) {
	c.Of++
	if took {
		c.Took++
	}
}

// String lists the counts of what there was: "faults 1 of 2, crashes 0 of 1".
func (i Injected) String() string {
	var parts []string
	for _, part := range [...]struct {
		what  string
		count Count
	}{{"faults", i.Faults}, {"crashes", i.Crashes}, {"deviations", i.Deviations}} {
		if part.count.Of > 0 {
			parts = append(parts, part.what+" "+part.count.String())
		}
	}
	return strings.Join(parts, ", ")
}

// injections follows what a plan injects through a run.
type injections struct {
	all []injection
}

// injection is one of them, and whether it took effect.
type injection struct {
	scenarios.Injection
	took bool
}

// expect notes the deviations that a plan names.
func (i *injections) expect(deviations []scenarios.Deviation) {
	for _, d := range deviations {
		why := "no such step came"
		if d.Deed != "" {
			why = "no step that came was " + d.Deed
		}
		if d.After != "" {
			why = "one of the two steps never came, or not in time"
		}
		i.all = append(i.all, injection{Injection: scenarios.Injection{
			Name: fmt.Sprintf("the deviation %s was never taken: %s", d, why), Event: history.Deviated, Value: d.String(),
		}})
	}
}

// add notes the operation of a step, counted from 1, if it can come to nothing.
func (i *injections) add(op *scenarios.Op, step int) {
	if shows, can := op.Shows(step); can {
		i.all = append(i.all, injection{Injection: shows})
	}
}

// observe looks for effects in an event, and returns the time that it takes from
// the story by a delay of the schedule.
func (i *injections) observe(e history.Event) time.Duration {
	for j := range i.all {
		in := &i.all[j]
		in.took = in.took || in.Injection.Matches(&e)
	}
	if e.Kind != history.Deviated || e.Key == "" {
		return 0
	}
	delay, err := time.ParseDuration(e.Key)
	if err != nil {
		return 0 // a world's own way to put it
	}
	return delay
}

// Disordered reports whether an order of the plan did not come about.
func (o *Outcome) Disordered() bool {
	return slices.ContainsFunc(o.Plan.Deviations, func(d scenarios.Deviation) bool {
		return d.After != "" && !slices.ContainsFunc(o.History.Events(), func(e history.Event) bool { return e.Kind == history.Deviated && e.Value == d.String() })
	})
}

func (i *injections) counted() Injected {
	var sum Injected
	for _, in := range i.all {
		switch in.Event {
		case history.BMCFault, history.APIFault:
			sum.Faults.add(in.took)
		case history.ControllerCrashed:
			sum.Crashes.add(in.took)
		case history.Deviated:
			sum.Deviations.add(in.took)
		}
		if !in.took {
			sum.Idle = append(sum.Idle, in.Name)
		}
	}
	return sum
}
