package invariant

import "github.com/fencelab/fencelab/scenarios/history"

var nodeDeletedBeforeBoot = Invariant{
	ID:    "node-deleted-before-boot",
	Claim: "The Node of a fenced boot is gone before the host's next boot completes.",
	Seed:  "000, 002",
	New: func(p Params) Checker {
		return &returns{
			ruling: ruling{id: "node-deleted-before-boot", skew: p.Timings.Skew},
			hosts:  newRoster[returnHost](p.Hosts),
		}
	},
}

// returns judges the first BootComplete after each fenced boot.
//
// A boot is fenced when its host goes off while the remediation annotation asks
// for that. A power cut before it was asked, or a watchdog's reset, ends a boot
// without fencing it: its Node stays, and so does its workload. Nor is it fenced
// when whoever marked the Machine withdrew the mark.
type returns struct {
	ruling
	hosts roster[returnHost]
}

type returnHost struct {
	body
	fence   fence
	node    string
	created history.Event
	deleted history.Event
	// off says that a fenced boot has ended and none has completed since; close
	// that off and request came too close to tell which was first; pressed that
	// the scenario itself powered the host on.
	off     bool
	close   bool
	pressed bool
}

func (c *returns) Observe(e history.Event) *Violation {
	c.ripen(e.At)
	if e.Host != "" {
		c.judge(&e)
	}
	return c.tell()
}

func (c *returns) judge(e *history.Event) {
	switch e.Kind.Layer() {
	case history.World, history.API:
	default:
		return
	}
	h := c.hosts.of(e.Host)
	wasOn := h.on || !h.known()
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
	case history.PowerOff:
		if wasOn && h.fence.asked && h.fence.node != "" {
			h.off, h.close = true, c.near(&h.fence.request, e)
		}
	case history.PowerOn:
		h.pressed = byScenario(e)
	case history.EvidenceLost:
		if h.fence.node != "" {
			c.suspend(e, " while it was being fenced")
		}
	case history.BootComplete:
		c.booted(h, e)
	}
}

func (c *returns) annotated(h *returnHost, e *history.Event) {
	had := h.fence.node
	h.fence.observe(e, h.node)
	switch {
	case h.fence.node == "":
		h.off = h.off && had == "" // not if it was withdrawn
	case h.blind:
		c.suspend(e, " while nobody observed "+e.Host)
	case !h.fence.active() && !h.off:
		h.fence.node = "" // abandoned before the host went off
	case h.fence.asked && !h.on && e.Key == remediationAnnotation && c.near(&h.ended, e):
		h.off, h.close = true, true
	}
}

func (c *returns) booted(h *returnHost, e *history.Event) {
	if !h.off || h.boot != e.Boot {
		return
	}
	c.judged++
	switch {
	case h.fence.node == "" && c.near(&h.deleted, e):
		c.close(&h.deleted, e)
	case h.fence.node == "":
	case h.close:
		c.close(&h.fence.request, &h.ended)
	case h.pressed:
		c.suspend(e, ", which the scenario itself had powered on while its Node existed")
	default:
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
