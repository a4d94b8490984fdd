package guarantee

import (
	"iter"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var deprovisionClears = invariant.Invariant{
	ID:       "deprovision-clears",
	Claim:    "Once a host has been deprovisioned, no reboot annotation remains on it, and no controller sets one again.",
	Seed:     "000",
	Liveness: true,
	New: func(p invariant.Params) invariant.Checker {
		return &leavers{Promise: invariant.NewPromise(p, invariant.Ruling{ID: "deprovision-clears"}), roles: p.Roles, hosts: invariant.NewRoster[leaver](p.Hosts)}
	},
}

// leavers judges the hosts that were provisioned once and no longer are. A request
// may cross the end of that: it is removed. But whoever sets another one after that
// has not looked.
type leavers struct {
	invariant.Promise
	roles invariant.Roles
	hosts invariant.Roster[leaver]
}

type leaver struct {
	provisioned bool
	left        history.Event   // the end of being provisioned, or zero
	cleared     history.Event   // the last annotation that was removed since
	requests    []history.Event // those that are there
}

func (c *leavers) Observe(e *history.Event) *invariant.Violation {
	c.Promise.Observe(e)
	switch e.Kind {
	case history.ProvisioningState:
		c.state(c.hosts.Of(e.Host), e)
	case history.BareMetalHostDeleted:
		*c.hosts.Of(e.Host) = leaver{}
	case history.AnnotationSet, history.AnnotationRemoved:
		if _, ok := invariant.RebootRequest(e); ok {
			c.annotated(c.hosts.Of(e.Host), e)
		}
	}
	return c.Tell()
}

func (c *leavers) state(h *leaver, e *history.Event) {
	switch {
	case e.Value == invariant.Detached:
	case invariant.Managed(e.Value):
		h.provisioned, h.left, h.cleared = true, history.Event{}, history.Event{}
	case h.provisioned && h.left.Kind == "":
		h.left = *e
		c.Judged += len(h.requests)
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
	c.Judged++
	if h.cleared.Kind != "" && !changed && c.roles.Tested(e.Actor) {
		c.Breach(&h.cleared, e, invariant.Clause(e)+", after "+e.Host+" was deprovisioned at "+invariant.Seconds(h.left.At)+" and its annotations removed at "+invariant.Seconds(h.cleared.At))
	}
}

func (c *leavers) Lacks() iter.Seq[invariant.Lack] {
	return func(yield func(invariant.Lack) bool) {
		for i := range c.hosts.Hosts {
			h := &c.hosts.Hosts[i]
			if c.roles.Power == "" || h.State.left.Kind == "" || len(h.State.requests) == 0 {
				continue
			}
			first := &h.State.requests[0]
			if !yield(invariant.Lack{
				Sentence: h.Name + " was deprovisioned at " + invariant.Seconds(h.State.left.At) + " and " + first.Key + " is still on it", Since: first,
				Host: h.Name, Comes: []history.Kind{history.AnnotationRemoved}, On: invariant.Parties{First: c.roles.Power},
			}) {
				return
			}
		}
	}
}

func (c *leavers) Pending() string { return c.Owing(c.Lacks()) }

func (c *leavers) Finish(complete bool) invariant.Result {
	return c.ConcludeAfterHealing(complete, c.Lacks(), "no host with a reboot annotation was deprovisioned")
}
