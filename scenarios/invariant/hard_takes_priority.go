package invariant

import (
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

var hardTakesPriority = Invariant{
	ID:    "hard-takes-priority",
	Claim: "A hard request powers its host off within seconds, whatever else was requested of it, or soon after what hinders that has ended, and the Node of a remediated host is deleted.",
	Seed:  "000, 002",
	New: func(p Params) Checker {
		off := p.Timings.HardOff + p.Timings.Poll + p.Timings.Slack
		return &hurries{
			ruling:     ruling{id: "hard-takes-priority"},
			roles:      p.Roles,
			hosts:      newRoster[hurried](p.Hosts),
			hindrances: newHindrances(p),
			command:    p.Timings.Command,
			fault:      p.Timings.Fault,
			off:        off,
			release:    off + p.Timings.Poll + p.Timings.Slack,
		}
	},
}

// hurries judges every hard request (seed 000: rapid convergence to a state where all
// processes are stopped). The time begins with the request, and again with every
// power-on while it stands; a command that was sent shortly before has its own time
// to show first. It is nobody's fault when something hindered that: then the time begins
// when nothing does any more.
type hurries struct {
	ruling
	hindrances
	roles   Roles
	hosts   roster[hurried]
	command time.Duration
	// fault is how long that of a fault lasts that is withdrawn.
	fault time.Duration
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
	// running is the event since which the host should be on its way to off, and
	// kept the request since which its Node should be on its way out; or zero.
	running, kept history.Event
	// sent is the last command to go off that the BMC received, and earlier how much
	// longer than usual may be waited because of one that came before running.
	sent    history.Event
	earlier time.Duration
}

func (c *hurries) Observe(e history.Event) *Violation {
	if c.roles.Power == "" {
		return nil
	}
	for i := range c.hosts.hosts {
		c.expire(&c.hosts.hosts[i], &e)
	}
	c.hindrances.observe(&e)
	if e.Host != "" {
		c.judge(c.hosts.of(e.Host), &e)
	}
	return c.tell()
}

func (c *hurries) judge(h *hurried, e *history.Event) {
	switch e.Kind.Layer() {
	case history.World, history.API:
	case history.BMC:
		if e.Kind == history.BMCCommand && powersOff(e) && !asksGuest(e) {
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
			c.done(&h.kept, c.release, e)
		}
	case history.AnnotationSet, history.AnnotationRemoved:
		c.annotated(h, e)
	case history.PowerOff:
		if h.running.Kind != "" && e.At-h.running.At > c.off+h.earlier {
			if _, now := c.freed(e.Host); now {
				c.judged++ // in time after what hindered it
			}
			h.running = history.Event{}
		}
		c.done(&h.running, c.off+h.earlier, e)
	case history.PowerOn:
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
			h.kept = *e
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
	if since.Kind != "" {
		c.judged++
		c.within(limit, since, e)
		*since = history.Event{}
	}
}

// expire judges what should have happened before e.
func (c *hurries) expire(h *entry[hurried], e *history.Event) {
	late := func(since *history.Event, limit time.Duration, what string) {
		if since.Kind == "" || e.At-since.At <= limit {
			return
		}
		first := *since
		*since = history.Event{}
		if !c.since(h.name, first.At) {
			c.judged++
			c.breach(&first, e, clause(&first)+", and "+seconds(e.At-first.At)+" later "+what)
		}
	}
	if c.catchUp(h, e); !c.since(h.name, h.state.running.At) {
		late(&h.state.running, c.off+h.state.earlier, h.name+" is still on, though a hard request stands")
	}
	late(&h.state.kept, c.release, "the Node of "+h.name+" still exists")
}

// catchUp judges a request that something hindered: once nothing does any more, what it did has passed, and what failed has
// had the time to be tried again, the host is as soon off as after a request.
func (c *hurries) catchUp(h *entry[hurried], e *history.Event) {
	since := &h.state.running
	if since.Kind == "" || !c.since(h.name, since.At) {
		return
	}
	free, now := c.freed(h.name)
	if !now || e.At-free-c.fault <= c.off+h.state.earlier {
		return
	}
	first := *since
	*since = history.Event{}
	c.judged++
	c.breach(&first, e, clause(&first)+"; nothing has hindered that for "+seconds(e.At-free+c.recovery)+", and "+h.name+" is still on")
}

func (c *hurries) Finish(complete bool) Result {
	return c.verdict(complete, "no hard request was made of a host that was on while nothing hindered the controllers")
}
