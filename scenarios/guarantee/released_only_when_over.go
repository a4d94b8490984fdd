package guarantee

import (
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var releasedOnlyWhenOver = invariant.Invariant{
	ID:    "released-only-when-over",
	Claim: "No controller gives up a volume for a host, by whatever way, while a boot there may still write to it: it deletes or makes anew no Node, taints none as out of service, deletes no Pod, and asks for no detach; nor does it let a host in to the storage again where a boot has a volume mounted that it gave up.",
	Seed:  "002, 004",
	New: func(p invariant.Params) invariant.Checker {
		return &waivers{
			Ruling: invariant.Ruling{ID: "released-only-when-over", Skew: p.Timings.Skew},
			roles:  p.Roles,
			hosts:  invariant.NewRoster[yielded](p.Hosts),
		}
	},
}

// waivers judges the ways in which Kubernetes can be made to detach a volume that its kubelet has
// not unmounted. A Node that somebody makes anew is one, since its status says that nothing is in
// use there. The taint says that the host is off, so that no boot at all may run. Where a user
// does such a thing, it is the user's own doing; and a kubelet that registers speaks for itself.
type waivers struct {
	invariant.Ruling
	roles invariant.Roles
	hosts invariant.Roster[yielded]
}

// yielded is a host, and the last deed by which a process under test gave up the volume that is
// mounted there.
type yielded struct {
	access
	given history.Event
}

func (c *waivers) Observe(e *history.Event) *invariant.Violation {
	c.Ripen(e.At)
	if layer := e.Kind.Layer(); e.Host != "" && (layer == history.World || layer == history.API) {
		h := c.hosts.Of(e.Host)
		kept := h.KeptOut()
		if h.observe(e) {
			c.Settle(invariant.Cause{Host: e.Host, Thing: "writer"}, e)
		}
		if h.Boot == "" || h.KeptOut() && !kept {
			c.Settle(invariant.Cause{Host: e.Host}, e)
		}
		if h.mounted.Kind == "" {
			h.given = history.Event{}
		}
		c.judge(h, e)
	}
	return c.Tell()
}

func (c *waivers) judge(h *yielded, e *history.Event) {
	switch e.Kind {
	case history.NodeDeleted, history.NodeDeleting, history.NodeCreated, history.PodDeleted, history.DetachAsked:
		if c.roles.Tested(e.Actor) {
			c.waive(h, e, h.mayWrite(), "writer", "had its volume mounted and could write")
		}
	case history.NodeOutOfService:
		if c.roles.Tested(e.Actor) {
			c.waive(h, e, h.Boot != "" && !h.KeptOut(), "", "still ran")
		}
	case history.StorageUnfenceAsked:
		if c.roles.Tested(e.Actor) {
			given := h.given
			c.waive(h, e, h.mounted.Kind != "" && given.Kind != "", "writer", "had its volume mounted, which was given up at "+invariant.Seconds(given.At))
		}
	case history.NodeInService:
		if c.roles.Tested(e.Actor) {
			c.Allow(e, h.Began())
		}
	}
}

// waive judges one way of giving up, which a state of the host forbids.
func (c *waivers) waive(h *yielded, e *history.Event, forbidden bool, thing, does string) {
	c.Judged++
	switch {
	case !h.Known():
		c.Suspend(e, ", and nobody saw whether "+e.Host+" still ran")
	case forbidden:
		standing := h.Began()
		if thing != "" {
			standing = &h.mounted
		}
		c.Accuse(invariant.Cause{Host: e.Host, Thing: thing}, standing, e, "boot "+h.Boot+" of "+e.Host+" "+does)
	case c.Near(h.Ended(), e):
		c.Close(h.Ended(), e)
	case c.Near(h.Kept(), e):
		c.Close(h.Kept(), e)
	default:
		because := h.Ended()
		if h.KeptOut() && h.Boot != "" {
			because = h.Kept()
		}
		c.Allow(e, because)
		c.Kept(because, e)
	}
	h.given = *e
}

func (c *waivers) Finish(complete bool) invariant.Result {
	return c.Conclude(complete, "no controller gave up a volume")
}
