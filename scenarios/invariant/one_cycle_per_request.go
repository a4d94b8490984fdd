package invariant

import (
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
)

var oneCyclePerRequest = Invariant{
	ID:       "one-cycle-per-request",
	Claim:    "A request causes one power cycle, however often anything crashes.",
	Seed:     "000, 001",
	Liveness: true,
	New: func(p Params) Checker {
		return &cycles{
			ruling: ruling{id: "one-cycle-per-request", skew: p.Timings.Skew},
			hosts:  newRoster[cycleHost](p.Hosts),
		}
	},
}

// cycles judges every power cycle, from PowerOff to PowerOn, and after healing
// every request.
//
// A request is a reboot annotation that appears on a host. All that are open when
// the host goes off coalesce into that one cycle (seed 000). One that comes while
// the host is off is served by the boot that follows, and accounts for one more
// cycle only if it is still there then. A reset serves a request too, for what ran
// when it was made is gone, but the controllers may not know that and still owe
// it a cycle.
//
// Excused are cycles whose off was caused by spec.online, by the watchdog, by the
// scenario itself (the edge's actor, or an operation "power..." on the host since
// the last edge), and those of a host that isn't provisioned.
type cycles struct {
	ruling
	hosts  roster[cycleHost]
	healed history.Event
}

type cycleHost struct {
	requests []request
	// off is the power-off that is in force, or zero. It is accounted for when
	// something asked for it, close when nobody knows whether that came first.
	off        history.Event
	accounted  bool
	close      *history.Event
	switched   history.Event // spec.online became false and no power-off followed
	online     bool          // spec.online became true again since
	excused    bool
	unmanaged  bool
	blind      bool
	lastServed request
}

// request is one reboot annotation, from when it appeared.
type request struct {
	set, removed history.Event
	// owed says that no cycle has been caused by it yet, served that a boot began
	// after it or that it was withdrawn.
	owed, served bool
	// cycle is the power-off that it caused.
	cycle history.Event
}

func (r *request) there() bool { return r.removed.Kind == "" }

func (c *cycles) Observe(e history.Event) *Violation {
	if e.Kind == history.Healed {
		c.healed = e
	}
	if e.Host != "" {
		c.judge(&e)
	}
	return c.tell()
}

func (c *cycles) judge(e *history.Event) {
	switch e.Kind {
	case history.AnnotationSet:
		if _, ok := rebootRequest(e); ok {
			c.set(c.hosts.of(e.Host), e)
		}
	case history.AnnotationRemoved:
		if keyed, ok := rebootRequest(e); ok {
			c.hosts.of(e.Host).remove(e, keyed)
		}
	case history.OnlineWanted:
		h := c.hosts.of(e.Host)
		h.online = e.Value != "false"
		if !h.online {
			h.switched = *e
			h.late(c, e)
		}
	case history.ProvisioningState:
		h := c.hosts.of(e.Host)
		if h.unmanaged = !managed(e.Value); h.unmanaged {
			h.requests = h.requests[:0]
		}
	case history.OpApplied:
		if strings.HasPrefix(e.Value, "power") {
			c.hosts.of(e.Host).excused = true
		}
	case history.WatchdogFired:
		c.hosts.of(e.Host).excused = true
	case history.PowerOff:
		c.off(c.hosts.of(e.Host), e)
	case history.PowerOn:
		c.on(c.hosts.of(e.Host), e)
	case history.BootStarted:
		h := c.hosts.of(e.Host)
		if h.off.Kind == "" {
			h.excused = false
		}
		c.serve(h, e)
	case history.EvidenceLost:
		h := c.hosts.of(e.Host)
		h.blind = true
		if len(h.requests) > 0 || h.lastServed.set.Kind != "" {
			c.suspend(e, " after "+e.Host+" was asked to reboot")
		}
	case history.EvidenceRegained:
		c.hosts.of(e.Host).blind = false
	}
}

func (c *cycles) set(h *cycleHost, e *history.Event) {
	if h.unmanaged {
		return
	}
	for i := range h.requests {
		if r := &h.requests[i]; r.set.Key == e.Key && r.there() {
			return // only its value changed
		}
	}
	if h.blind {
		c.suspend(e, " while nobody observed "+e.Host)
	}
	c.judged++
	h.late(c, e)
	h.requests = append(h.requests, request{set: *e, owed: true})
}

