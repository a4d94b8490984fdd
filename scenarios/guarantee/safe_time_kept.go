package guarantee

import "github.com/fencelab/fencelab/scenarios/invariant"

import "github.com/fencelab/fencelab/scenarios/history"

var safeTimeKept = invariant.Invariant{
	ID:    "safe-time-kept",
	Claim: "Agents delete a Node, or declare a fencing complete, only when the host has been reset: the boot that was to end is gone.",
	Seed:  "004",
	New: func(p invariant.Params) invariant.Checker {
		return &safeTimes{
			Ruling: invariant.Ruling{ID: "safe-time-kept", Skew: p.Timings.Skew},
			roles:  p.Roles,
			hosts:  invariant.NewRoster[sentenced](p.Hosts),
		}
	},
}

// safeTimes judges every NodeDeleted by an agent, and every FenceEnded. What others
// delete is judged elsewhere.
type safeTimes struct {
	invariant.Ruling
	roles invariant.Roles
	hosts invariant.Roster[sentenced]
}

type sentenced struct {
	invariant.Body
	// request is the NodeFence that stands, or the last one.
	request history.Event
}

func (c *safeTimes) Observe(e *history.Event) *invariant.Violation {
	c.Ripen(e.At)
	if layer := e.Kind.Layer(); e.Host != "" && (layer == history.World || layer == history.API) {
		c.judge(c.hosts.Of(e.Host), e)
	}
	return c.Tell()
}

func (c *safeTimes) judge(h *sentenced, e *history.Event) {
	if h.Body.Observe(e) {
		c.Settle(invariant.Cause{Host: e.Host}, e)
	}
	switch e.Kind {
	case history.FenceRequested:
		h.request = *e
	case history.NodeDeleted, history.FenceEnded:
		if !c.roles.Agent(e.Actor) {
			return
		}
		c.Judged++
		switch {
		case !h.Known():
			c.Suspend(e, ", and nobody saw whether "+e.Host+" had been reset")
		case h.request.Kind == "":
			c.Breach(&h.Began, e, invariant.Clause(e)+" by "+e.Actor+", and no fencing of it was requested")
		case h.Boot != "" && h.Boot == h.request.Value:
			c.Accuse(invariant.Cause{Host: e.Host, Thing: ""}, &h.request, e, "boot "+h.Boot+" of "+e.Host+" still ran")
		case c.Near(&h.Ended, e):
			c.Close(&h.Ended, e)
		default:
			c.Allow(e, &h.Ended)
			c.Kept(&h.Ended, e)
		}
	}
}

func (c *safeTimes) Finish(complete bool) invariant.Result {
	return c.Conclude(complete, "no agent deleted a Node, or called a fencing over")
}
