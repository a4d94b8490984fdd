package invariant

import (
	"iter"
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
)

var deletionEnds = Invariant{
	ID:       "deletion-ends",
	Claim:    "A Machine being deleted is eventually gone, once no hook holds it back.",
	Seed:     "003",
	Liveness: true,
	New: func(p Params) Checker {
		return &endings{promise: newPromise(p, ruling{id: "deletion-ends"}), roles: p.Roles, hosts: newRoster[ending](p.Hosts)}
	},
}

// endings judges the Machines that are being deleted after healing.
//
// Excused is a deletion that waits for people: for the owners of its hooks, for whoever has
// paused it, and where nobody can tell whether its host is off, because that is no longer
// the Machine's, was deprovisioned, or has no BareMetalHost.
type endings struct {
	promise
	roles Roles
	hosts roster[ending]
}

type ending struct {
	machine   string
	deleting  history.Event
	hooks     []string
	paused    bool
	consumer  string
	unmanaged bool
	node      bool
}

func (c *endings) Observe(e *history.Event) *Violation {
	c.promise.observe(e)
	if e.Host != "" && e.Kind.Layer() == history.API {
		c.judge(c.hosts.of(e.Host), e)
	}
	return nil
}

func (c *endings) judge(h *ending, e *history.Event) {
	switch e.Kind {
	case history.MachineCreated:
		h.machine, h.deleting = e.Object, history.Event{}
	case history.MachineDeleting:
		h.machine, h.deleting = e.Object, *e
		c.judged++
	case history.MachineDeleted:
		h.deleting, h.hooks, h.paused = history.Event{}, nil, false
	case history.AnnotationSet, history.AnnotationRemoved:
		if !strings.HasPrefix(e.Object, "Machine/") {
			return
		}
		set := e.Kind == history.AnnotationSet
		if e.Key == pausedAnnotation {
			h.paused = set
		}
		if strings.HasPrefix(e.Key, preDrainHook) || strings.HasPrefix(e.Key, preTerminateHook) {
			h.hooks = without(h.hooks, e.Key)
			if set {
				h.hooks = append(h.hooks, e.Key)
			}
		}
	case history.HostConsumer:
		h.consumer = e.Value
	case history.BareMetalHostDeleted:
		h.consumer = ""
	case history.ProvisioningState:
		h.unmanaged = !managed(e.Value)
	case history.NodeCreated, history.NodeDeleted:
		h.node = e.Kind == history.NodeCreated
	}
}

// waitsForPeople reports whether nobody under test may end the deletion.
func (h *ending) waitsForPeople() bool {
	return h.paused || len(h.hooks) > 0 || h.node && (h.consumer != h.machine || h.unmanaged)
}

func (c *endings) lacks() iter.Seq[lack] {
	return func(yield func(lack) bool) {
		for i := range c.hosts.hosts {
			h := &c.hosts.hosts[i]
			s := &h.state
			if c.roles.Deletion == "" || s.deleting.Kind == "" || s.waitsForPeople() {
				continue
			}
			if !yield(lack{
				sentence: s.machine + " was marked for deletion at " + seconds(s.deleting.At) + " and is still there", since: &s.deleting,
				host: h.name, comes: []history.Kind{history.MachineDeleted}, on: parties{bmc: h.name, first: c.roles.Deletion, second: c.roles.Power},
			}) {
				return
			}
		}
	}
}

func (c *endings) Pending() string { return c.pending(c.lacks()) }

func (c *endings) Finish(complete bool) Result {
	return c.verdictAfterHealing(complete, c.lacks(), "no Machine was deleted that something had to be done for")
}
