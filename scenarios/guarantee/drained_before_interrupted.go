package guarantee

import (
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var drainedBeforeInterrupted = invariant.Invariant{
	ID:    "drained-before-interrupted",
	Claim: "While a Machine that is deleted isn't excused from its drain, nobody has its host go off before each Pod that the drain has to evict has stopped, and its volumes are detached that can be.",
	Seed:  "003",
	Wakes: []history.Kind{history.MachineDeleting},
	New: func(p invariant.Params) invariant.Checker {
		return &drains{
			Ruling:     invariant.Ruling{ID: "drained-before-interrupted", Skew: p.Timings.Skew},
			Hindrances: p.Hindrances,
			roles:      p.Roles,
			hosts:      invariant.NewRoster[draining](p.Hosts),
		}
	},
}

// drains judges who has a host go off whose Machine is deleted: the request of the deletion
// controller, and the edge itself, whoever under test has caused it. A drain is done once the
// Node is cordoned and no Pod that has to be evicted is there any more; on a Node out of
// reach, where nothing stops, once all of them are evicted. What comes to the Node after that
// is none of the drain's. A user may excuse the Machine, by an annotation or by a time that
// the drain may take; and a mark for remediation, or what others ask of the host's power,
// doesn't wait for a drain. What the deletion says of its own progress excuses nothing.
//
// A volume that the Node had is detached after its drain, while a host that runs can still unmount
// it. It is not waited for where nothing can be detached, or a user doesn't want that.
type drains struct {
	invariant.Ruling
	*invariant.Hindrances
	roles invariant.Roles
	hosts invariant.Roster[draining]
}

type draining struct {
	invariant.Body
	drainedMachine
	// attached is the attachment of a volume, while it lasts.
	attached history.Event
	// asked are others' requests to the host, and those that are older than the deletion.
	asked  []string
	others invariant.Demand
	// cordoned, unreachable: what the Node is. gone: there is none.
	cordoned, unreachable, gone bool
	pods                        []podState
	processes                   []string // UIDs of the Pods whose processes run
	forced                      []string // of those that one under test has deleted while they ran
	// under is the last command to go off that was there before the deletion, or on its way by
	// then.
	under history.Event
}

// drainedMachine is the Machine of a host, and its deletion. The next one of its name has none of
// this.
type drainedMachine struct {
	// deleting is its deletion mark, and free when no hook kept it from its drain for the first
	// time since.
	deleting, free history.Event
	hooks          []string
	// limit is for how long a drain may last, and patience for how long its volumes are waited
	// for; 0 if there is no limit.
	limit, patience time.Duration
	// done ended the drain, or the need for one, and released the wait for its volumes.
	done, released history.Event
	// skipped, marked and hasty: the Machine has that annotation.
	skipped, marked, hasty bool
}

// podState is a Pod on the Node that a drain evicts.
type podState struct {
	uid, object string
	since       history.Event
	evicted     bool
}

func (c *drains) Observe(e *history.Event) *invariant.Violation {
	c.Ripen(e.At)
	if e.Host != "" && e.Kind.Layer() != history.Controller {
		h := c.hosts.Of(e.Host)
		c.judge(h, e)
		h.learn(e, &c.roles)
		if e.Kind == history.BMCCommand && invariant.PowersOff(e) && c.OnItsWay(e, &h.deleting) {
			h.under = *e
		}
		if h.deleting.Kind != "" && h.done.Kind == "" && h.excused(e) {
			h.done = *e
			if e.Kind.Layer() == history.API { // the breach itself ends what it has killed
				c.Settle(invariant.Cause{Host: e.Host, Thing: "drain"}, e)
			}
		}
		if h.done.Kind != "" && h.released.Kind == "" && h.detached(e) {
			h.released = *e
		}
	}
	return c.Tell()
}

// judge judges what interrupts a host, or asks for it.
func (c *drains) judge(h *draining, e *history.Event) {
	switch {
	case h.deleting.Kind == "" || h.marked || h.skipped || !c.interrupts(h, e):
		return
	case !h.Known():
		c.Judged++
		c.Suspend(e, ", and nobody saw what ran on "+e.Host)
		return
	case h.done.Kind == "" && h.overdue(e):
		h.done = h.free
	}
	c.Judged++
	physical := e.Kind.Layer() == history.World
	left := h.left(physical)
	switch {
	case left == nil && h.released.Kind == "" && !h.detached(e) && h.attached.Seq < h.deleting.Seq:
		c.Breach(&h.attached, e, invariant.Clause(e)+", while "+h.attached.Object+" was still attached to "+e.Host)
	case left == nil && physical && c.Near(&h.done, e):
		c.Close(&h.done, e)
	case left == nil:
		c.Kept(&h.done, e)
	case physical:
		c.Accuse(invariant.Cause{Host: e.Host, Thing: "drain"}, &left.since, e, left.object+" had not stopped")
	default:
		c.Breach(&left.since, e, invariant.Clause(e)+", while "+left.object+" had not stopped")
	}
}

// interrupts reports whether an event makes the host go off or asks for it, by a process under
// test and not requested by anybody else.
func (c *drains) interrupts(h *draining, e *history.Event) bool {
	switch e.Kind {
	case history.AnnotationSet:
		_, reboot := invariant.RebootRequest(e)
		return reboot && invariant.Plays(e.Actor, c.roles.Deletion)
	case history.OnlineWanted:
		return e.Value == "false" && invariant.Plays(e.Actor, c.roles.Deletion)
	case history.PowerOff, history.BootEnded:
		return h.Boot != "" && c.roles.Tested(e.Actor) && !c.roles.Agent(e.Actor) && len(h.asked) == 0 && h.others.On() && h.under.Kind == ""
	}
	return false
}

// left is a Pod for which the host has to stay on, nil if there is none.
func (h *draining) left(physical bool) *podState {
	if h.done.Kind != "" {
		if physical && len(h.forced) > 0 {
			for i := range h.pods {
				if slices.Contains(h.forced, h.pods[i].uid) {
					return &h.pods[i]
				}
			}
		}
		return nil
	}
	if len(h.pods) == 0 {
		return nil
	}
	return &h.pods[0]
}

// overdue reports whether the time that the drain may take is over. It is measured in whole
// seconds.
func (h *draining) overdue(e *history.Event) bool {
	return h.limit > 0 && h.free.Kind != "" && e.At >= h.free.At+h.limit-time.Second
}

// detached reports whether no volume has to be waited for any more, once the drain is done.
func (h *draining) detached(e *history.Event) bool {
	return h.attached.Kind == "" || h.hasty || h.skipped || h.gone || h.unreachable ||
		h.patience > 0 && e.At >= h.done.At+h.patience-time.Second
}

// excused reports whether the drain is done by now, or not required.
func (h *draining) excused(e *history.Event) bool {
	if h.skipped || h.gone || h.overdue(e) {
		return true
	}
	for i := range h.pods {
		if !h.unreachable || !h.pods[i].evicted {
			return false
		}
	}
	return h.cordoned
}

// learn takes in what is the case from now on.
func (h *draining) learn(e *history.Event, roles *invariant.Roles) {
	h.Body.Observe(e)
	h.learnPods(e, roles)
	switch e.Kind {
	case history.MachineDeleting:
		h.deleting, h.done, h.free, h.released = *e, history.Event{}, history.Event{}, history.Event{}
		if len(h.hooks) == 0 {
			h.free = *e
		}
	case history.MachineCreated, history.MachineDeleted:
		h.drainedMachine = drainedMachine{}
	case history.DrainTimeout:
		h.limit, _ = time.ParseDuration(e.Value) // or there is none
	case history.DetachTimeout:
		h.patience, _ = time.ParseDuration(e.Value) // likewise
	case history.VolumeAttached:
		h.attached = *e
	case history.VolumeDetached:
		h.attached = history.Event{}
	case history.NodeCreated, history.NodeDeleted:
		h.cordoned, h.unreachable, h.gone = false, false, e.Kind == history.NodeDeleted
	case history.NodeCordoned, history.NodeUncordoned:
		h.cordoned = e.Kind == history.NodeCordoned
	case history.NodeReady, history.NodeNotReady:
		h.unreachable = e.Kind == history.NodeNotReady && e.Note == "Unknown"
	case history.BMCCommand:
		if h.deleting.Kind == "" && invariant.PowersOff(e) {
			h.under = *e
		}
	case history.PowerOn, history.BootStarted:
		h.under = history.Event{}
	case history.AnnotationSet, history.AnnotationRemoved:
		h.annotated(e, roles)
	}
	if roles.Blameless(e) || h.deleting.Kind == "" {
		h.others.Observe(e, roles)
	} else if e.Kind == history.AnnotationRemoved {
		h.others.Holds = invariant.Without(h.others.Holds, e.Key)
	}
}

func (h *draining) annotated(e *history.Event, roles *invariant.Roles) {
	set := e.Kind == history.AnnotationSet
	if _, reboot := invariant.RebootRequest(e); reboot {
		h.asked = invariant.Without(h.asked, e.Key)
		if set && (roles.Blameless(e) || h.deleting.Kind == "") {
			h.asked = append(h.asked, e.Key)
		}
		return
	}
	switch name, hook := strings.CutPrefix(e.Key, invariant.PreDrainHook); {
	case !strings.HasPrefix(e.Object, "Machine/"):
	case e.Key == invariant.SkipDrainAnnotation:
		h.skipped = set
	case e.Key == invariant.SkipDetachAnnotation:
		h.hasty = set
	case e.Key == invariant.ExternalAnnotation:
		h.marked = set
	case hook && (name == "" || name[0] == '/'):
		if h.hooks = invariant.Without(h.hooks, e.Key); set {
			h.hooks = append(h.hooks, e.Key)
		} else if len(h.hooks) == 0 && h.deleting.Kind != "" && h.free.Kind == "" {
			h.free = *e
		}
	}
}

// learnPods takes in what becomes of Pods and their processes. A Pod that is gone while its
// process runs was deleted by force: who did so knew, and others can't.
func (h *draining) learnPods(e *history.Event, roles *invariant.Roles) {
	find := func() int {
		for i := range h.pods {
			if h.pods[i].uid == e.UID {
				return i
			}
		}
		return -1
	}
	switch e.Kind {
	case history.PodBound:
		if e.Key == "" && find() < 0 {
			h.pods = append(h.pods, podState{uid: e.UID, object: e.Object, since: *e})
		}
	case history.PodTerminating:
		if i := find(); i >= 0 {
			h.pods[i].evicted, h.pods[i].since = true, *e
		}
	case history.PodDeleted:
		i := find()
		switch {
		case i < 0:
		case slices.Contains(h.processes, e.UID) && roles.Tested(e.Actor):
			h.forced = append(h.forced, e.UID)
		default:
			h.pods = append(h.pods[:i], h.pods[i+1:]...)
		}
	case history.WorkloadStarted:
		h.processes = append(invariant.Without(h.processes, e.UID), e.UID)
	case history.WorkloadStopped:
		h.stopped(e.UID)
	case history.PowerOff, history.PowerOn, history.BootEnded, history.WatchdogFired:
		for len(h.processes) > 0 {
			h.stopped(h.processes[0])
		}
	}
}

func (h *draining) stopped(uid string) {
	h.processes = invariant.Without(h.processes, uid)
	if slices.Contains(h.forced, uid) {
		h.forced = invariant.Without(h.forced, uid)
		for i := range h.pods {
			if h.pods[i].uid == uid {
				h.pods = append(h.pods[:i], h.pods[i+1:]...)
				return
			}
		}
	}
}

func (c *drains) Finish(complete bool) invariant.Result {
	return c.Conclude(complete, "no host whose Machine is deleted was asked to go off")
}
