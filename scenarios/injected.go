package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Injected counts what was to go wrong in a run, and what of it did. A fault that
// bent nothing and a crash of nobody test nothing.
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

// injection is a fault, a crash or a deviation. It takes effect with the event
// that says so: of this kind, with this actor and value where they are given.
type injection struct {
	name         string
	event        history.Kind
	actor, value string
	took         bool
}

// expect notes the deviations that a plan names.
func (i *injections) expect(deviations []Deviation) {
	for _, d := range deviations {
		i.all = append(i.all, injection{
			name: fmt.Sprintf("the deviation %s was never taken: no such step came", d), event: history.Deviated, value: d.String(),
		})
	}
}

// add notes a step's operation, if that is one which can come to nothing.
func (i *injections) add(op Op, step int) {
	switch {
	case op.AddFault != nil:
		i.all = append(i.all, injection{
			name:  fmt.Sprintf("the fault %s of step %d bent no request", op.AddFault.Name, step+1),
			event: history.BMCFault, value: op.AddFault.Name,
		})
	case op.FailAPI != nil:
		i.all = append(i.all, injection{
			name:  fmt.Sprintf("step %d (%s) refused no request", step+1, op),
			event: history.APIFault, actor: op.FailAPI.Controller, value: fmt.Sprint(op.FailAPI.Code),
		})
	case op.Crash != nil:
		i.all = append(i.all, injection{
			name:  fmt.Sprintf("step %d (%s) crashed nobody", step+1, op),
			event: history.ControllerCrashed, actor: op.Crash.Controller,
		})
	}
}

// observe looks for effects in an event, and returns the time that it takes from
// the story by a delay of the schedule.
func (i *injections) observe(e history.Event) time.Duration {
	for j := range i.all {
		in := &i.all[j]
		if !in.took && in.event == e.Kind && matches(in.actor, e.Actor) && matches(in.value, e.Value) {
			in.took = true
		}
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

func (i *injections) counted() Injected {
	var sum Injected
	for _, in := range i.all {
		switch in.event {
		case history.BMCFault, history.APIFault:
			sum.Faults.add(in.took)
		case history.ControllerCrashed:
			sum.Crashes.add(in.took)
		case history.Deviated:
			sum.Deviations.add(in.took)
		}
		if !in.took {
			sum.Idle = append(sum.Idle, in.name)
		}
	}
	return sum
}

// inForce names what the steps have begun to bend and not ended, in order.
func inForce(steps []Step) []string {
	var open []string
	end := func(what string) {
		open = slices.DeleteFunc(open, func(s string) bool { return strings.HasPrefix(s, what+" (step ") })
	}
	for i := range steps {
		begin := func(what string) {
			end(what)
			open = append(open, fmt.Sprintf("%s (step %d)", what, i+1))
		}
		switch op := steps[i].Do; {
		case op == nil:
		case op.Cut != nil:
			begin(op.Cut.Host + " is cut off")
		case op.Restore != nil:
			end(op.Restore.Host + " is cut off")
		case op.Pause != nil:
			begin(op.Pause.Host + " is paused")
		case op.Resume != nil:
			end(op.Resume.Host + " is paused")
		case op.AddFault != nil:
			begin("fault " + op.AddFault.Name + " of the BMC of " + op.AddFault.Host)
		case op.RemoveFault != nil:
			open = slices.DeleteFunc(open, func(s string) bool { return strings.HasPrefix(s, "fault "+op.RemoveFault.Name+" of ") })
		case op.FreezeCache != nil:
			begin(op.FreezeCache.Kind + " is frozen in the cache of " + op.FreezeCache.Controller)
		case op.ThawCache != nil:
			end(op.ThawCache.Kind + " is frozen in the cache of " + op.ThawCache.Controller)
		case op.Crash != nil && op.Crash.Each:
			begin(op.Crash.Controller + " crashes at each of its effects")
		case op.StartSecond != nil:
			begin("there is a second " + op.StartSecond.Controller)
		case op.StopSecond != nil:
			end("there is a second " + op.StopSecond.Controller)
		case op.PauseController != nil:
			begin(op.PauseController.Controller + " stands still")
		case op.ResumeController != nil:
			end(op.ResumeController.Controller + " stands still")
		case op.FailAPI != nil && op.FailAPI.Times == 0:
			begin("the API server refuses requests")
		case op.APIOutage != nil:
			begin("the API server is away")
		case op.APIRestore != nil:
			end("the API server refuses requests")
			end("the API server is away")
		case op.SetClock != nil:
			clock := "the clock of " + op.SetClock.Controller + op.SetClock.Host + " is wrong"
			if end(clock); op.SetClock.Offset() != 0 {
				begin(clock)
			}
		case op.Heal != nil:
			open = nil
		}
	}
	return open
}
