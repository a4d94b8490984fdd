package invariant

import (
	"cmp"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

var hardTakesPriority = Invariant{
	ID:    "hard-takes-priority",
	Claim: "A hard request powers its host off within seconds, whatever else was requested of it, or soon after what hinders that has ended, and the Node of a remediated host is deleted.",
	Seed:  "000, 002",
	New: func(p Params) Checker {
		slack := cmp.Or(p.Timings.Act, p.Timings.Slack)
		off := p.Timings.HardOff + p.Timings.Poll + slack
		return &hurries{
			ruling:     ruling{id: "hard-takes-priority"},
			roles:      p.Roles,
			hosts:      newRoster[hurried](p.Hosts),
			hindrances: p.hindrances,
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
	ruling
	*hindrances
	roles   Roles
	hosts   roster[hurried]
	command time.Duration
	// off and release bound the time to off, and to the deletion of the Node.
	off, release time.Duration
}

type hurried struct {
	body
	unmanaged bool
	marked    bool
	paused    bool
	node      string
	requests  []history.Event // hard ones that are there
	// completed says that the last boot that began was complete, and calledOff how much longer
	// the Node may stay, because a boot that nobody has seen must be called off first.
	completed bool
	calledOff time.Duration
	// mayBoot says that a power-on may be under way to a host that is off: its BMC received
	// the command, or who powers hosts died while this one was off and nobody had asked for
	// that, so that nobody knows any more what was sent.
	mayBoot bool
	// running is the event since which the host should be on its way to off, and
	// kept the request since which its Node should be on its way out; or zero.
	running, kept history.Event
	// sent is the last command to go off that the BMC received, and earlier how much
	// longer than usual may be waited because of one that came before running.
	sent    history.Event
	earlier time.Duration
}

func (c *hurries) Observe(e *history.Event) *Violation {
	if c.roles.Power == "" {
		return nil
	}
	for i := range c.hosts.hosts {
		c.expire(&c.hosts.hosts[i], e)
	}
	if e.Kind == history.ControllerCrashed && plays(e.Actor, c.roles.Power) {
		for i := range c.hosts.hosts {
			h := &c.hosts.hosts[i].state
			h.mayBoot = h.mayBoot || h.isOff() && len(h.requests) == 0
		}
	}
	if e.Host != "" {
		c.judge(c.hosts.of(e.Host), e)
	}
	return c.tell()
}

func (c *hurries) judge(h *hurried, e *history.Event) {
	switch e.Kind.Layer() {
	case history.World, history.API:
	case history.BMC:
		switch {
		case e.Kind != history.BMCCommand:
		case !powersOff(e):
			h.mayBoot = h.mayBoot || powersOn(e) && h.isOff()
		case !asksGuest(e):
			h.sent = *e
		}
		return
	default:
		return
	}
	h.body.observe(e)
	switch e.Kind {
	case history.ProvisioningState:
		h.unmanaged = !managed(e.Value)
	case history.NodeCreated:
		h.node = e.UID
	case history.NodeDeleted:
		if e.UID == h.node {
			h.node = ""
			if !h.known() { // in time or not, it says nothing of a host that nobody saw
				h.kept = history.Event{}
			}
			c.done(&h.kept, c.release+h.calledOff, e)
		}
	case history.AnnotationSet, history.AnnotationRemoved:
		c.annotated(h, e)
	case history.PowerOff:
		c.done(&h.running, c.off+h.earlier, e)
		if h.kept.Kind != "" && !h.completed && c.roles.blameless(e) { // it went off by itself, in a boot that nobody has seen
			h.calledOff = c.command
		}
	case history.BootComplete:
		h.completed = true
	case history.PowerOn:
		h.completed, h.mayBoot = false, false
		if len(h.requests) > 0 {
			c.run(h, e)
		}
		if h.kept.Kind != "" {
			h.kept = *e
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
	case externalAnnotation:
		h.marked = set
	case pausedAnnotation:
		h.paused = set
	case remediationAnnotation:
		if set && h.marked && h.node != "" && h.kept.Kind == "" {
			h.kept, h.calledOff = *e, 0
			if h.isOff() && (!h.completed || h.mayBoot) {
				h.calledOff = c.command
			}
		} else if !set {
			h.kept = history.Event{}
		}
	}
	if _, ok := rebootRequest(e); !ok {
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
	if !set || !hard(e.Value) {
		return
	}
	h.requests = append(h.requests, *e)
	if h.known() && h.on && h.running.Kind == "" && !stood {
		c.run(h, e)
	}
}

// run notes that the host should be on its way to off from e on.
func (c *hurries) run(h *hurried, e *history.Event) {
	h.running, h.earlier = *e, 0
	if h.sent.Kind != "" {
		h.earlier = max(0, h.sent.At+c.command-e.At)
	}
}

// done says that e is what should have happened within a time after an event.
func (c *hurries) done(since *history.Event, limit time.Duration, e *history.Event) {
	if since.Kind == "" {
		return
	}
	c.inTime(limit, c.hindrances, c.on(e.Host), since, e)
	*since = history.Event{}
}

// on are those on whom the fencing of a host depends.
func (c *hurries) on(host string) parties {
	return parties{bmc: host, first: c.roles.Power, second: c.roles.Remediation}
}

// expire judges what should have happened before e.
func (c *hurries) expire(h *entry[hurried], e *history.Event) {
	late := func(since *history.Event, limit time.Duration, what func() string) {
		if since.Kind == "" || e.At-since.At <= limit {
			return
		}
		lost := c.lost(since.At, e.At, c.on(h.name))
		if e.At-since.At-lost <= limit {
			return
		}
		first := *since
		*since = history.Event{}
		c.judged++
		c.breach(&first, e, clause(&first)+", and "+seconds(e.At-first.At)+" later "+what()+beside(lost))
	}
	late(&h.state.running, c.off+h.state.earlier, func() string { return h.name + " is still on, though a hard request stands" })
	late(&h.state.kept, c.release+h.state.calledOff, func() string { return "the Node of " + h.name + " still exists" })
}

func (c *hurries) Finish(complete bool) Result {
	return c.verdict(complete, "no hard request was made of a host that was on while nothing hindered the controllers")
}
