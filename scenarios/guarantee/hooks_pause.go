package guarantee

import (
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var hooksPauseDrain = invariant.Invariant{
	ID:    "hooks-pause-drain",
	Claim: "While a Machine being deleted has a pre-drain hook, no controller cordons its Node, evicts a Pod from it, or has its host powered off.",
	Seed:  "003",
	Wakes: []history.Kind{history.MachineDeleting},
	New: func(p invariant.Params) invariant.Checker {
		return newPauses(p, "hooks-pause-drain", invariant.PreDrainHook, true)
	},
}

var hooksPauseTerminate = invariant.Invariant{
	ID:    "hooks-pause-terminate",
	Claim: "While a Machine being deleted has a pre-terminate hook, no controller has its host powered off, releases the host, or deletes the Node.",
	Seed:  "003",
	Wakes: []history.Kind{history.MachineDeleting},
	New: func(p invariant.Params) invariant.Checker {
		return newPauses(p, "hooks-pause-terminate", invariant.PreTerminateHook, false)
	},
}

// pauses judges what the deletion controller does to the host of a Machine that is
// deleted while there are hooks of a point.
//
// A hook is too late when what it is about has begun: for termination, which can't be called back,
// once the host was asked to go off; for the drain, once something was cordoned or evicted, for
// what was on its way: one thing of each process, and requests whose clients have given up. What
// the controller says of its own progress excuses nothing.
type pauses struct {
	invariant.Ruling
	*invariant.Hindrances
	roles  invariant.Roles
	hosts  invariant.Roster[pausedHost]
	prefix string
	// drain says that the drain is paused, and all that comes after it.
	drain bool
}

type pausedHost struct {
	deleting history.Event
	// drained is the first thing of a drain that was done, and ended the first of a
	// termination; or zero.
	drained, ended history.Event
	hooks          []hook
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

func newPauses(p invariant.Params, id, prefix string, drain bool) *pauses {
	return &pauses{
		Ruling: invariant.Ruling{ID: id, Skew: p.Timings.Skew}, Hindrances: p.Hindrances, roles: p.Roles, hosts: invariant.NewRoster[pausedHost](p.Hosts),
		prefix: prefix, drain: drain,
	}
}

func (c *pauses) Observe(e *history.Event) *invariant.Violation {
	if e.Host != "" && e.Kind.Layer() != history.Controller {
		c.judge(c.hosts.Of(e.Host), e)
	}
	return c.Tell()
}

func (c *pauses) judge(h *pausedHost, e *history.Event) {
	switch e.Kind {
	case history.MachineDeleting:
		h.deleting = *e
		c.Judged += len(h.hooks)
	case history.MachineCreated, history.MachineDeleted:
		*h = pausedHost{}
	case history.AnnotationSet, history.AnnotationRemoved:
		if name, ok := strings.CutPrefix(e.Key, c.prefix); ok && (name == "" || name[0] == '/') && strings.HasPrefix(e.Object, "Machine/") {
			c.hooked(h, e)
			return
		}
	}
	if h.deleting.Kind == "" || c.roles.Deletion == "" || !invariant.Plays(e.Actor, c.roles.Deletion) {
		return
	}
	drains, ends := invariant.Interrupts(e)
	switch {
	case !ends && !(drains && c.drain):
	case len(h.hooks) > 0:
		c.acted(h, e, ends)
	default:
		c.Kept(&h.gone, e)
	}
	if drains && h.drained.Kind == "" {
		h.drained = *e
	}
	if ends && h.ended.Kind == "" {
		h.ended = *e
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
			draining: h.drained.Kind != "",
			passed:   h.ended.Kind != "",
		})
		if h.deleting.Kind != "" {
			c.Judged++
		}
	}
}

// acted judges something that is forbidden by the hooks that stand. A hook that meets the
// beginning of a termination on its way has come too late for all of it.
func (c *pauses) acted(h *pausedHost, e *history.Event, ends bool) {
	var first *history.Event
	late := true
	for i := range h.hooks {
		s := &h.hooks[i]
		switch {
		case s.passed:
		case s.set.Seq > h.deleting.Seq && c.OnItsWay(e, &s.set):
			s.passed = ends
		default:
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
	c.Breach(first, e, invariant.Clause(e)+", though the hook "+first.Key+" stood since "+invariant.Seconds(first.At))
}

func (c *pauses) Finish(complete bool) invariant.Result {
	return c.Conclude(complete, "no Machine with such a hook was deleted")
}
