package page

import (
	"math"
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// axis turns times into places. A race takes milliseconds, and minutes pass before
// it; so the wider a gap between two events is, the more of it is left out.
type axis struct {
	times  []time.Duration // at which something happens, ascending
	places []float64
}

const (
	// A gap of short is unit wide, and each doubling adds as much, up to most.
	short    = 5 * time.Millisecond
	unit     = 8.0
	most     = 96.0
	leftEdge = 12.0
	// narrow is the least width of the axis.
	narrow = 960.0
)

func newAxis(run *Run) *axis {
	times := []time.Duration{0}
	for _, e := range run.Events {
		times = append(times, e.At)
	}
	slices.Sort(times)
	a := &axis{times: slices.Compact(times)}
	at := 0.0
	for i, t := range a.times {
		if i > 0 {
			gap := float64(t-a.times[i-1]) / float64(short)
			at += min(most, unit*math.Log2(1+gap))
		}
		a.places = append(a.places, at)
	}
	if at > 0 && at < narrow {
		for i := range a.places {
			a.places[i] *= narrow / at
		}
	}
	return a
}

// place is where a time is.
func (a *axis) place(t time.Duration) float64 {
	i, exact := slices.BinarySearch(a.times, t)
	switch {
	case exact:
		return leftEdge + a.places[i]
	case i == 0:
		return leftEdge
	case i == len(a.times):
		return leftEdge + a.places[i-1]
	}
	before, after := a.times[i-1], a.times[i]
	share := float64(t-before) / float64(after-before)
	return leftEdge + a.places[i-1] + share*(a.places[i]-a.places[i-1])
}

func (a *axis) width() float64 { return round(a.places[len(a.places)-1] + 2*leftEdge + 60) }

// tick is a labelled place.
type tick struct {
	X    float64
	Text string
}

// apart is the least distance between two labels.
const apart = 76.0

// closest is the page's greatest zoom.
const closest = 4

// ticks are at events, where there is room for a label.
func (a *axis) ticks() []tick {
	var ticks []tick
	for i, t := range a.times {
		x := leftEdge + a.places[i]
		if len(ticks) == 0 || x-ticks[len(ticks)-1].X >= apart+1 {
			ticks = append(ticks, tick{round(x), history.Seconds(t)})
		}
	}
	return ticks
}

// cut is a gap between two events of which most is left out.
const cut = time.Second

// cuts are where the axis is cut, each with how long it is there.
func (a *axis) cuts() []tick {
	var cuts []tick
	for i, t := range a.times[1:] {
		if gap := t - a.times[i]; gap >= cut {
			cuts = append(cuts, tick{round(leftEdge + (a.places[i]+a.places[i+1])/2), gap.Round(100 * time.Millisecond).String()})
		}
	}
	return cuts
}
