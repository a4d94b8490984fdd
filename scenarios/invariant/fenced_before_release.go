package invariant

import (
	"cmp"
	"slices"

	"github.com/fencelab/fencelab/scenarios/history"
)

var fencedBeforeRelease = Invariant{
	ID:    "fenced-before-release",
	Claim: "A Node is deleted for fencing, or its workload released, only when no process of that boot is running.",
	Seed:  "000, 002, 004",
	New: func(p Params) Checker {
		return &releases{
			ruling:     ruling{id: "fenced-before-release", skew: p.Timings.Skew},
			hindrances: p.hindrances,
			roles:      p.Roles,
			hosts:      newRoster[releaseHost](p.Hosts),
		}
	},
}

// releases judges every NodeDeleted and PodDeleted.
//
// No Node may be deleted while a boot of its host runs that ran when fencing was
// decided or that completed since, because its kubelet then uses the Node. A boot
// that began later and hasn't completed knows nothing of the Node: that is the
// other claim's business. That holds for whatever is deleted by a controller
// under test, whether or not anything still asks for fencing, and for what anybody
// else deletes while something does. Otherwise others may delete a Node from under
// a running boot, as when a Machine is deleted after draining; but not from under a
// process of the exclusive workload, for that releases it. An agent of seed 004 deletes a
// Node when the fenced boot is over by its reckoning, while the next one may have
// completed without reaching the API server: it answers for the boot that is fenced, and
// for processes. What the scenario's
// user deletes is the user's own doing, and so is the release that follows.
type releases struct {
	ruling
	*hindrances
	roles Roles
	hosts roster[releaseHost]
}

type releaseHost struct {
	body
	fence fence
	node  string
	// waived is the Node that the scenario's user deleted, and bound the Node of each Pod, by UID: only Pods of the stand-ins
	// say which that is.
	waived string
	bound  map[string]string
	// fenced is the boot that ran when fencing was decided, and named the one that the last
	// NodeFence names, whose end is over, once it is.
	fenced string
	named  string
	over   history.Event
	// back is when the kubelet of the boot that runs has reached the API server, or zero.
	back      history.Event
	processes []process
	// stopped are the processes that stopped while their boot, the present one, went on and whose Pods are still there;
	// lastStop is the latest such stop of any boot.
	stopped  []process
	lastStop history.Event
}

// process is one process of an exclusive workload: of a Pod, unless uid is empty.
type process struct {
	object, uid string
	// event is its start, or its stop once that has come.
	event history.Event
}

func (c *releases) Observe(e *history.Event) *Violation {
	c.ripen(e.At)
	if e.Host != "" {
		c.judge(e)
	}
	return c.tell()
}

func (c *releases) judge(e *history.Event) {
	switch e.Kind.Layer() {
	case history.World, history.API:
	default:
		return
	}
	h := c.hosts.of(e.Host)
	if h.body.observe(e) {
		h.processes, h.stopped = h.processes[:0], h.stopped[:0]
		c.settle(cause{host: e.Host}, e)
	}
	switch e.Kind {
	case history.WorkloadStarted:
		if e.Boot == "" || e.Boot == h.boot {
			h.start(e)
		}
	case history.WorkloadStopped:
		h.stop(e)
		c.settle(cause{e.Host, e.Object}, e)
	case history.EvidenceLost:
		h.processes = h.processes[:0] // repeated when it is regained
	case history.NodeCreated:
		h.node = e.UID
	case history.AnnotationSet, history.AnnotationRemoved:
		if h.fence.observe(e, h.node, &c.roles) {
			h.fenced = h.boot
		}
	case history.FenceRequested:
		h.named, h.over = e.Value, history.Event{}
	case history.FenceEnded:
		h.over = *e
	case history.BootStarted:
		h.back = history.Event{}
	case history.NodeReady:
		if h.complete && h.back.Kind == "" {
			h.back = *e
		}
	case history.NodeDeleted:
		c.nodeDeleted(h, e)
	case history.PodBound:
		if h.bound == nil {
			h.bound = make(map[string]string)
		}
		h.bound[e.UID] = cmp.Or(e.Value, h.node)
	case history.PodDeleted:
		c.podDeleted(h, e)
		delete(h.bound, e.UID)
	}
}

func (h *releaseHost) start(e *history.Event) {
	for _, p := range h.processes {
		if p.object == e.Object && p.uid == e.UID {
			return // repeated
		}
	}
	h.processes = append(h.processes, process{e.Object, e.UID, *e})
}

