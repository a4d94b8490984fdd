package invariant

import "github.com/fencelab/fencelab/scenarios/history"

var nodeDeletedBeforeBoot = Invariant{
	ID:    "node-deleted-before-boot",
	Claim: "The Node of a fenced boot is gone before the host's next boot completes.",
	Seed:  "000, 002",
	New: func(p Params) Checker {
		return &returns{
			ruling:     ruling{id: "node-deleted-before-boot", skew: p.Timings.Skew},
			hindrances: p.hindrances,
			roles:      p.Roles,
			hosts:      newRoster[returnHost](p.Hosts),
		}
	},
}

// returns judges the first BootComplete after each fenced boot.
//
// A boot is fenced when its host is off and the remediation controller asks for that by a
// reboot annotation, whichever came first, or has switched it off itself for a mark: a host that died is the most usual one to be
// remediated. Its power-on must then wait for its Node to go. A reset, the
// watchdog's for one, ends a boot without fencing it: its Node stays, and so does its
// workload. Nor is it fenced when whoever marked the Machine withdrew the mark,
// or a user took the host from its Machine, or the request away; nor when an agent
// did so because the host had booted again by then: the boot that was meant is over, which
// is the one that the NodeFence names, or any that ran when the Machine was marked. That
// goes for a request that arrives when the mark is gone, too.
// And no controller can be in time when the power-on was under way before it was
// asked, or is nobody's doing who is under test.
type returns struct {
	ruling
	*hindrances
	roles Roles
	hosts roster[returnHost]
}

type returnHost struct {
	body
	start
	fence   fence
	node    string
	asked   history.Event // the last remediation annotation
	created history.Event
	deleted history.Event
	// off says that a fenced boot has ended and none has completed since; excused
	// that nobody under test could have kept the host off.
	off     bool
	excused bool
	// booted says that another boot has begun since the Machine was marked, and named is
	// the boot that a NodeFence names.
	booted bool
	named  string
	// dismissed says that the last mark was taken away and that nothing is to be fenced
	// for it any more: a request of the remediation controller that arrives later is late.
	dismissed bool
}

func (c *returns) Observe(e *history.Event) *Violation {
	c.ripen(e.At)
	if e.Host != "" {
		c.judge(e)
	}
	return c.tell()
}

func (c *returns) judge(e *history.Event) {
	switch e.Kind.Layer() {
	case history.World, history.API, history.BMC:
	default:
		return
	}
	h := c.hosts.of(e.Host)
	h.body.observe(e)
	switch e.Kind {
	case history.NodeCreated:
		h.node, h.created = e.UID, *e
	case history.NodeDeleted:
		c.settle(cause{e.Host, e.UID}, e)
		if h.node == e.UID {
			h.node = ""
		}
		if h.fence.node == e.UID {
			h.fence.node, h.deleted = "", *e
		}
	case history.AnnotationSet, history.AnnotationRemoved:
		c.annotated(h, e)
	case history.FenceRequested:
		h.named = e.Value
	case history.FenceEnded:
		h.named = ""
	case history.HostConsumer:
		if byUser(e) {
			h.fence.node, h.off = "", false // its Machine has nothing to do with it any more
		}
	case history.PowerOff:
		if h.fence.marked && plays(e.Actor, c.roles.Remediation) && !plays(e.Actor, c.roles.Power) {
			h.fence.node = h.node // fenced by a command of its own, and no annotation
			h.off = h.node != ""
		}
		h.off, h.excused = h.off || h.fence.asked && h.fence.node != "", false
	case history.PowerOn:
		if h.off && c.near(&h.asked, e) {
			c.close(&h.asked, e)
		}
		h.excused = c.roles.blameless(e) || h.underWay(e, &h.asked, c.hindrances)
	case history.BootStarted:
		h.booted = true
	case history.EvidenceLost:
		if h.fence.node != "" {
			c.suspend(e, " while it was being fenced")
		}
	case history.BootComplete:
		c.booted(h, e)
	}
	h.start.observe(e, &c.roles)
}

func (c *returns) annotated(h *returnHost, e *history.Event) {
	had, before := h.fence.node, h.fence.asked
	h.fence.observe(e, h.node, &c.roles)
	if e.Key == externalAnnotation {
		if e.Kind == history.AnnotationSet {
			h.booted = false
		} else if c.roles.agent(e.Actor) && (h.booted || h.named != "" && h.boot != h.named) {
			h.fence.node = ""
		}
		h.dismissed = e.Kind == history.AnnotationRemoved && had != "" && h.fence.node == ""
	} else if h.dismissed && !h.fence.marked {
		h.fence.node = ""
	}
	if before && !h.fence.asked && byUser(e) {
		h.off = false // nobody can make good for that in time for sure
	}
	if h.fence.asked && !before {
		h.asked = *e
	}
	switch {
	case h.fence.node == "":
		h.off = h.off && had == "" // not if it was withdrawn
	case h.blind:
		c.suspend(e, " while nobody observed "+e.Host)
	case !h.fence.active() && !h.off:
		h.fence.node = "" // abandoned before the host went off
	case h.fence.asked && e.Key == h.fence.key && h.isOff():
		h.off = true
	}
}

func (c *returns) booted(h *returnHost, e *history.Event) {
	if !h.off || h.boot != e.Boot {
		return
	}
	switch {
	case h.fence.node == "" && c.near(&h.deleted, e):
		c.close(&h.deleted, e)
	case h.fence.node == "":
		c.judged++
		c.kept(&h.deleted, e)
	case h.excused:
	default:
		c.judged++
		c.accuse(cause{e.Host, h.fence.node}, &h.created, e, "its Node still existed")
	}
	h.off = false
	if !h.fence.active() {
		h.fence.node = ""
	}
}

func (c *returns) Finish(complete bool) Result {
	return c.verdict(complete, "no host that was fenced booted again")
}
