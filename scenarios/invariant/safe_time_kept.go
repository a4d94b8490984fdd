package invariant

import "github.com/fencelab/fencelab/scenarios/history"

var safeTimeKept = Invariant{
	ID:    "safe-time-kept",
	Claim: "Agents delete a Node, or declare a fencing complete, only when the host has been reset: the boot that was to end is gone.",
	Seed:  "004",
	New: func(p Params) Checker {
		return &safeTimes{
			ruling: ruling{id: "safe-time-kept", skew: p.Timings.Skew},
			roles:  p.Roles,
			hosts:  newRoster[sentenced](p.Hosts),
		}
	},
}

// safeTimes judges every NodeDeleted by an agent, and every FenceEnded. What others
// delete is judged elsewhere.
type safeTimes struct {
	ruling
	roles Roles
	hosts roster[sentenced]
}

type sentenced struct {
	body
	// request is the NodeFence that stands, or the last one.
	request history.Event
}

func (c *safeTimes) Observe(e *history.Event) *Violation {
	c.ripen(e.At)
	if layer := e.Kind.Layer(); e.Host != "" && (layer == history.World || layer == history.API) {
		c.judge(c.hosts.of(e.Host), e)
	}
	return c.tell()
}

func (c *safeTimes) judge(h *sentenced, e *history.Event) {
	if h.body.observe(e) {
		c.settle(cause{host: e.Host}, e)
	}
	switch e.Kind {
	case history.FenceRequested:
		h.request = *e
	case history.NodeDeleted, history.FenceEnded:
		if !c.roles.agent(e.Actor) {
			return
		}
		c.judged++
		switch {
		case !h.known():
			c.suspend(e, ", and nobody saw whether "+e.Host+" had been reset")
		case h.request.Kind == "":
			c.breach(&h.began, e, clause(e)+" by "+e.Actor+", and no fencing of it was requested")
		case h.boot != "" && h.boot == h.request.Value:
			c.accuse(cause{e.Host, ""}, &h.request, e, "boot "+h.boot+" of "+e.Host+" still ran")
		case c.near(&h.ended, e):
			c.close(&h.ended, e)
		default:
			c.allow(e, &h.ended)
			c.kept(&h.ended, e)
		}
	}
}

func (c *safeTimes) Finish(complete bool) Result {
	return c.verdict(complete, "no agent deleted a Node, or called a fencing over")
}
