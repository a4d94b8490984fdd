package guarantee

import (
	"cmp"
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var fencedBeforeRelease = invariant.Invariant{
	ID:    "fenced-before-release",
	Claim: "A Node is deleted for fencing, its workload released, or a tenant's host given back, only when no process of that boot is running; a Pod also once the storage keeps its host out.",
	Seed:  "000, 002, 004",
	New: func(p invariant.Params) invariant.Checker {
		return &releases{
			Ruling:     invariant.Ruling{ID: "fenced-before-release", Skew: p.Timings.Skew},
			Hindrances: p.Hindrances,
			roles:      p.Roles,
			hosts:      invariant.NewRoster[releaseHost](p.Hosts),
			grace:      p.Timings.Slack,
		}
	},
}

// releases judges every NodeDeleted, PodDeleted and HostReleased.
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
// user deletes is the user's own doing, and so is the release that follows. A host that a tenant
// gives back is the next one's at once, so that no boot of it may run, not even one that has just
// begun: whoever writes that answers for it, under test or not.
type releases struct {
	invariant.Ruling
	*invariant.Hindrances
	roles invariant.Roles
	hosts invariant.Roster[releaseHost]
	// grace is how long whoever clears up after a user may take once the Node is there again.
	grace time.Duration
}

type releaseHost struct {
	invariant.Body
	fence  invariant.Fence
	node   string
	waived string // the Node that the scenario's user deleted
	asked  string // the Node that a process under test wanted gone
	// calledOff says that a user has called the Node out of service: its release is that user's.
	calledOff bool
	returned  history.Event // when there was another Node
	// bound has the Node of each Pod, by UID. Only Pods of the stand-ins say which that is.
	bound  map[string]string
	fenced string        // the boot that ran when fencing was decided
	named  string        // the boot that the last NodeFence names
	over   history.Event // the end of the named boot
	// back is when the kubelet of the boot that runs has reached the API server, or zero.
	back      history.Event
	processes []process
	// stopped are the processes that stopped while their boot, the present one, went on and whose
	// Pods are still there.
	stopped  []process
	lastStop history.Event // the latest such stop, of any boot
}

// process is one process of an exclusive workload: of a Pod, unless uid is empty.
type process struct {
	object, uid string
	// event is its start, or its stop once that has come.
	event history.Event
}

func (c *releases) Observe(e *history.Event) *invariant.Violation {
	c.Ripen(e.At)
	if e.Host != "" {
		c.judge(e)
	}
	return c.Tell()
}

func (c *releases) judge(e *history.Event) {
	switch e.Kind.Layer() {
	case history.World, history.API:
	default:
		return
	}
	h := c.hosts.Of(e.Host)
	if h.Body.Observe(e) {
		h.processes, h.stopped = h.processes[:0], h.stopped[:0]
		c.Settle(invariant.Cause{Host: e.Host}, e)
	}
	switch e.Kind {
	case history.WorkloadStarted:
		if e.Boot == "" || e.Boot == h.Boot {
			h.start(e)
		}
	case history.WorkloadStopped:
		h.stop(e)
		c.Settle(invariant.Cause{Host: e.Host, Thing: e.Object}, e)
	case history.EvidenceLost:
		h.processes = h.processes[:0] // repeated when it is regained
	case history.NodeCreated:
		h.node, h.returned, h.calledOff = e.UID, *e, false
		for pod, node := range h.bound { // order does not matter: each by itself
			if node != h.waived {
				h.bound[pod] = e.UID // Pods are bound by name
			}
		}
	case history.NodeOutOfService, history.NodeInService:
		h.calledOff = e.Kind == history.NodeOutOfService && invariant.ByUser(e)
	case history.AnnotationSet, history.AnnotationRemoved:
		if h.fence.Observe(e, h.node, &c.roles) {
			h.fenced = h.Boot
		}
	case history.FenceRequested:
		h.named, h.over = e.Value, history.Event{}
	case history.FenceEnded:
		h.over = *e
	case history.BootStarted:
		h.back = history.Event{}
	case history.NodeReady:
		if h.Complete && h.back.Kind == "" {
			h.back = *e
		}
	case history.NodeDeleting:
		if c.roles.Tested(e.Actor) { // what keeps it from then on is another's
			h.asked = e.UID
			c.unnode(h, e)
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
	case history.HostReleased:
		c.hostReleased(h, e)
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
	if h.fence.Node == e.UID {
		h.fence.Node = ""
	}
	switch {
	case h.asked == e.UID: // which was judged then
	case invariant.ByUser(e):
		h.waived = e.UID
	default:
		c.unnode(h, e)
	}
}

// unnode judges a Node that is deleted, or asked to be gone.
func (c *releases) unnode(h *releaseHost, e *history.Event) {
	fencing := h.fence.Active() || c.roles.Tested(e.Actor)
	if fencing {
		c.Judged++
	}
	switch {
	case !h.Known():
		c.Suspend(e, ", and nobody saw whether "+e.Host+" still ran")
	case c.roles.Agent(e.Actor) && h.named != "" && h.Boot != h.named:
		c.afterTheFence(h, e)
	case fencing && h.Boot != "" && (h.Complete || h.Boot == h.fenced):
		c.Accuse(invariant.Cause{Host: e.Host, Thing: ""}, h.Began(), e, "boot "+h.Boot+" of "+e.Host+" still ran")
	case !fencing && len(h.processes) > 0:
		p := &h.processes[0]
		c.Accuse(invariant.Cause{Host: e.Host, Thing: p.object}, &p.event, e, p.object+" still ran there")
	case !fencing && h.Complete && e.Actor == "":
		c.Suspend(e, " by nobody knows whom while "+e.Host+" ran")
	case fencing && c.Near(h.Ended(), e):
		c.Close(h.Ended(), e)
	case !fencing && c.Near(&h.lastStop, e):
		c.Close(&h.lastStop, e)
	case fencing:
		c.Kept(h.Ended(), e)
	default:
		c.Kept(&h.lastStop, e)
	}
}

// afterTheFence judges a Node that an agent deletes when another boot runs than the fenced
// one. That knows nothing of the Node as long as it has not reached the API server.
func (c *releases) afterTheFence(h *releaseHost, e *history.Event) {
	switch {
	case len(h.processes) > 0:
		p := &h.processes[0]
		c.Accuse(invariant.Cause{Host: e.Host, Thing: p.object}, &p.event, e, p.object+" still ran there")
	case h.over.Kind != "" && !c.Unaware(e, &h.over):
		c.Breach(&h.over, e, invariant.Clause(e)+" by "+e.Actor+", though the fencing of boot "+h.named+" was over since "+invariant.Seconds(h.over.At))
	case h.Boot != "" && h.back.Kind != "" && !c.Unaware(e, &h.back):
		c.Breach(&h.back, e, invariant.Clause(e)+" by "+e.Actor+", though boot "+h.Boot+" had it Ready since "+invariant.Seconds(h.back.At))
	default:
		c.Allow(e, h.Ended())
	}
}

// clearsUp reports whether a Pod is deleted because a user has deleted its Node: by others than the
// controllers under test, and before there has been another Node for a while.
func (c *releases) clearsUp(h *releaseHost, e *history.Event) bool {
	node := cmp.Or(h.bound[e.UID], e.Value)
	return node != "" && node == h.waived && c.roles.Blameless(e) &&
		(h.node == "" || e.At-h.returned.At-c.Lost(h.returned.At, e.At, invariant.Parties{First: e.Actor}) <= c.grace)
}

func (c *releases) hostReleased(h *releaseHost, e *history.Event) {
	if invariant.ByUser(e) {
		return
	}
	c.Judged++
	switch {
	case !h.Known():
		c.Suspend(e, ", and nobody saw whether "+e.Host+" still ran")
	case h.Boot != "":
		c.Accuse(invariant.Cause{Host: e.Host, Thing: ""}, h.Began(), e, "boot "+h.Boot+" of "+e.Host+" still ran")
	case c.Near(h.Ended(), e): // it is ruled on, if in doubt
		c.Allow(e, h.Ended())
		c.Close(h.Ended(), e)
	default:
		c.Allow(e, h.Ended())
		c.Kept(h.Ended(), e)
	}
}

func (c *releases) podDeleted(h *releaseHost, e *history.Event) {
	if invariant.ByUser(e) || c.clearsUp(h, e) || h.calledOff && c.roles.Blameless(e) {
		return
	}
	fencing := h.fence.Active() || c.roles.Tested(e.Actor)
	if fencing {
		c.Judged++
	}
	if !h.Known() {
		c.Suspend(e, ", and nobody saw whether its process still ran")
		return
	}
	if h.KeptOut() {
		if c.Near(h.Kept(), e) {
			c.Close(h.Kept(), e)
		}
		if fencing {
			c.Kept(h.Kept(), e)
		}
		return
	}
	// A process that doesn't say whose it is counts as the Pod's only when there
	// is no other that it could be taken for.
	for i := range h.processes {
		p := &h.processes[i]
		its := p.uid == e.UID || p.uid == "" && len(h.processes) == 1
		switch {
		case its && c.roles.Blameless(e) && (c.OnItsWay(e, &p.event) || c.unheard(e, &p.event)):
			return // it was decided when none ran, and Kubernetes looks no second time
		case its:
			c.Accuse(invariant.Cause{Host: e.Host, Thing: p.object}, &p.event, e, p.object+" still ran there")
			return
		case p.uid == "":
			c.Suspend(e, ", and nobody said which process on "+e.Host+" was its")
		}
	}
	// When the process of another Pod stopped is beside the point.
	end := h.Ended()
	h.stopped = slices.DeleteFunc(h.stopped, func(p process) bool {
		if p.uid == "" || p.uid == e.UID {
			end = &p.event
		}
		return p.uid == e.UID
	})
	if c.Near(end, e) {
		c.Close(end, e)
	}
	if fencing {
		c.Kept(end, e)
	}
}

// unheard reports whether the actor of e was held up all the time since something was so, and may
// not have heard of it: Kubernetes deletes Pods by its cache, and by their names.
func (c *releases) unheard(e, since *history.Event) bool {
	return e.At-since.At-c.Lost(since.At, e.At, invariant.Parties{First: e.Actor}) <= 0
}

func (c *releases) Finish(complete bool) invariant.Result {
	return c.Conclude(complete, "nothing was released from a host that was being fenced")
}
