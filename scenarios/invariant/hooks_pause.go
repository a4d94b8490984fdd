package invariant

import (
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
)

var hooksPauseDrain = Invariant{
	ID:    "hooks-pause-drain",
	Claim: "While a Machine being deleted has a pre-drain hook, no controller cordons its Node, evicts a Pod from it, or has its host powered off.",
	Seed:  "003",
	New: func(p Params) Checker {
		return newPauses(p, "hooks-pause-drain", preDrainHook, true)
	},
}

var hooksPauseTerminate = Invariant{
	ID:    "hooks-pause-terminate",
	Claim: "While a Machine being deleted has a pre-terminate hook, no controller has its host powered off, releases the host, or deletes the Node.",
	Seed:  "003",
	New: func(p Params) Checker {
		return newPauses(p, "hooks-pause-terminate", preTerminateHook, false)
	},
}

// The annotations of seed 003, as Cluster API spells them.
const (
	preDrainHook     = "pre-drain.delete.hook.machine.cluster.x-k8s.io"
	preTerminateHook = "pre-terminate.delete.hook.machine.cluster.x-k8s.io"
)

// What the condition of a deletion says of its progress. It only excuses.
const (
	phaseDraining    = "DrainingNode"
	phaseTerminating = "WaitingForInfrastructureDeletion"
	phaseDeletesNode = "DeletingNode"
	phaseCompleted   = "DeletionCompleted"
)

// pauses judges what the deletion controller does to the host of a Machine that is
// deleted while there are hooks of a point.
//
// A point is passed by a write to the Machine, which the API server refuses if a hook was
// set before. A hook that is set later is too late: for termination, which can't be called
// back, altogether; during the drain for what was on its way, which is one thing of each
// process, and what arrives when nobody waits for it any more.
type pauses struct {
	ruling
	roles  Roles
	hosts  roster[pausedHost]
	prefix string
	// drain says that the drain is paused, and all that comes after it.
	drain bool
}

type pausedHost struct {
	deleting bool
	phase    string
	hooks    []hook
	// gone is the end of the last of them, or zero.
	gone history.Event
	// owing are the processes that have done, since the first of the hooks was set during
	// the drain, what may have been on its way.
	owing []string
}

// hook is one that stands, and whether the deletion had passed the point before it.
type hook struct {
	set              history.Event
	draining, passed bool
}

func newPauses(p Params, id, prefix string, drain bool) *pauses {
	return &pauses{
		ruling: ruling{id: id, skew: p.Timings.Skew}, roles: p.Roles, hosts: newRoster[pausedHost](p.Hosts),
		prefix: prefix, drain: drain,
	}
}

func (c *pauses) Observe(e history.Event) *Violation {
	if e.Host != "" && e.Kind.Layer() != history.Controller {
		c.judge(c.hosts.of(e.Host), &e)
	}
	return c.tell()
}

func (c *pauses) judge(h *pausedHost, e *history.Event) {
	switch e.Kind {
	case history.MachineDeleting:
		h.deleting = true
		c.judged += len(h.hooks)
	case history.MachineCreated, history.MachineDeleted:
		*h = pausedHost{}
	case history.DeletionPhase:
		h.phase = e.Value
	case history.AnnotationSet, history.AnnotationRemoved:
		if name, ok := strings.CutPrefix(e.Key, c.prefix); ok && (name == "" || name[0] == '/') && strings.HasPrefix(e.Object, "Machine/") {
			c.hooked(h, e)
			return
		}
	}
	switch {
	case !h.deleting || c.roles.Deletion == "" || !c.forbidden(e):
	case len(h.hooks) > 0:
		c.acted(h, e)
	default:
		c.kept(&h.gone, e)
	}
}

func (c *pauses) hooked(h *pausedHost, e *history.Event) {
	i := slices.IndexFunc(h.hooks, func(other hook) bool { return other.set.Key == e.Key })
	switch {
	case e.Kind == history.AnnotationRemoved && i >= 0:
		if h.hooks = slices.Delete(h.hooks, i, i+1); len(h.hooks) == 0 {
			h.owing, h.gone = nil, *e
		}
	case e.Kind == history.AnnotationSet && i < 0:
		h.hooks = append(h.hooks, hook{
			set:      *e,
			draining: h.phase == phaseDraining,
			passed:   h.phase == phaseTerminating || h.phase == phaseDeletesNode || h.phase == phaseCompleted,
		})
		if h.deleting {
			c.judged++
		}
	}
}

// forbidden reports whether an event is something that the deletion controller has done
// to a host, and that the hooks of this point forbid.
func (c *pauses) forbidden(e *history.Event) bool {
	if !plays(e.Actor, c.roles.Deletion) {
		return false
	}
	switch e.Kind {
	case history.NodeCordoned, history.PodTerminating, history.PodDeleted:
		return c.drain
	case history.AnnotationSet:
		_, reboot := rebootRequest(e)
		return reboot
	case history.OnlineWanted:
		return e.Value == "false"
	case history.HostConsumer, history.NodeDeleted, history.MachineDeleted, history.PowerOff, history.BootEnded:
		return true
	}
	return false
}

// acted judges something that is forbidden by the hooks that stand.
func (c *pauses) acted(h *pausedHost, e *history.Event) {
	var first *history.Event
	late := true
	for i := range h.hooks {
		if s := &h.hooks[i]; !s.passed {
			late = late && s.draining
			if first == nil {
				first = &s.set
			}
		}
	}
	if first == nil {
		return // they all came too late
	}
	if late && c.drain && (e.Key == history.Late || !slices.Contains(h.owing, e.Actor)) {
		h.owing = append(h.owing, e.Actor)
		return
	}
	c.breach(first, e, clause(e)+", though the hook "+first.Key+" stood since "+seconds(first.At))
}

func (c *pauses) Finish(complete bool) Result {
	return c.verdict(complete, "no Machine with such a hook was deleted")
}
