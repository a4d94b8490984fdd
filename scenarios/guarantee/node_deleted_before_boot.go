package guarantee

import "github.com/fencelab/fencelab/scenarios/invariant"

import "github.com/fencelab/fencelab/scenarios/history"

var nodeDeletedBeforeBoot = invariant.Invariant{
	ID:    "node-deleted-before-boot",
	Claim: "The Node of a fenced boot is gone before the host's next boot completes.",
	Seed:  "000, 002",
	New: func(p invariant.Params) invariant.Checker {
		return &returns{
			Ruling:     invariant.Ruling{ID: "node-deleted-before-boot", Skew: p.Timings.Skew},
			Hindrances: p.Hindrances,
			roles:      p.Roles,
			hosts:      invariant.NewRoster[returnHost](p.Hosts),
		}
	},
}

// returns judges the first BootComplete after each fenced boot.
//
// A boot is fenced when its host is off and the remediation controller asks for that by a reboot
// annotation, whichever came first, or has switched it off itself for a mark: a host that died is
// the most usual one to be remediated. Its power-on must then wait for its Node to go. A reset, the
// watchdog's for one, ends a boot without fencing it: its Node stays, and so does its workload. Nor
// is it fenced when whoever marked the Machine withdrew the mark, or a user took the host from its
// Machine, or the request away; nor when an agent did so because the host had booted again by then:
// the boot that was meant is over, which is the one that the NodeFence names, or any that ran when
// the Machine was marked. That goes for a request that arrives when the mark is gone, too. And no
// controller can be in time when the power-on was under way before it was asked, or was caused by
// no process under test.
type returns struct {
	invariant.Ruling
	*invariant.Hindrances
	roles invariant.Roles
	hosts invariant.Roster[returnHost]
}

type returnHost struct {
	invariant.Body
	invariant.Start
	fence invariant.Fence
	node  string
	// names is the Node that the Machine names, if known: another one has not to be deleted for the
	// host.
	names   string
	known   bool
	asked   history.Event // the last remediation annotation
	created history.Event
	deleted history.Event
	// empty is that of [invariant.Roles.MakesEmpty].
	empty bool
	// out is the taint that says that its host is off, while the Node has one, and bound are the
	// Pods and volumes that it releases.
	out   history.Event
	bound []string
	// off says that a fenced boot has ended and none has completed since; excused that no process
	// under test could have kept the host off; released that the Node was gone before the power-on,
	// or the host let go of, so that a mark which comes after that is for the next fencing.
	off      bool
	excused  bool
	released bool
	// booted says that another boot has begun since the Machine was marked, and named is
	// the boot that a NodeFence names.
	booted bool
	named  string
	// dismissed says that the last mark was taken away and that nothing is to be fenced
	// for it any more: a request of the remediation controller that arrives later is late.
	dismissed bool
}

func (c *returns) Observe(e *history.Event) *invariant.Violation {
	c.Ripen(e.At)
	if e.Host != "" {
		c.judge(e)
	}
	return c.Tell()
}

func (c *returns) judge(e *history.Event) {
	switch e.Kind.Layer() {
	case history.World, history.API, history.BMC:
	default:
		return
	}
	h := c.hosts.Of(e.Host)
	h.Body.Observe(e)
	switch e.Kind {
	case history.NodeCreated:
		h.node, h.created, h.empty = e.UID, *e, c.roles.MakesEmpty(e)
	case history.NodeReady, history.NodeTakenOver:
		h.empty = h.empty && e.UID != h.node
	case history.MachineNode:
		if h.names, h.known = e.Value, true; h.own() == "" && invariant.ByUser(e) {
			h.fence.Node, h.off = "", false
		}
	case history.MachineDeleted:
		h.known = false
	case history.NodeDeleted:
		c.deleted(e)
	case history.NodeOutOfService:
		h.out = *e // whoever says so: it releases the workload
		h.calledOff()
	case history.NodeInService:
		if invariant.ByUser(&h.out) && h.fence.Active() && len(h.bound) > 0 {
			h.fence.Node = h.node // it has not released everything
		}
		h.out = history.Event{}
	case history.PodBound, history.VolumeAttached:
		if e.Key == "" { // else no taint releases it
			h.bound = append(h.bound, e.Object+e.UID)
		}
	case history.PodDeleted, history.VolumeDetached:
		h.bound = invariant.Without(h.bound, e.Object+e.UID)
	case history.AnnotationSet, history.AnnotationRemoved:
		c.annotated(h, e)
	case history.FenceRequested:
		h.named = e.Value
	case history.FenceEnded:
		h.named = ""
	case history.HostConsumer:
		if invariant.ByUser(e) {
			h.fence.Node, h.off = "", false // its Machine has nothing to do with it any more
		}
	case history.ProvisioningState:
		if invariant.ByUser(e) && !invariant.Managed(e.Value) {
			h.fence.Node, h.off = "", false // with which every request is taken away
		}
	case history.PowerOff:
		if h.fence.Marked && invariant.Plays(e.Actor, c.roles.Remediation) && !invariant.Plays(e.Actor, c.roles.Power) {
			h.fence.Node = h.own() // fenced by a command of its own, and no annotation
			h.off = h.fence.Node != ""
		}
		h.off, h.excused, h.released = h.off || h.fence.Asked && h.fence.Node != "", false, false
	case history.PowerOn:
		if h.off && c.Near(&h.asked, e) {
			c.Close(&h.asked, e)
		}
		h.excused = c.roles.Blameless(e) || h.UnderWay(e, &h.asked, c.Hindrances)
		h.released = h.off && (h.released || h.fence.Node == "")
	case history.BootStarted:
		h.booted = true
	case history.EvidenceLost:
		if h.fence.Node != "" {
			c.Suspend(e, " while it was being fenced")
		}
	case history.BootComplete:
		c.booted(h, e)
	}
	h.Start.Observe(e, &c.roles)
}

