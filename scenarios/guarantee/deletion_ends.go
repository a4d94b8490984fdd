package guarantee

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var deletionEnds = invariant.Invariant{
	ID:       "deletion-ends",
	Claim:    "A Machine being deleted is eventually gone, once no hook, no budget and no finalizer of a user holds it back.",
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
// it, for those whose budget protects a Pod that is to be drained, however long that takes, or
// because the state of its host can't be determined: the host no longer belongs to the Machine, was
// deprovisioned, or has no BareMetalHost.
type endings struct {
	invariant.Promise
	roles invariant.Roles
	hosts invariant.Roster[ending]
}

// detachPhases are the phases of a deletion whose drain is still to be done, drainPhases, and the
// one that waits for volumes.
var (
	drainPhases  = []string{"WaitingForPreDrainHook", "DrainingNode"}
	detachPhases = append(slices.Clone(drainPhases), "WaitingForVolumeDetach")
)

type ending struct {
	machine  string
	deleting history.Event
	hooks    []string
	paused   bool
	// protected are the Pods on its Node that a budget protects, without those that no drain
	// evicts, which are stays. skipped says that a user wants no drain, limited only for some time,
	// and drained that the Machine itself is said to be past it.
	protected, stays          []string
	skipped, limited, drained bool
	// attached says that the host has a volume, which a Pod that isn't drained keeps; unwaited that
	// a user doesn't want it to be waited for, or only for some time, and detached that the Machine
	// is said to be past that, too.
	attached, unwaited, detached bool
	consumer                     string
	unmanaged                    bool
	node                         bool
	// taken says that a process under test has taken the host from the Machine.
	taken bool
}

func (c *endings) Observe(e *history.Event) *invariant.Violation {
	c.Promise.Observe(e)
	if e.Host != "" && (e.Kind.Layer() == history.API || e.Kind == history.VolumeAttached || e.Kind == history.VolumeDetached) {
		c.judge(c.hosts.Of(e.Host), e)
	}
	return nil
}

func (c *endings) judge(h *ending, e *history.Event) {
	switch e.Kind {
	case history.MachineCreated:
		h.machine, h.deleting = e.Object, history.Event{}
	case history.MachineDeleting:
		h.machine, h.deleting, h.drained, h.detached = e.Object, *e, false, false
		c.Judged++
	case history.MachineDeleted:
		h.deleting, h.hooks, h.paused, h.skipped, h.limited, h.unwaited = history.Event{}, nil, false, false, false, false
	case history.AnnotationSet, history.AnnotationRemoved:
		if !strings.HasPrefix(e.Object, "Machine/") {
			return
		}
		set := e.Kind == history.AnnotationSet
		switch e.Key {
		case invariant.PausedAnnotation:
			h.paused = set
		case invariant.SkipDrainAnnotation:
			h.skipped = set
		case invariant.SkipDetachAnnotation:
			h.unwaited = set
		}
		if strings.HasPrefix(e.Key, invariant.PreDrainHook) || strings.HasPrefix(e.Key, invariant.PreTerminateHook) {
			h.hooks = invariant.Without(h.hooks, e.Key)
			if set {
				h.hooks = append(h.hooks, e.Key)
			}
		}
	case history.DeletionPhase: // which ends an excuse, and is none
		h.drained = h.drained || e.Value != "" && !slices.Contains(drainPhases, e.Value)
		h.detached = h.detached || e.Value != "" && !slices.Contains(detachPhases, e.Value)
	case history.DrainTimeout:
		limit, err := time.ParseDuration(e.Value)
		h.limited = err == nil && limit > 0
	case history.DetachTimeout:
		h.unwaited = e.Value != ""
	case history.VolumeAttached, history.VolumeDetached:
		h.attached = e.Kind == history.VolumeAttached
	case history.PodBound:
		if e.Key != "" {
			h.stays = append(h.stays, e.UID)
		}
	case history.PodProtected:
		if !slices.Contains(h.stays, e.UID) {
			h.protected = append(invariant.Without(h.protected, e.UID), e.UID)
		}
	case history.PodUnprotected, history.PodTerminating, history.PodDeleted:
		h.protected = invariant.Without(h.protected, e.UID)
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

// mustDrain reports whether the Pods on its Node have to be gone first, or the volume that one of
// them keeps, however long that takes.
func (h *ending) mustDrain() bool {
	return !h.skipped && (!h.limited && !h.drained || h.attached && !h.unwaited && !h.detached)
}

// waitsForPeople reports whether no controller under test may end the deletion.
func (h *ending) waitsForPeople() bool {
	return h.paused || len(h.hooks) > 0 || h.node && len(h.protected) > 0 && h.mustDrain() || h.node && (h.consumer != h.machine && !h.taken || h.unmanaged)
}

func (c *endings) Lacks() iter.Seq[invariant.Lack] {
	return func(yield func(invariant.Lack) bool) {
		for i := range c.hosts.Hosts {
			h := &c.hosts.Hosts[i]
			s := &h.State
			if c.roles.Deletion == "" || s.deleting.Kind == "" || s.waitsForPeople() {
				continue
			}
			ends := invariant.NodeEnds | invariant.MachineEnds
			if s.mustDrain() {
				ends |= invariant.PodEnds
			}
			if s.consumer == s.machine {
				ends |= invariant.HostEnds
			}
			if !yield(invariant.Lack{
				Sentence: s.machine + " was marked for deletion at " + invariant.Seconds(s.deleting.At) + " and is still there", Since: &s.deleting,
				Host: h.Name, Comes: []history.Kind{history.MachineDeleted}, On: invariant.Parties{BMC: h.Name, First: c.roles.Deletion, Second: c.roles.Power, Ends: ends},
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
