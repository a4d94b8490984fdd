package page

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Believes ends the names of lanes that show what a controller's cache says.
const Believes = " believes"

// belief is an observer's view of a host from its objects: whether it is powered on, how its Node
// is, and what is asked of it.
type belief struct {
	host  host
	bands bands
	// api says that the view is the API's own, which may be empty.
	api bool
}

func newBelief() *belief { return &belief{host: host{faults: map[string]*bands{}}} }

// learn takes note of a version of an object.
func (b *belief) learn(at time.Duration, e *history.Event) {
	learned := *e
	learned.At = at
	b.host.object(learned)
	kind, said := "known", []string(nil)
	for _, part := range []struct {
		of     *bands
		before string
	}{{&b.host.status, ""}, {&b.host.node, "Node: "}, {&b.host.requests, ""}} {
		if open := part.of.open; open != nil && open.Kind != "gone" {
			said = append(said, part.before+open.Text)
		}
	}
	if status := b.host.status.open; status != nil {
		kind = status.Kind
	}
	if len(said) == 0 && !b.api {
		kind = ""
	}
	b.bands.begin(at, kind, strings.Join(said, "; "))
}

// informer compares a process's cache with the API's objects of the same kinds, host by host.
type informer struct {
	process         string
	kinds           map[string]bool
	believed, truth map[string]*belief
}

func (v *informer) of(beliefs map[string]*belief, host string) *belief {
	if beliefs[host] == nil {
		beliefs[host] = newBelief()
	}
	return beliefs[host]
}

// kindOf is the kind of the object that an event is about.
func kindOf(e *history.Event) string {
	kind, _, _ := strings.Cut(e.Object, "/")
	return kind
}

// caches follows each process's cache through a run. Its view of a host is marked where the API
// has something else, or where the host is not as the view says.
func (d *drawer) caches() {
	var caches []*informer
	find := func(process string) *informer {
		i := slices.IndexFunc(caches, func(v *informer) bool { return v.process == process })
		if i < 0 {
			i = len(caches)
			caches = append(caches, &informer{process, map[string]bool{}, map[string]*belief{}, map[string]*belief{}})
		}
		return caches[i]
	}
	for i := range d.run.Trace {
		switch t := &d.run.Trace[i]; {
		case t.What == "forgot":
			v := find(t.Process)
			for _, host := range slices.Sorted(maps.Keys(v.believed)) {
				b := v.believed[host]
				b.bands.end(t.At)
				b.host = newBelief().host
			}
		case t.What == "learned" && t.Event != nil && t.Event.Host != "":
			v := find(t.Process)
			v.kinds[kindOf(t.Event)] = true
			v.of(v.believed, t.Event.Host).learn(t.At, t.Event)
		}
	}
	slices.SortFunc(caches, func(a, b *informer) int { return strings.Compare(a.process, b.process) })
	for _, v := range caches {
		for i := range d.run.Events {
			if e := &d.run.Events[i]; e.Kind.Layer() == history.API && e.Host != "" && v.kinds[kindOf(e)] {
				truth := v.of(v.truth, e.Host)
				truth.api = true
				truth.learn(e.At, e)
			}
		}
		for _, h := range d.hosts {
			if believed := v.believed[h.name]; believed != nil {
				h.views = append(h.views, cached{v.process, &believed.bands, &v.of(v.truth, h.name).bands})
			}
		}
	}
}

// cached is a process's cached view of a host beside the API's.
type cached struct {
	process         string
	believed, truth *bands
}

// lane draws it beside what the host did.
func (c cached) lane(group string, end time.Duration, power []Band, truly *Band) *Lane {
	last, now := c.believed.open, c.truth.open
	c.believed.end(end)
	c.truth.end(end)
	lane := &Lane{
		ID: group + ": " + c.process + Believes, Name: c.process + Believes, Believed: true, last: last,
		Help: "What is in the cache of " + c.process + " about this host: hatched where the API has something else, or the host is not so.",
	}
	lane.Bands = compare(compare(c.believed.done, c.truth.done, outdated), power, otherPower)
	if last != nil && now != nil {
		last.Marked, last.Differs = outdated(last, now)
	}
	if last != nil && truly != nil {
		last.Marked, last.Differs = otherPower(last, truly)
	}
	return lane
}
