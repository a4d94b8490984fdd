package invariant

import "github.com/fencelab/fencelab/scenarios/history"

var infrastructureBeforeNode = Invariant{
	ID:    "infrastructure-before-node",
	Claim: "The Node of a Machine being deleted, its host and the Machine itself are released only when the last process of the host's boot is gone.",
	Seed:  "003",
	New: func(p Params) Checker {
		return &departures{
			ruling: ruling{id: "infrastructure-before-node", skew: p.Timings.Skew},
			roles:  p.Roles,
			hosts:  newRoster[departing](p.Hosts),
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
	ruling
	roles Roles
	hosts roster[departing]
}

type departing struct {
	body
	// machine is the Machine that is deleted, and marked the boot that ran then.
	machine, marked string
	// consumer is who uses the host, by its BareMetalHost.
	consumer string
	// unmanaged says that nobody answers for its power.
	unmanaged bool
}

func (c *departures) Observe(e *history.Event) *Violation {
	c.ripen(e.At)
	if layer := e.Kind.Layer(); e.Host != "" && (layer == history.World || layer == history.API) {
		c.judge(c.hosts.of(e.Host), e)
	}
	return c.tell()
}

func (c *departures) judge(h *departing, e *history.Event) {
	if h.body.observe(e) {
		c.settle(cause{host: e.Host}, e)
	}
	switch e.Kind {
	case history.MachineDeleting:
		h.machine, h.marked = e.Object, h.boot
	case history.ProvisioningState:
		h.unmanaged = !managed(e.Value)
	case history.BareMetalHostDeleted:
		h.consumer = ""
	case history.HostConsumer:
		if h.machine != "" && h.consumer == h.machine && !h.unmanaged {
			c.letGo(h, e)
		}
		h.consumer = e.Value
	case history.NodeDeleted:
		if h.machine != "" {
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
	case byUser(e):
		return
	case e.Actor != "" && !c.roles.tested(e.Actor):
		return
	case !h.known():
		c.judged++
		c.suspend(e, ", and nobody saw whether "+e.Host+" still ran")
		return
	}
	c.judged++
	switch {
	case h.boot != "" && (h.complete || h.boot == h.marked):
		c.accuse(cause{host: e.Host}, &h.began, e, "boot "+h.boot+" of "+e.Host+" still ran")
	case c.near(&h.ended, e):
		c.close(&h.ended, e)
	default:
		c.kept(&h.ended, e)
	}
}

func (c *departures) Finish(complete bool) Result {
	return c.verdict(complete, "no Machine was deleted that had a Node or a host")
}
