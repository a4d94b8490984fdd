package guarantee

import (
	"iter"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var releasedInTime = invariant.Invariant{
	ID:       "released-in-time",
	Claim:    "A volume that a fenced host can no longer write to is detached, or mounted by a later boot there, in the time that the way of releasing it takes, also while the fault lasts, and eventually in any case.",
	Seed:     "002, 004",
	Liveness: true,
	Wakes:    []history.Kind{history.VolumeAttached},
	New: func(p invariant.Params) invariant.Checker {
		return &deliveries{
			Promise:   invariant.NewPromise(p, invariant.Ruling{ID: "released-in-time"}),
			witnesses: invariant.NewWitnesses(p),
			pledges:   newPledges(p),
			roles:     p.Roles,
			hosts:     invariant.NewRoster[delivery](p.Hosts),
			limit:     p.Timings.Freed, orphaned: p.Timings.Orphaned,
		}
	},
}

// deliveries judges fencings that a controller under test has begun: it asked a marked host to go
// off, declared that a boot is to be fenced, or keeps a host out of the storage. Whether a fencing
// begins at all is judged by unhealthy-is-fenced.
//
// The time counts while the fault lasts too, since a release needs nothing of the lost host. It
// begins anew when a process of the cluster starts, because that keeps its timers in memory. For
// agents it counts only while most of them are well. A fencing is over once nothing asks for it any
// more and a later boot, which has been in service, has ended too. Where the Machine leaves,
// another than the fencer deletes the Node, or a user withdraws what it goes by, the fencer's way
// comes to no end, and Kubernetes takes its own time.
type deliveries struct {
	invariant.Promise
	witnesses invariant.Witnesses
	pledges   pledges
	roles     invariant.Roles
	hosts     invariant.Roster[delivery]
	// limit and orphaned are 0 where no settings bound the time.
	limit, orphaned time.Duration
}

// delivery is a host whose fencing has begun.
type delivery struct {
	access
	// begun is when it did, the zero event if it hasn't.
	begun history.Event
	// idle is since when nothing there can write to a volume that it still has; timed says that the
	// time counts, from since.
	idle  history.Event
	since time.Duration
	timed bool
	// orphan says that its Machine leaves, or that another than its fencer has deleted its Node;
	// withdrawn that a user has taken the mark or the Node's name from the Machine, without which
	// the fencer doesn't go on.
	orphan, withdrawn bool
	// marked says that its Machine is, fenced that a NodeFence names it, gone that it has no Node,
	// and back that the Node of a later boot has been Ready.
	marked, fenced, gone, back bool
}

func (c *deliveries) Observe(e *history.Event) *invariant.Violation {
	c.expire(e)
	c.witnesses.Observe(e)
	c.pledges.observe(e)
	c.Promise.Observe(e)
	if e.Kind == history.ControllerStarted && !c.roles.Tested(e.Actor) {
		for i := range c.hosts.Hosts {
			c.hosts.Hosts[i].State.since = e.At
		}
	}
	if layer := e.Kind.Layer(); e.Host != "" && (layer == history.World || layer == history.API) {
		h := c.hosts.Of(e.Host)
		h.observe(e)
		c.begin(h, e)
		c.follow(h, e)
	}
	return c.Tell()
}

// begin notes the beginning and the end of a fencing.
func (c *deliveries) begin(h *delivery, e *history.Event) {
	_, asks := invariant.RebootRequest(e)
	switch e.Kind {
	case history.MachineCreated, history.VolumeAttached:
		h.orphan = false
	case history.MachineDeleting, history.MachineDeleted:
		h.orphan = true
	case history.MachineNode:
		h.withdrawn = h.withdrawn || e.Value == "" && c.roles.Blameless(e)
	case history.AnnotationSet, history.AnnotationRemoved:
		if e.Key == invariant.ExternalAnnotation {
			h.marked = e.Kind == history.AnnotationSet
			if h.withdrawn { // the fencer goes on now, if the earlier fencing has left a Node to release
				h.since, h.orphan = e.At, h.orphan || h.gone
			}
			h.withdrawn = e.Kind == history.AnnotationRemoved && c.roles.Blameless(e)
		}
	case history.NodeDeleted:
		h.orphan = h.orphan || !c.roles.Remediates(e.Actor) && !c.roles.Agent(e.Actor)
		h.gone, h.back = true, false
	case history.NodeCreated:
		h.gone = false
	case history.NodeReady:
		h.back = h.idle.Kind != "" && h.Complete && h.Began().Seq > h.idle.Seq
	case history.FenceRequested, history.FenceEnded:
		h.fenced = e.Kind == history.FenceRequested
	}
	switch {
	case h.attached.Kind == "":
	case e.Kind == history.AnnotationSet && asks && c.roles.Remediates(e.Actor) && c.roles.Power != "", // or none answers it
		e.Kind == history.FenceRequested && c.roles.Agent(e.Actor),
		e.Kind == history.StorageFenceAsked && c.roles.Remediates(e.Actor):
		if h.begun.Kind == "" {
			h.begun = *e
		}
		if !h.Known() {
			c.Suspend(e, ", and nobody saw whether its volume was mounted")
		}
	case e.Kind == history.AnnotationRemoved && asks, e.Kind == history.FenceEnded, e.Kind == history.StorageUnfenceAsked:
		if h.mayWrite() {
			h.begun = history.Event{} // it came to nothing
		}
	case h.Ended().Seq == e.Seq && h.back && !h.marked && !h.fenced && !h.KeptOut():
		h.begun = history.Event{}
	case e.Kind == history.EvidenceLost && h.begun.Kind != "":
		c.Suspend(e, ", whose volume was to be released")
	}
}

// follow judges what has become of the volume.
func (c *deliveries) follow(h *delivery, e *history.Event) {
	idle := h.begun.Kind != "" && h.attached.Kind != "" && !h.mayWrite()
	switch was := h.idle.Kind != ""; {
	case idle && !was:
		c.Judged++
		h.idle, h.since, h.timed = *e, e.At, true
	case !idle && was:
		if limit := c.takes(h); h.timed && limit > 0 {
			c.Within(h.since-h.idle.At+limit+c.lost(h, e), &h.idle, e)
		}
		h.idle, h.begun, h.back = history.Event{}, history.Event{}, false
	case h.attached.Kind == "":
		h.begun = history.Event{}
	}
}

// expire breaks the claim where time has run out.
func (c *deliveries) expire(e *history.Event) {
	for i := range c.hosts.Hosts {
		name, h := c.hosts.Hosts[i].Name, &c.hosts.Hosts[i].State
		limit := c.takes(h)
		if !h.timed || limit == 0 || h.idle.Kind == "" || e.At-h.since <= limit || e.At-h.since-c.lost(h, e) <= limit {
			continue
		}
		h.timed = false
		if h.begun.Kind != history.FenceRequested || c.witnesses.Most(h.since) && !c.pledges.free(name) {
			c.Breach(&h.idle, e, h.attached.Object+" was still attached to "+name+" at "+invariant.Seconds(e.At)+", where nothing could write to it since "+invariant.Seconds(h.idle.At))
		}
	}
}

// takes is how long the release may take, 0 if nothing bounds that.
func (c *deliveries) takes(h *delivery) time.Duration {
	if h.forsaken() {
		return c.orphaned
	}
	return c.limit
}

// forsaken reports whether the fencer's way comes to no end.
func (h *delivery) forsaken() bool { return h.orphan || h.withdrawn }

// lost is how much of the time was lost by those who release.
func (c *deliveries) lost(h *delivery, e *history.Event) time.Duration {
	return c.Lost(h.since, e.At, h.depends())
}

// depends are the parties that a release depends on: all processes, and the BMC, but not the host.
func (h *delivery) depends() invariant.Parties {
	return invariant.Parties{Any: true, BMC: h.idle.Host, Ends: invariant.ReleaseEnds | invariant.HostEnds | invariant.StorageEnds}
}

func (c *deliveries) Lacks() iter.Seq[invariant.Lack] {
	return func(yield func(invariant.Lack) bool) {
		for i := range c.hosts.Hosts {
			name, h := c.hosts.Hosts[i].Name, &c.hosts.Hosts[i].State
			if h.begun.Kind == history.FenceRequested && c.pledges.free(name) {
				continue // only a person can say that the boot is over
			}
			if h.forsaken() && c.orphaned == 0 {
				continue // it waits for a Node of that name
			}
			if h.idle.Kind != "" && !yield(invariant.Lack{
				Sentence: h.attached.Object + " is still attached to " + name + ", where nothing can write to it",
				Since:    &h.idle, On: h.depends(), Within: c.takes(h),
				Comes: []history.Kind{history.VolumeDetached, history.VolumeAttached, history.VolumeMounted, history.VolumeWritten},
			}) {
				return
			}
		}
	}
}

func (c *deliveries) Pending() string { return c.Owing(c.Lacks()) }

func (c *deliveries) Finish(complete bool) invariant.Result {
	return c.ConcludeAfterHealing(complete, c.Lacks(), "no host that had a volume was fenced")
}