func (c *returns) annotated(h *returnHost, e *history.Event) {
	had, before := h.fence.Node, h.fence.Asked
	h.fence.Observe(e, h.own(), &c.roles)
	if had == "" {
		h.calledOff()
	}
	if e.Key == invariant.ExternalAnnotation {
		if e.Kind == history.AnnotationSet {
			h.booted = false
		} else if c.roles.Agent(e.Actor) && (h.booted || h.named != "" && h.Boot != h.named) {
			h.fence.Node = ""
		}
		h.dismissed = e.Kind == history.AnnotationRemoved && h.fence.Node == ""
	} else if h.dismissed && !h.fence.Marked {
		h.fence.Node = ""
	}
	if before && !h.fence.Asked && invariant.ByUser(e) {
		h.off = false // no controller can make good for that in time for sure
	}
	if h.fence.Asked && !before {
		h.asked = *e
	}
	// A mark comes too late for a boot that the fencing before has let come. A request does so only
	// once the host is on.
	h.released = (h.On || !h.fence.Asked) && (h.released || h.off && had == "")
	switch {
	case h.fence.Node == "":
		h.off = h.off && had == "" // not if it was withdrawn
	case h.Blind:
		c.Suspend(e, " while nobody observed "+e.Host)
	case !h.fence.Active() && !h.off:
		h.fence.Node = "" // abandoned before the host went off
	case h.fence.Asked && e.Key == h.fence.Key && h.IsOff():
		h.off = true
	}
}

// deleted notes that a Node is gone for each host that had it, whoever's kubelet wrote to it last.
func (c *returns) deleted(e *history.Event) {
	for i := range c.hosts.Hosts {
		name, h := c.hosts.Hosts[i].Name, &c.hosts.Hosts[i].State
		if name != e.Host && h.created.Object != e.Object {
			continue
		}
		c.Settle(invariant.Cause{Host: name, Thing: e.UID}, e)
		if h.node == e.UID {
			h.node = ""
		}
		if h.fence.Node == e.UID {
			h.fence.Node, h.deleted = "", *e
		}
	}
}

// own is the Node that the host has and its Machine names, or "".
func (h *returnHost) own() string {
	if h.empty || h.known && h.created.Object != "Node/"+h.names {
		return ""
	}
	return h.node
}

// calledOff ends the wait for the Node of a fenced boot that is out of service: nothing runs there.
func (h *returnHost) calledOff() {
	if h.fence.Node != "" && h.fence.Node == h.out.UID {
		h.fence.Node, h.deleted = "", h.out
	}
}

func (c *returns) booted(h *returnHost, e *history.Event) {
	if !h.off || h.Boot != e.Boot {
		return
	}
	gone := h.fence.Node == "" || h.released
	switch {
	case gone && c.Near(&h.deleted, e):
		c.Close(&h.deleted, e)
	case gone:
		c.Judged++
		c.Kept(&h.deleted, e)
	case h.excused:
	default:
		c.Judged++
		c.Accuse(invariant.Cause{Host: e.Host, Thing: h.fence.Node}, &h.created, e, "its Node still existed")
	}
	h.off = false
	if !h.fence.Active() {
		h.fence.Node = ""
	}
}

func (c *returns) Finish(complete bool) invariant.Result {
	return c.Conclude(complete, "no host that was fenced booted again")
}
