package invariant

import (
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// witnesses tell which agents of seed 004 were well enough to be asked, or to act. One
// isn't when its host is off, boots or stands still, when a link of the host is cut, when
// it died or stands still itself, or when the schedule made one of its steps late or fail;
// and for a while after. None is while the lab itself is late.
type witnesses struct {
	recovery time.Duration
	hosts    map[string]*witness
	names    []string
	// api is until when everybody may have been kept from the API server by something
	// that is not theirs.
	away bool
	api  time.Duration
	// stalled says that the lab itself is late.
	stalled bool
}

type witness struct {
	down, paused bool
	// cut are the links that are, and stalled says that the agent is down or stands still.
	cut     map[string]bool
	stalled bool
	// until is when the last of these ended.
	until time.Duration
}

func newWitnesses(p Params) witnesses {
	w := witnesses{recovery: p.Timings.Safe, hosts: make(map[string]*witness), names: p.Hosts}
	for _, name := range p.Hosts {
		w.hosts[name] = &witness{cut: make(map[string]bool)}
	}
	return w
}

func (w *witnesses) observe(e *history.Event) {
	switch e.Kind {
	case history.OpApplied:
		w.applied(e)
		return
	case history.Deviated:
		w.deviated(e)
		return
	case history.LabStalled:
		w.stalled = true
		return
	case history.LabRecovered:
		w.stalled = false
		for _, h := range w.hosts { // order does not matter: all get the same time
			h.ended(e.At)
		}
		return
	case history.RunStarted:
		for _, h := range w.hosts { // order does not matter: all that the coming up has left
			h.until = 0
		}
		return
	}
	for _, end := range [...]string{e.From, e.To} {
		if name, ok := strings.CutPrefix(end, "host/"); ok {
			w.linked(w.hosts[name], e, e.From+" "+e.To)
		}
	}
	h := w.hosts[e.Host]
	if h == nil {
		return
	}
	switch e.Kind {
	case history.LinkCut, history.LinkRestored, history.LinkImpaired:
		if e.From == "" {
			w.linked(h, e, "")
		}
	case history.PowerOff, history.BootEnded, history.EvidenceLost:
		h.down, h.paused, h.stalled = true, false, false
	case history.BootComplete:
		h.down = false
		h.ended(e.At)
	case history.HostPaused:
		h.paused = true
	case history.HostResumed:
		h.paused = false
		h.ended(e.At)
	case history.ControllerStarted:
		h.stalled = false
		h.ended(e.At)
	}
}

func (w *witnesses) linked(h *witness, e *history.Event, link string) {
	switch {
	case h == nil:
	case e.Kind == history.LinkCut, e.Kind == history.LinkImpaired:
		h.cut[link] = true
	default:
		delete(h.cut, link)
		h.ended(e.At)
	}
}

func (h *witness) ended(at time.Duration) { h.until = max(h.until, at) }

// applied takes in operations that no other event tells of.
func (w *witnesses) applied(e *history.Event) {
	switch e.Key {
	case "apiOutage", "etcdOutage", "failAPI":
		w.away = true
	case "apiRestore", "heal":
		w.away = false
		w.api = e.At
	case "crash", "pauseController", "resumeController", "setClock", "stopFeeding":
		for name, h := range w.hosts { // order does not matter: each for itself
			if name == e.Host || strings.HasPrefix(e.Object, name+".") {
				h.stalled = e.Key == "pauseController" || e.Key == "crash" || e.Key == "stopFeeding" || h.stalled
				if e.Key == "resumeController" {
					h.stalled = false
				}
				h.ended(e.At)
			}
		}
	}
}

// deviated takes in that a step came late, or that something went wrong with it. What is not
// on a host doesn't matter here.
func (w *witnesses) deviated(e *history.Event) {
	late, _ := time.ParseDuration(e.Key)
	if h := w.of(e.Actor); h != nil {
		h.ended(e.At + late)
	}
}

// of returns the host that an actor is on, or that it is; nil if it is on none.
func (w *witnesses) of(actor string) *witness {
	for name, h := range w.hosts { // order does not matter: one at most
		if actor == name || strings.HasPrefix(actor, name+".") {
			return h
		}
	}
	return nil
}

// well reports whether the agent on a host was, since a time at least.
func (w *witnesses) well(name string, since time.Duration) bool {
	h := w.hosts[name]
	return h != nil && !w.stalled && !h.down && !h.paused && !h.stalled && len(h.cut) == 0 && (h.until == 0 || h.until+w.recovery < since)
}

// mostOf reports whether most of the agents on other hosts were, since a time. Where there
// are no others, none were unwell.
func (w *witnesses) mostOf(but string, since time.Duration) bool {
	well, others := 0, 0
	for _, name := range w.names {
		if name == but {
			continue
		}
		others++
		if w.well(name, since) {
			well++
		}
	}
	return 2*well > others || others == 0
}

// most reports whether nothing kept most agents from the API server since a time.
func (w *witnesses) most(since time.Duration) bool {
	return !w.away && (w.api == 0 || w.api+w.recovery < since) && w.mostOf("", since)
}