func (h *releaseHost) stop(e *history.Event) {
	for i, p := range h.processes {
		if p.object == e.Object && (e.UID == "" || p.uid == "" || p.uid == e.UID) {
			h.stopped = slices.DeleteFunc(h.stopped, func(q process) bool { return q.object == p.object && q.uid == p.uid })
			h.stopped, h.lastStop = append(h.stopped, process{p.object, p.uid, *e}), *e
			h.processes = append(h.processes[:i], h.processes[i+1:]...)
			return
		}
	}
}

func (c *releases) nodeDeleted(h *releaseHost, e *history.Event) {
	if h.node == e.UID {
		h.node = ""
	}
	if h.fence.node == e.UID {
		h.fence.node = ""
	}
	if byUser(e) {
		h.waived = e.UID
		return
	}
	fencing := h.fence.active() || c.roles.tested(e.Actor)
	if fencing {
		c.judged++
	}
	switch {
	case !h.known():
		c.suspend(e, ", and nobody saw whether "+e.Host+" still ran")
	case c.roles.agent(e.Actor) && h.named != "" && h.boot != h.named:
		c.afterTheFence(h, e)
	case fencing && h.boot != "" && (h.complete || h.boot == h.fenced):
		c.accuse(cause{e.Host, ""}, &h.began, e, "boot "+h.boot+" of "+e.Host+" still ran")
	case !fencing && len(h.processes) > 0:
		p := &h.processes[0]
		c.accuse(cause{e.Host, p.object}, &p.event, e, p.object+" still ran there")
	case !fencing && h.complete && e.Actor == "":
		c.suspend(e, " by nobody knows whom while "+e.Host+" ran")
	case fencing && c.near(&h.ended, e):
		c.close(&h.ended, e)
	case !fencing && c.near(&h.lastStop, e):
		c.close(&h.lastStop, e)
	case fencing:
		c.kept(&h.ended, e)
	default:
		c.kept(&h.lastStop, e)
	}
}

// afterTheFence judges a Node that an agent deletes when another boot runs than the fenced
// one. That knows nothing of the Node as long as it has not reached the API server.
func (c *releases) afterTheFence(h *releaseHost, e *history.Event) {
	switch {
	case len(h.processes) > 0:
		p := &h.processes[0]
		c.accuse(cause{e.Host, p.object}, &p.event, e, p.object+" still ran there")
	case h.over.Kind != "" && !c.unaware(e, &h.over):
		c.breach(&h.over, e, clause(e)+" by "+e.Actor+", though the fencing of boot "+h.named+" was over since "+seconds(h.over.At))
	case h.boot != "" && h.back.Kind != "" && !c.unaware(e, &h.back):
		c.breach(&h.back, e, clause(e)+" by "+e.Actor+", though boot "+h.boot+" had it Ready since "+seconds(h.back.At))
	default:
		c.allow(e, &h.ended)
	}
}

// byUser reports whether the scenario itself changed an object.
func byUser(e *history.Event) bool {
	return history.IsUser(e.Actor) || e.Actor == string(history.Engine)
}

func (c *releases) podDeleted(h *releaseHost, e *history.Event) {
	if node := cmp.Or(e.Value, h.bound[e.UID]); byUser(e) || node != "" && node == h.waived {
		return
	}
	fencing := h.fence.active() || c.roles.tested(e.Actor)
	if fencing {
		c.judged++
	}
	if !h.known() {
		c.suspend(e, ", and nobody saw whether its process still ran")
		return
	}
	// A process that doesn't say whose it is counts as the Pod's only when there
	// is no other that it could be taken for.
	for i := range h.processes {
		p := &h.processes[i]
		switch {
		case p.uid == e.UID || p.uid == "" && len(h.processes) == 1:
			c.accuse(cause{e.Host, p.object}, &p.event, e, p.object+" still ran there")
			return
		case p.uid == "":
			c.suspend(e, ", and nobody said which process on "+e.Host+" was its")
		}
	}
	// When the process of another Pod stopped is beside the point.
	end := &h.ended
	h.stopped = slices.DeleteFunc(h.stopped, func(p process) bool {
		if p.uid == "" || p.uid == e.UID {
			end = &p.event
		}
		return p.uid == e.UID
	})
	if c.near(end, e) {
		c.close(end, e)
	}
	if fencing {
		c.kept(end, e)
	}
}

func (c *releases) Finish(complete bool) Result {
	return c.verdict(complete, "nothing was released from a host that was being fenced")
}
