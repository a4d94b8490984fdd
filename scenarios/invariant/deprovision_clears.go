package invariant

import (
	"iter"

	"github.com/fencelab/fencelab/scenarios/history"
)

var deprovisionClears = Invariant{
	ID:       "deprovision-clears",
	Claim:    "Once a host has been deprovisioned, no reboot annotation remains on it, and no controller sets one again.",
	Seed:     "000",
	Liveness: true,
	New: func(p Params) Checker {
		return &leavers{promise: newPromise(p, ruling{id: "deprovision-clears"}), roles: p.Roles, hosts: newRoster[leaver](p.Hosts)}
	},
}

// leavers judges the hosts that were provisioned once and no longer are. A request
// may cross the end of that: it is removed. But whoever sets another one after that
// has not looked.
type leavers struct {
	promise
	roles Roles
	hosts roster[leaver]
}

type leaver struct {
	provisioned bool
	left        history.Event   // the end of being provisioned, or zero
	cleared     history.Event   // the last annotation that was removed since
	requests    []history.Event // those that are there
}

func (c *leavers) Observe(e *history.Event) *Violation {
	c.promise.observe(e)
	switch e.Kind {
	case history.ProvisioningState:
		c.state(c.hosts.of(e.Host), e)
	case history.BareMetalHostDeleted:
		*c.hosts.of(e.Host) = leaver{}
	case history.AnnotationSet, history.AnnotationRemoved:
		if _, ok := rebootRequest(e); ok {
			c.annotated(c.hosts.of(e.Host), e)
		}
	}
	return c.tell()
}

func (c *leavers) state(h *leaver, e *history.Event) {
	switch {
	case managed(e.Value):
		h.provisioned, h.left, h.cleared = true, history.Event{}, history.Event{}
	case h.provisioned && h.left.Kind == "":
		h.left = *e
		c.judged += len(h.requests)
	}
}

func (c *leavers) annotated(h *leaver, e *history.Event) {
	kept := h.requests[:0]
	for _, r := range h.requests {
		if r.Key != e.Key {
			kept = append(kept, r)
		}
	}
	changed := len(kept) < len(h.requests)
	h.requests = kept
	if e.Kind == history.AnnotationRemoved {
		if h.left.Kind != "" {
			h.cleared = *e
		}
		return
	}
	h.requests = append(h.requests, *e)
	if h.left.Kind == "" {
		return
	}
	c.judged++
	if h.cleared.Kind != "" && !changed && c.roles.tested(e.Actor) {
		c.breach(&h.cleared, e, clause(e)+", after "+e.Host+" was deprovisioned at "+seconds(h.left.At)+" and its annotations removed at "+seconds(h.cleared.At))
	}
}

func (c *leavers) lacks() iter.Seq[lack] {
	return func(yield func(lack) bool) {
		for i := range c.hosts.hosts {
			h := &c.hosts.hosts[i]
			if c.roles.Power == "" || h.state.left.Kind == "" || len(h.state.requests) == 0 {
				continue
			}
			first := &h.state.requests[0]
			if !yield(lack{
				sentence: h.name + " was deprovisioned at " + seconds(h.state.left.At) + " and " + first.Key + " is still on it", since: first,
				host: h.name, comes: []history.Kind{history.AnnotationRemoved}, on: parties{first: c.roles.Power},
			}) {
				return
			}
		}
	}
}

func (c *leavers) Pending() string { return c.pending(c.lacks()) }

func (c *leavers) Finish(complete bool) Result {
	return c.verdictAfterHealing(complete, c.lacks(), "no host with a reboot annotation was deprovisioned")
}
