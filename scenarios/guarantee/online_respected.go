package guarantee

import (
	"iter"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var onlineRespected = invariant.Invariant{
	ID:       "online-respected",
	Claim:    "A host whose spec.online is false is powered off, and no controller powers it on.",
	Seed:     "000",
	Liveness: true,
	New: func(p invariant.Params) invariant.Checker {
		return &offline{
			Promise: invariant.NewPromise(p, invariant.Ruling{ID: "online-respected", Skew: p.Timings.Skew}),
			roles:   p.Roles,
			hosts:   invariant.NewRoster[offlineHost](p.Hosts),
		}
	},
}

// offline judges every PowerOn of a host that should be off, and after healing
// whether it is.
type offline struct {
	invariant.Promise
	roles invariant.Roles
	hosts invariant.Roster[offlineHost]
}

type offlineHost struct {
	invariant.Body
	invariant.Start
	invariant.Demand
	switched history.Event // the last change of spec.online
}

func (c *offline) Observe(e *history.Event) *invariant.Violation {
	c.Ripen(e.At)
	c.Promise.Observe(e)
	switch e.Kind.Layer() {
	case history.World, history.API, history.BMC:
		if e.Host != "" {
			c.judge(c.hosts.Of(e.Host), e)
		}
	}
	return c.Tell()
}

func (c *offline) judge(h *offlineHost, e *history.Event) {
	wasOff := h.IsOff()
	h.Body.Observe(e)
	h.Demand.Observe(e)
	switch e.Kind {
	case history.OnlineWanted:
		h.switched = *e
		if h.Demand.Offline {
			c.Judged++
			if h.Blind {
				c.Suspend(e, " while nobody observed "+e.Host)
			}
		} else {
			c.Settle(invariant.Cause{Host: e.Host, Thing: "online"}, e)
		}
	case history.PowerOn:
		switch {
		case !wasOff || h.Unmanaged || c.roles.Blameless(e):
		case c.Near(&h.switched, e):
			c.Close(&h.switched, e)
		case !h.Demand.Offline:
			c.Kept(&h.switched, e)
		case h.UnderWay(e, &h.switched, c.Hindrances):
		default:
			c.Accuse(invariant.Cause{Host: e.Host, Thing: "online"}, &h.switched, e, "spec.online was false")
		}
	case history.EvidenceLost:
		if h.Demand.Offline {
			c.Suspend(e, " while spec.online was false")
		}
	}
	h.Start.Observe(e, &c.roles)
}

func (c *offline) Lacks() iter.Seq[invariant.Lack] {
	return func(yield func(invariant.Lack) bool) {
		for i := range c.hosts.Hosts {
			h := &c.hosts.Hosts[i]
			s := &h.State
			if !s.Demand.Offline || s.Unmanaged || c.roles.Power == "" || !s.Body.On || !s.Known() {
				continue
			}
			if !yield(invariant.Lack{
				Sentence: h.Name + " should have been off since " + invariant.Seconds(s.switched.At) + " and is on", Since: &s.switched,
				Host: h.Name, Comes: invariant.OffEvents, On: invariant.Parties{BMC: h.Name, First: c.roles.Power},
			}) {
				return
			}
		}
	}
}

func (c *offline) Pending() string { return c.Owing(c.Lacks()) }

func (c *offline) Finish(complete bool) invariant.Result {
	return c.ConcludeAfterHealing(complete, c.Lacks(), "spec.online was true all the time")
}
