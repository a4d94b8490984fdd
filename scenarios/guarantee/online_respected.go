package guarantee

import (
	"iter"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var onlineRespected = invariant.Invariant{
	ID:       "online-respected",
	Claim:    "A host whose spec.online is false is powered off, and no controller powers it on, changes what its user wants, or powers on a host that isn't provisioned.",
	Seed:     "000",
	Liveness: true,
	New: func(p invariant.Params) invariant.Checker {
		return &offline{
			Promise:  invariant.NewPromise(p, invariant.Ruling{ID: "online-respected", Skew: p.Timings.Skew}),
			roles:    p.Roles,
			patience: p.Timings.Patience(),
			hosts:    invariant.NewRoster[offlineHost](p.Hosts),
		}
	},
}

// offline judges every PowerOn of a host that should be off or that isn't provisioned, every
// controller that says otherwise of a host than its user, and after healing whether the host is
// off.
type offline struct {
	invariant.Promise
	roles invariant.Roles
	hosts invariant.Roster[offlineHost]
	// patience is how long a host may take to go off.
	patience time.Duration
}

type offlineHost struct {
	invariant.Body
	invariant.Start
	invariant.Demand
	invariant.Shutdown
	switched history.Event // the last change of what its user wants
	left     history.Event // the end of being provisioned, or zero
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
	h.Shutdown.Observe(e)
	h.Demand.Observe(e, &c.roles)
	switch e.Kind {
	case history.ProvisioningState, history.BareMetalHostDeleted:
		if !h.Unmanaged {
			h.left = history.Event{}
		} else if h.left.Kind == "" {
			h.left = *e
		}
	case history.OnlineWanted:
		if c.roles.Tested(e.Actor) && e.Value == "true" {
			c.overruled(h, e)
			return
		}
		if c.roles.Tested(e.Actor) && !h.Demand.Offline {
			return // bystanders-spared rules on it
		}
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
		case c.roles.Blameless(e):
		case !wasOff:
			c.Allow(e, e)
		case h.Unmanaged && h.left.Seq > 0 && h.UnderWay(e, &h.left, c.Hindrances):
			c.Allow(e, &h.left)
		case h.Unmanaged:
			c.Judged++
			c.Breach(&h.left, e, invariant.Clause(e)+" by "+e.Actor+", and "+invariant.Clause(&h.left))
		case c.Near(&h.switched, e):
			c.Allow(e, e)
			c.Close(&h.switched, e)
		case !h.Demand.Offline:
			c.Allow(e, &h.switched)
			c.Kept(&h.switched, e)
		case h.UnderWay(e, &h.switched, c.Hindrances):
			c.Allow(e, &h.switched)
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

// overruled judges a controller that says of a host that it is wanted on.
func (c *offline) overruled(h *offlineHost, e *history.Event) {
	c.Judged++
	if h.Demand.Offline {
		c.Breach(&h.switched, e, invariant.Clause(e)+" by "+e.Actor+", though "+h.switched.Actor+" had it off since "+invariant.Seconds(h.switched.At))
		return
	}
	c.Allow(e, &h.switched)
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
				Within: s.Within(c.patience), Sentence: h.Name + " should have been off since " + invariant.Seconds(s.switched.At) + " and is on", Since: &s.switched,
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
