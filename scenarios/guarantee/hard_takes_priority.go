package guarantee

import (
	"cmp"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var hardTakesPriority = invariant.Invariant{
	ID:    "hard-takes-priority",
	Claim: "A hard request powers its host off within seconds, whatever else was requested of it, or soon after what hinders that has ended, and the Node of a remediated host is deleted.",
	Seed:  "000, 002",
	New: func(p invariant.Params) invariant.Checker {
		slack := cmp.Or(p.Timings.Act, p.Timings.Slack)
		off := p.Timings.HardOff + p.Timings.Poll + slack
		return &hurries{
			Ruling:     invariant.Ruling{ID: "hard-takes-priority"},
			roles:      p.Roles,
			hosts:      invariant.NewRoster[hurried](p.Hosts),
			Hindrances: p.Hindrances,
			command:    p.Timings.Command,
			off:        off,
			release:    off + p.Timings.Poll + slack,
		}
	},
}

// hurries judges every hard request (seed 000: rapid convergence to a state where all
// processes are stopped). The time begins with the request, and again with every
// power-on while it stands; a command that was sent shortly before has its own time
// to show first. What was lost to hindrances of the host's BMC, or of those who have to act,
// doesn't count.
type hurries struct {
	invariant.Ruling
	*invariant.Hindrances
	roles   invariant.Roles
	hosts   invariant.Roster[hurried]
	command time.Duration
	// off and release bound the time to off, and to the deletion of the Node.
	off, release time.Duration
}

type hurried struct {
	invariant.Body
	unmanaged bool
	marked    bool
	paused    bool
	node      string          // the UID of the Node
	empty     bool            // as [invariant.Roles.MakesEmpty] says of the Node
	leaving   bool            // the Node was asked to go
	requests  []history.Event // the hard ones that stand
	completed bool            // the last boot that began was completed
	// calledOff is how much longer the Node may stay because an unseen boot must be called off
	// first.
	calledOff time.Duration
	// mayBoot says that a power-on may be under way to a host that is off: its BMC received the
	// command, or the power controller died while this host was off and unrequested, so that the
	// commands sent are no longer known.
	mayBoot bool
	// unseen says that the status has not shown the last boot: whoever was held up until it was
	// over can't know that the command On has had its effect.
	unseen  bool
	running history.Event // since when the host should be on its way to off, or zero
	kept    history.Event // the request since which its Node should be on its way out, or zero
	sent    history.Event // the last command to go off that the BMC received
	// earlier is how much longer than usual a command may take, because of one that was sent before
	// running.
	earlier time.Duration
}

func (c *hurries) Observe(e *history.Event) *invariant.Violation {
	if c.roles.Power == "" {
		return nil
	}
	for i := range c.hosts.Hosts {
		c.expire(&c.hosts.Hosts[i], e)
	}
	if e.Kind == history.ControllerCrashed && invariant.Plays(e.Actor, c.roles.Power) {
		for i := range c.hosts.Hosts {
			h := &c.hosts.Hosts[i].State
			h.mayBoot = h.mayBoot || h.IsOff() && len(h.requests) == 0
		}
	}
	if e.Host != "" {
		c.judge(c.hosts.Of(e.Host), e)
	}
	return c.Tell()
}

func (c *hurries) judge(h *hurried, e *history.Event) {
	switch e.Kind.Layer() {
	case history.World, history.API:
	case history.BMC:
		switch {
		case e.Kind != history.BMCCommand:
		case !invariant.PowersOff(e):
			h.mayBoot = h.mayBoot || invariant.PowersOn(e) && h.IsOff()
		case !invariant.AsksGuest(e):
			h.sent = *e
		}
		return
	default:
		return
	}
	h.Body.Observe(e)
	switch e.Kind {
	case history.ProvisioningState:
		h.unmanaged = !invariant.Managed(e.Value)
	case history.PowerReported:
		h.unseen = h.unseen && e.Value != "true"
	case history.NodeCreated:
		h.node, h.leaving, h.empty = e.UID, false, c.roles.MakesEmpty(e)
	case history.NodeReady:
		h.empty = h.empty && e.UID != h.node
	case history.NodeTakenOver: // what becomes of it is about the host whose kubelet has written last
		was := c.hosts.Of(e.Value)
		was.node, was.kept = "", history.Event{}
		h.node, h.leaving, h.empty = e.UID, was.leaving, false
	case history.NodeDeleted:
		if e.UID == h.node {
			h.node = ""
			if !h.Known() { // in time or not, it proves nothing of an unobserved host
				h.kept = history.Event{}
			}
			c.done(&h.kept, c.release+h.calledOff, e)
		}
	case history.NodeDeleting, history.NodeOutOfService:
		if e.UID == h.node { // what keeps it from then on is another's
			h.leaving = h.leaving || e.Kind == history.NodeDeleting
			if !h.Known() || !c.roles.Tested(e.Actor) {
				h.kept = history.Event{}
			}
			c.done(&h.kept, c.release+h.calledOff, e)
		}
	case history.AnnotationSet, history.AnnotationRemoved:
		c.annotated(h, e)
	case history.PowerOff:
		c.done(&h.running, c.off+h.earlier, e)
		if h.kept.Kind != "" && !h.completed && c.roles.Blameless(e) { // it went off by itself, in an unseen boot
			h.calledOff = c.command
		}
	case history.BootComplete:
		h.completed = true
	case history.PowerOn:
		h.completed, h.mayBoot, h.unseen = false, false, e.At > 0 // what runs at first is known
		if len(h.requests) > 0 {
			c.run(h, e)
		}
		if h.kept.Kind != "" {
			h.kept, h.calledOff = *e, c.pending(h, e)
		}
	case history.EvidenceLost:
		h.running = history.Event{}
	}
	if len(h.requests) == 0 || h.unmanaged || h.paused {
		h.running = history.Event{}
	}
	if !h.marked || h.unmanaged || h.paused || c.roles.Remediation == "" {
		h.kept = history.Event{}
	}
}

func (c *hurries) annotated(h *hurried, e *history.Event) {
	set := e.Kind == history.AnnotationSet
	switch e.Key {
	case invariant.ExternalAnnotation:
		h.marked = set
	case invariant.PausedAnnotation:
		h.paused = set
	case invariant.RemediationAnnotation:
		if set && h.marked && h.node != "" && !h.empty && !h.leaving && h.kept.Kind == "" {
			switch h.kept, h.calledOff = *e, 0; {
			case h.On:
				h.calledOff = c.pending(h, e)
			case h.IsOff() && (!h.completed || h.mayBoot || h.unseen):
				h.calledOff = c.command
			}
		} else if !set {
			h.kept = history.Event{}
		}
	}
	if _, ok := invariant.RebootRequest(e); !ok {
		return
	}
	var others []history.Event
	stood := false
	for _, r := range h.requests {
		if r.Key == e.Key {
			stood = true
			continue
		}
		others = append(others, r)
	}
	h.requests = others
	if !set || !invariant.Hard(e.Value) {
		return
	}
	h.requests = append(h.requests, *e)
	if h.Known() && h.On && h.running.Kind == "" && !stood {
		c.run(h, e)
	}
}

// run notes that the host should be on its way to off from e on.
func (c *hurries) run(h *hurried, e *history.Event) {
	h.running, h.earlier = *e, c.pending(h, e)
}

// pending is how much longer than usual may be waited from e on, because a command to go off that
// was sent before is given its own time.
func (c *hurries) pending(h *hurried, e *history.Event) time.Duration {
	if h.sent.Kind == "" {
		return 0
	}
	return max(0, h.sent.At+c.command-e.At)
}

// done judges e, which should have happened within a time after an event.
func (c *hurries) done(since *history.Event, limit time.Duration, e *history.Event) {
	if since.Kind == "" {
		return
	}
	c.InTime(limit, c.Hindrances, c.on(e.Host), since, e)
	*since = history.Event{}
}

// on returns the parties that the fencing of a host depends on.
func (c *hurries) on(host string) invariant.Parties {
	return invariant.Parties{BMC: host, First: c.roles.Power, Second: c.roles.Remediation}
}

// expire judges what should have happened before e.
func (c *hurries) expire(h *invariant.Entry[hurried], e *history.Event) {
	late := func(since *history.Event, limit time.Duration, what func() string) {
		if since.Kind == "" || e.At-since.At <= limit {
			return
		}
		lost := c.Lost(since.At, e.At, c.on(h.Name))
		if e.At-since.At-lost <= limit {
			return
		}
		first := *since
		*since = history.Event{}
		c.Judged++
		c.Breach(&first, e, invariant.Clause(&first)+", and "+invariant.Seconds(e.At-first.At)+" later "+what()+invariant.Beside(lost))
	}
	late(&h.State.running, c.off+h.State.earlier, func() string { return h.Name + " is still on, though a hard request stands" })
	late(&h.State.kept, c.release+h.State.calledOff, func() string { return "the Node of " + h.Name + " still exists" })
}

func (c *hurries) Finish(complete bool) invariant.Result {
	return c.Conclude(complete, "no hard request was made of a host that was on while nothing hindered the controllers")
}
