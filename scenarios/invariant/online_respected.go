package invariant

import (
	"iter"

	"github.com/fencelab/fencelab/scenarios/history"
)

var onlineRespected = Invariant{
	ID:       "online-respected",
	Claim:    "A host whose spec.online is false is powered off, and no controller powers it on.",
	Seed:     "000",
	Liveness: true,
	New: func(p Params) Checker {
		return &offline{
			promise: newPromise(p, ruling{id: "online-respected", skew: p.Timings.Skew}),
			roles:   p.Roles,
			hosts:   newRoster[offlineHost](p.Hosts),
		}
	},
}

// offline judges every PowerOn of a host that should be off, and after healing
// whether it is.
type offline struct {
	promise
	roles Roles
	hosts roster[offlineHost]
}

type offlineHost struct {
	body
	start
	demand
	switched history.Event // the last change of spec.online
}

func (c *offline) Observe(e *history.Event) *Violation {
	c.ripen(e.At)
	c.promise.observe(e)
	switch e.Kind.Layer() {
	case history.World, history.API, history.BMC:
		if e.Host != "" {
			c.judge(c.hosts.of(e.Host), e)
		}
	}
	return c.tell()
}

func (c *offline) judge(h *offlineHost, e *history.Event) {
	wasOff := h.isOff()
	h.body.observe(e)
	h.demand.observe(e)
	switch e.Kind {
	case history.OnlineWanted:
		h.switched = *e
		if h.demand.offline {
			c.judged++
			if h.blind {
				c.suspend(e, " while nobody observed "+e.Host)
			}
		} else {
			c.settle(cause{e.Host, "online"}, e)
		}
	case history.PowerOn:
		switch {
		case !wasOff || h.unmanaged || c.roles.blameless(e):
		case c.near(&h.switched, e):
			c.close(&h.switched, e)
		case !h.demand.offline:
			c.kept(&h.switched, e)
		case h.underWay(e, &h.switched, c.hindrances):
		default:
			c.accuse(cause{e.Host, "online"}, &h.switched, e, "spec.online was false")
		}
	case history.EvidenceLost:
		if h.demand.offline {
			c.suspend(e, " while spec.online was false")
		}
	}
	h.start.observe(e, &c.roles)
}

func (c *offline) lacks() iter.Seq[lack] {
	return func(yield func(lack) bool) {
		for i := range c.hosts.hosts {
			h := &c.hosts.hosts[i]
			s := &h.state
			if !s.demand.offline || s.unmanaged || c.roles.Power == "" || !s.body.on || !s.known() {
				continue
			}
			if !yield(lack{
				sentence: h.name + " should have been off since " + seconds(s.switched.At) + " and is on", since: &s.switched,
				host: h.name, comes: offEvents, on: parties{bmc: h.name, first: c.roles.Power},
			}) {
				return
			}
		}
	}
}

// offEvents come when a host goes off.
var offEvents = []history.Kind{history.PowerOff, history.BootEnded}

func (c *offline) Pending() string { return c.pending(c.lacks()) }

func (c *offline) Finish(complete bool) Result {
	return c.verdictAfterHealing(complete, c.lacks(), "spec.online was true all the time")
}
