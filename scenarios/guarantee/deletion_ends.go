package guarantee

import (
	"iter"
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var deletionEnds = invariant.Invariant{
	ID:       "deletion-ends",
	Claim:    "A Machine being deleted is eventually gone, once no hook holds it back.",
	Seed:     "003",
	Liveness: true,
	Wakes:    []history.Kind{history.MachineDeleting},
	New: func(p invariant.Params) invariant.Checker {
		return &endings{Promise: invariant.NewPromise(p, invariant.Ruling{ID: "deletion-ends"}), roles: p.Roles, hosts: invariant.NewRoster[ending](p.Hosts)}
	},
}

// endings judges the Machines that are being deleted after healing.
//
// Excused is a deletion that waits for people: for the owners of its hooks, for whoever has paused
// it, or because the state of its host can't be determined: the host no longer belongs to the
// Machine, was deprovisioned, or has no BareMetalHost.
type endings struct {
	invariant.Promise
	roles invariant.Roles
	hosts invariant.Roster[ending]
}

type ending struct {
	machine   string
	deleting  history.Event
	hooks     []string
	paused    bool
	consumer  string
	unmanaged bool
	node      bool
	// taken says that a process under test has taken the host from the Machine.
	taken bool
}

func (c *endings) Observe(e *history.Event) *invariant.Violation {
	c.Promise.Observe(e)
	if e.Host != "" && e.Kind.Layer() == history.API {
		c.judge(c.hosts.Of(e.Host), e)
	}
	return nil
}

func (c *endings) judge(h *ending, e *history.Event) {
	switch e.Kind {
	case history.MachineCreated:
		h.machine, h.deleting = e.Object, history.Event{}
	case history.MachineDeleting:
		h.machine, h.deleting = e.Object, *e
		c.Judged++
	case history.MachineDeleted:
		h.deleting, h.hooks, h.paused = history.Event{}, nil, false
	case history.AnnotationSet, history.AnnotationRemoved:
		if !strings.HasPrefix(e.Object, "Machine/") {
			return
		}
		set := e.Kind == history.AnnotationSet
		if e.Key == invariant.PausedAnnotation {
			h.paused = set
		}
		if strings.HasPrefix(e.Key, invariant.PreDrainHook) || strings.HasPrefix(e.Key, invariant.PreTerminateHook) {
			h.hooks = invariant.Without(h.hooks, e.Key)
			if set {
				h.hooks = append(h.hooks, e.Key)
			}
		}
	case history.HostConsumer:
		h.taken = c.roles.Tested(e.Actor) && (h.taken || h.machine != "" && h.consumer == h.machine) && e.Value != h.machine
		h.consumer = e.Value
	case history.BareMetalHostDeleted:
		h.consumer = ""
	case history.ProvisioningState:
		h.unmanaged = !invariant.Managed(e.Value)
	case history.NodeCreated, history.NodeDeleted:
		h.node = e.Kind == history.NodeCreated
	}
}

// waitsForPeople reports whether no controller under test may end the deletion.
func (h *ending) waitsForPeople() bool {
	return h.paused || len(h.hooks) > 0 || h.node && (h.consumer != h.machine && !h.taken || h.unmanaged)
}

func (c *endings) Lacks() iter.Seq[invariant.Lack] {
	return func(yield func(invariant.Lack) bool) {
		for i := range c.hosts.Hosts {
			h := &c.hosts.Hosts[i]
			s := &h.State
			if c.roles.Deletion == "" || s.deleting.Kind == "" || s.waitsForPeople() {
				continue
			}
			if !yield(invariant.Lack{
				Sentence: s.machine + " was marked for deletion at " + invariant.Seconds(s.deleting.At) + " and is still there", Since: &s.deleting,
				Host: h.Name, Comes: []history.Kind{history.MachineDeleted}, On: invariant.Parties{BMC: h.Name, First: c.roles.Deletion, Second: c.roles.Power},
			}) {
				return
			}
		}
	}
}

func (c *endings) Pending() string { return c.Owing(c.Lacks()) }

func (c *endings) Finish(complete bool) invariant.Result {
	return c.ConcludeAfterHealing(complete, c.Lacks(), "no Machine was deleted that something had to be done for")
}
