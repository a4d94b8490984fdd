package page

import (
	"fmt"
	"slices"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Held is the directory beside a report that has the nearest run that held.
const Held = "held"

// beside is the run drawn beside the nearest one that held: the lanes in which they
// differ, in pairs.
type beside struct {
	// Events counts the run's events up to the first difference. Here and There are the next
	// event of each run, nil at its end.
	Events        int
	Here, There   *moment
	Rows          []row
	Ticks         []tick
	Grid          string
	X             float64
	Width, Height float64
}

// part returns the first two events that differ, and the number of equal ones before them. It skips
// Deviated events: a deviation is the cause of a difference, and none itself.
func part(here, there []history.Event) (same int, a, b *history.Event) {
	skip := func(events []history.Event) []history.Event {
		return slices.DeleteFunc(slices.Clone(events), func(e history.Event) bool { return e.Kind == history.Deviated })
	}
	here, there = skip(here), skip(there)
	for same < len(here) && same < len(there) {
		x, y := here[same], there[same]
		if x.Seq, y.Seq = 0, 0; !history.Same(&x, &y) {
			break
		}
		same++
	}
	if same < len(here) {
		a = &here[same]
	}
	if same < len(there) {
		b = &there[same]
	}
	return same, a, b
}

// besideHeld draws a run beside the nearest one that held; nil without one.
func besideHeld(run *Run) *beside {
	if run.Held == nil {
		return nil
	}
	v := &beside{}
	var here, there *history.Event
	v.Events, here, there = part(run.Events, run.Held.Events)
	both := &Run{Events: slices.Concat(run.Events, run.Held.Events)}
	axis := newAxis(both)
	v.Width, v.Ticks = axis.width(), axis.ticks()
	first := both.Events[len(both.Events)-1].At
	for _, e := range []struct {
		event *history.Event
		to    **moment
	}{{here, &v.Here}, {there, &v.There}} {
		if e.event != nil {
			m := momentOf(e.event)
			*e.to, first = &m, min(first, e.event.At)
		}
	}
	v.X = round(axis.place(first))
	held := Lanes(run.Held)
	y := float64(axisHeight)
	for _, group := range Lanes(run) {
		began := len(v.Rows)
		for _, lane := range group.Lanes {
			if len(lane.Bands) == 0 {
				continue
			}
			other := find(held, lane.ID)
			if slices.Equal(lane.Bands, other.Bands) {
				continue
			}
			if began == len(v.Rows) {
				v.Rows = append(v.Rows, row{Group: group.Name, Y: y})
				y += groupHeight
			}
			for i, l := range []*Lane{lane, other} {
				r := row{ID: l.ID, Name: lane.Name, Help: "this run", Y: y}
				if i == 1 {
					r.ID, r.Name, r.Help = "held "+lane.ID, "\u2003in the run that held", "the run that held"
				}
				r.bands(l, axis)
				v.Rows = append(v.Rows, r)
				y += laneHeight
			}
		}
	}
	v.Height = y + 8
	for _, t := range v.Ticks {
		v.Grid += fmt.Sprintf("M%g 22V%g", t.X, v.Height)
	}
	return v
}

// find returns the lane of an ID, an empty one if there is none.
func find(groups []Group, id string) *Lane {
	for _, group := range groups {
		for _, lane := range group.Lanes {
			if lane.ID == id {
				return lane
			}
		}
	}
	return &Lane{ID: id}
}
