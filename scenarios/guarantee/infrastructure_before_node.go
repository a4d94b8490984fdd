package guarantee

import "github.com/fencelab/fencelab/scenarios/invariant"

import "github.com/fencelab/fencelab/scenarios/history"

var infrastructureBeforeNode = invariant.Invariant{
	ID:    "infrastructure-before-node",
	Claim: "The Node of a Machine being deleted, its host and the Machine itself are released only when the last process of the host's boot is gone.",
	Seed:  "003",
	Wakes: []history.Kind{history.MachineDeleting},
	New: func(p invariant.Params) invariant.Checker {
		return &departures{
			Ruling: invariant.Ruling{ID: "infrastructure-before-node", Skew: p.Timings.Skew},
			roles:  p.Roles,
			hosts:  invariant.NewRoster[departing](p.Hosts),
		}
	},
}

// departures judges how a controller under test lets go of what belongs to a Machine that
// is deleted: of its Node, of its BareMetalHost, and at last of the Machine. A boot that ran
// when the Machine was marked, or that has completed since, must not run then. One that
// began later and is not complete knows nothing of the Node.
//
// What users delete or take away is their own doing: a host that isn't the Machine's any
// more is none of its business, and neither is one whose BareMetalHost is gone.
type departures struct {
	invariant.Ruling
	roles invariant.Roles
	hosts invariant.Roster[departing]
}

type departing struct {
	invariant.Body
	// machine is the Machine that is deleted, and marked the boot that ran then.
	machine, marked string
	// consumer is who uses the host, by its BareMetalHost.
	consumer string
	// unmanaged says that it has no image, so that nothing of the Machine runs there. A host that
	// is detached runs on.
	unmanaged bool
}

func (c *departures) Observe(e *history.Event) *invariant.Violation {
	c.Ripen(e.At)
	if layer := e.Kind.Layer(); e.Host != "" && (layer == history.World || layer == history.API) {
		c.judge(c.hosts.Of(e.Host), e)
	}
	return c.Tell()
}

func (c *departures) judge(h *departing, e *history.Event) {
	if h.Body.Observe(e) {
		c.Settle(invariant.Cause{Host: e.Host}, e)
	}
	switch e.Kind {
	case history.MachineDeleting:
		h.machine, h.marked = e.Object, h.Boot
	case history.ProvisioningState:
		h.unmanaged = !invariant.Managed(e.Value) && e.Value != invariant.Detached
	case history.BareMetalHostDeleted:
		h.consumer = ""
	case history.HostConsumer:
		if h.machine != "" && h.consumer == h.machine && !h.unmanaged {
			c.letGo(h, e)
		}
		h.consumer = e.Value
	case history.NodeDeleted:
		if h.machine != "" && !c.roles.Agent(e.Actor) { // an agent releases the boot that a NodeFence names
			c.letGo(h, e)
		}
	case history.MachineDeleted:
		if h.machine == e.Object && h.consumer == e.Object {
			c.letGo(h, e)
		}
		h.machine = ""
	}
}

// letGo judges what a controller under test has done.
func (c *departures) letGo(h *departing, e *history.Event) {
	switch {
	case invariant.ByUser(e):
		return
	case e.Actor != "" && !c.roles.Tested(e.Actor):
		return
	case !h.Known():
		c.Judged++
		c.Suspend(e, ", and nobody saw whether "+e.Host+" still ran")
		return
	}
	c.Judged++
	switch {
	case h.Boot != "" && (h.Complete || h.Boot == h.marked):
		c.Accuse(invariant.Cause{Host: e.Host}, h.Began(), e, "boot "+h.Boot+" of "+e.Host+" still ran")
	case c.Near(h.Ended(), e):
		c.Close(h.Ended(), e)
	default:
		c.Kept(h.Ended(), e)
	}
}

func (c *departures) Finish(complete bool) invariant.Result {
	return c.Conclude(complete, "no Machine was deleted that had a Node or a host")
}