// late notes that e, which could have caused the power-off in force, may have
// come before it.
func (h *cycleHost) late(c *cycles, e *history.Event) {
	if h.off.Kind != "" && !h.accounted && c.near(&h.off, e) {
		closer := *e
		h.close = &closer
	}
}

// remove takes a request back. A client removes a keyed annotation when it is done
// with it, at any time; a plain one is the controller's to remove, so that only
// whoever set it can withdraw it.
func (h *cycleHost) remove(e *history.Event, keyed bool) {
	for i := range h.requests {
		r := &h.requests[i]
		if r.set.Key != e.Key || !r.there() {
			continue
		}
		r.removed = *e
		r.served = r.served || keyed || e.Actor != "" && e.Actor == r.set.Actor
		break
	}
	h.forget()
}

// forget drops the requests that can neither be missed nor cause a cycle.
func (h *cycleHost) forget() {
	kept := h.requests[:0]
	for _, r := range h.requests {
		if r.owed || !r.served || r.there() {
			kept = append(kept, r)
		}
	}
	h.requests = kept
}

func (c *cycles) off(h *cycleHost, e *history.Event) {
	if h.off.Kind != "" {
		return // repeated
	}
	h.off, h.close = *e, nil
	h.accounted = h.excused || h.unmanaged || byScenario(e)
	var closest *history.Event
	account := func(by *history.Event) {
		if c.near(by, e) {
			closest = by
			return
		}
		h.accounted = true
	}
	if h.switched.Kind != "" {
		account(&h.switched)
	}
	for i := range h.requests {
		if r := &h.requests[i]; r.owed {
			account(&r.set)
			r.owed, r.cycle = false, *e
			h.lastServed = *r
		}
	}
	if closest != nil && !h.accounted {
		closer := *closest
		h.close = &closer
	}
	h.switched, h.excused = history.Event{}, false
}

func (c *cycles) on(h *cycleHost, e *history.Event) {
	off := h.off
	h.excused = false
	c.serve(h, e)
	if off.Kind == "" {
		return // the first boot, or a repeated event
	}
	switch {
	case h.accounted:
	case h.close != nil:
		c.close(h.close, &off)
	case c.found == nil:
		sentence := e.Host + " was powered off at " + seconds(off.At) + " and on at " + seconds(e.At) + ", which nobody had asked for"
		if r := &h.lastServed; r.set.Kind != "" {
			sentence += ": the last request, " + r.set.Key + " of " + seconds(r.set.At) + ", had its power cycle at " + seconds(r.cycle.At)
		}
		c.found = &Violation{Invariant: c.id, First: off, Second: *e, Margin: e.At - off.At, Sentence: sentence}
	}
	// What came while the host was off and is gone again was served by this boot.
	for i := range h.requests {
		if r := &h.requests[i]; r.owed && !r.there() && r.set.Seq > off.Seq {
			r.owed = false
		}
	}
	h.forget()
	if h.online {
		h.switched = history.Event{}
	}
	h.off = history.Event{}
}

// serve notes that what ran before e is gone.
func (c *cycles) serve(h *cycleHost, e *history.Event) {
	for i := range h.requests {
		r := &h.requests[i]
		if !r.served && c.near(&r.set, e) {
			c.close(&r.set, e)
		}
		r.served = true
	}
}

func (c *cycles) lacking() lack {
	for i := range c.hosts.hosts {
		h := &c.hosts.hosts[i]
		for j := range h.state.requests {
			r := &h.state.requests[j]
			if r.served {
				continue
			}
			sentence := "the request " + r.set.Key + " of " + seconds(r.set.At) + " on " + h.name
			if !r.there() {
				sentence += " was removed at " + seconds(r.removed.At) + " and"
			}
			return lack{sentence: sentence + " was followed by no boot", since: &r.set}
		}
	}
	return lack{}
}

func (c *cycles) Pending() string { return c.lacking().sentence }

func (c *cycles) Finish(complete bool) Result {
	missing := c.lacking()
	// A boot that nobody saw may have served it.
	missing.blind = missing.sentence != "" && c.doubt != ""
	return c.verdictAfterHealing(complete, &c.healed, missing, "nobody asked for a reboot")
}
