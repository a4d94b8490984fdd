// Package fidelity compares runs of a story in a lab, in another one, or in the simulator, and says
// what they must have in common.
package fidelity

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
)

// ordered lists the events of a host that must come in the same order in every run of a story:
// changes of its power, changes of the objects by which it was fenced, and what frees its volume.
var ordered = []history.Kind{
	history.PowerOn, history.PowerOff, history.WatchdogFired, history.BootComplete,
	history.NodeDeleted, history.NodeCreated, history.NodeCordoned, history.NodeUncordoned,
	history.AnnotationSet, history.AnnotationRemoved, history.FenceRequested, history.FenceEnded,
	history.NodeOutOfService, history.NodeInService, history.DetachAsked, history.VolumeAttached, history.VolumeDetached,
	history.StorageFenceAsked, history.StorageUnfenceAsked, history.VolumeFenced, history.VolumeUnfenced,
}

// own lists the events that a host causes itself, as soon as it gets to them. The order of the
// controllers' events is the same without them.
var own = []history.Kind{history.BootComplete, history.NodeCreated}

// Orders are the events of each host in a story, from its beginning on, that are compared, but for
// those of the kinds that are left out.
func Orders(events []history.Event, but ...history.Kind) map[string][]string {
	of := make(map[string][]string)
	began := false
	for i := range events {
		e := &events[i]
		began = began || e.Kind == history.RunStarted
		// What the story itself does to objects, and its users, comes when its steps do.
		told := e.Actor == string(history.Engine) || e.Actor == history.User
		if began && e.Host != "" && slices.Contains(ordered, e.Kind) && !slices.Contains(but, e.Kind) && !(told && e.Object != "") {
			of[e.Host] = append(of[e.Host], strings.TrimSpace(string(e.Kind)+" "+e.Key))
		}
	}
	return of
}

// Telling is a run of a story, and where it was played: "in the lab".
type Telling struct {
	Where  string
	Orders map[string][]string // by host
}

// Differences lists where the orders of two runs differ, by host. A violation that ended both runs
// did so at each one's own time: then only events that both had seen by then count.
func Differences(one, other Telling, ended bool) (all []string) {
	for host := range union(one.Orders, other.Orders) {
		a, b := one.Orders[host], other.Orders[host]
		if ended {
			n := min(len(a), len(b))
			a, b = a[:n], b[:n]
		}
		if !slices.Equal(a, b) {
			at := 0
			for at < len(a) && at < len(b) && a[at] == b[at] {
				at++
			}
			all = append(all, fmt.Sprintf("%s, after %d events of its own: %s %s, %s %s", host, at, next(a, at), one.Where, next(b, at), other.Where))
		}
	}
	slices.Sort(all)
	return all
}

func union(a, b map[string][]string) map[string]bool {
	keys := make(map[string]bool)
	for _, m := range []map[string][]string{a, b} {
		for key := range m {
			keys[key] = true
		}
	}
	return keys
}

func next(of []string, at int) string {
	if at == len(of) {
		return "nothing more"
	}
	return strings.Join(of[at:min(at+3, len(of))], ", ")
}

// UpTo are the events up to one, by its number. A run goes on for a while after it was violated, in
// a world that nothing holds together any more.
func UpTo(events []history.Event, seq int) []history.Event {
	n, found := slices.BinarySearchFunc(events, seq, func(e history.Event, seq int) int { return e.Seq - seq })
	if found {
		n++
	}
	return events[:n]
}
