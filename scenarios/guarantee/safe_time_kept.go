package guarantee

import (
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var safeTimeKept = invariant.Invariant{
	ID:    "safe-time-kept",
	Claim: "Agents delete a Node, or declare a fencing complete, only when the host has been reset: the boot that was to end is gone; and a Node only when it has been made unschedulable before.",
	Seed:  "004",
	Wakes: []history.Kind{history.NodeDeleting, history.NodeDeleted, history.FenceEnded},
	New: func(p invariant.Params) invariant.Checker {
		return &safeTimes{
			Ruling:     invariant.Ruling{ID: "safe-time-kept", Skew: p.Timings.Skew},
			Hindrances: p.Hindrances,
			roles:      p.Roles,
			hosts:      invariant.NewRoster[sentenced](p.Hosts),
		}
	},
}

// safeTimes judges every Node that an agent deletes, or asks to be gone, and every FenceEnded. What
// others delete is judged elsewhere. A Node that is schedulable may be given work meanwhile, which
// the next boot of its host begins to run.
type safeTimes struct {
	invariant.Ruling
	*invariant.Hindrances
	roles invariant.Roles
	hosts invariant.Roster[sentenced]
}

type sentenced struct {
	invariant.Body
	// request is the NodeFence that stands, or the last one.
	request history.Event
	// node is the UID of the Node, and open since when that is schedulable, or zero.
	node string
	open history.Event
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
	case history.NodeCreated:
		h.node, h.open = e.UID, *e
	case history.NodeCordoned, history.NodeUncordoned:
		if e.UID == h.node {
			h.open = history.Event{}
			if e.Kind == history.NodeUncordoned {
				h.open = *e
			}
		}
	case history.NodeDeleting, history.NodeDeleted, history.FenceEnded:
		if !c.roles.Agent(e.Actor) {
			return
		}
		c.Judged++
		switch {
		case !h.Known():
			c.Suspend(e, ", and nobody saw whether "+e.Host+" had been reset")
		case h.request.Kind == "":
			c.Breach(h.Began(), e, invariant.Clause(e)+" by "+e.Actor+", and no fencing of it was requested")
		case h.Boot != "" && h.Boot == h.request.Value:
			c.Accuse(invariant.Cause{Host: e.Host, Thing: ""}, &h.request, e, "boot "+h.Boot+" of "+e.Host+" still ran")
		case c.Near(h.Ended(), e):
			c.Close(h.Ended(), e)
		case e.Kind != history.FenceEnded && e.UID == h.node && h.open.Kind != "" && !(h.open.Kind == history.NodeUncordoned && c.Unaware(e, &h.open)):
			c.Breach(&h.open, e, invariant.Clause(e)+" by "+e.Actor+", and it could be given work since "+invariant.Seconds(h.open.At))
		default:
			c.Allow(e, h.Ended())
			c.Kept(h.Ended(), e)
		}
	}
}

func (c *safeTimes) Finish(complete bool) invariant.Result {
	return c.Conclude(complete, "no agent deleted a Node, or called a fencing over")
}
