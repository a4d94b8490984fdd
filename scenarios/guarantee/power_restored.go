package guarantee

import (
	"iter"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var powerRestored = invariant.Invariant{
	ID:       "power-restored",
	Claim:    "No host that should be on stays off, and one that is let go comes on in its time.",
	Seed:     "000, 001, 002",
	Liveness: true,
	New: func(p invariant.Params) invariant.Checker {
		t := &p.Timings
		c := &power{
			Promise: invariant.NewPromise(p, invariant.Ruling{ID: "power-restored"}), roles: p.Roles, hosts: invariant.NewRoster[powerHost](p.Hosts),
		}
		if t.Steady > 0 {
			c.patience = t.Steady + t.Command + 2*t.Poll + 2*t.Slack
		}
		return c
	},
}

// power judges the hosts as they stand after healing. A host should be on unless
// spec.online is false, it isn't provisioned, or another client than the
// remediation controller still holds it off with its own key. Where no controller has
// power over the hosts, none can be asked for it.
//
// It judges, too, each host that is off and that nothing holds off any more, by whether it
// comes on in the time in which the power controller looks at every host and gives a command.
type power struct {
	invariant.Promise
	roles invariant.Roles
	hosts invariant.Roster[powerHost]
	// patience is how long a host may stay off when nothing holds it off; 0 if the world
	// doesn't know.
	patience time.Duration
}

type powerHost struct {
	invariant.Body
	invariant.Demand
	// edge is the last power edge.
	edge history.Event
	// held says that the remediation controller holds it, paused that its BareMetalHost is paused,
	// and free is the event since which it is off and nothing keeps it so, or zero.
	held, paused bool
	free         history.Event
	// released says that its Node is gone or out of service, so that whoever held it waits for
	// others to release what was bound there.
	released bool
}

func (c *power) Observe(e *history.Event) *invariant.Violation {
	c.Promise.Observe(e)
	for i := range c.hosts.Hosts {
		c.expire(&c.hosts.Hosts[i], e)
	}
	c.learn(e)
	return c.Tell()
}

// learn takes in what has become of a host.
func (c *power) learn(e *history.Event) {
	switch {
	case c.roles.Power == "":
	case e.Host == "":
	case e.Kind.Layer() == history.World:
		h := c.hosts.Of(e.Host)
		h.Body.Observe(e)
		switch e.Kind {
		case history.PowerOff:
			c.Judged++
			h.edge = *e
		case history.PowerOn:
			h.edge = *e
		}
		c.let(h, e)
	case e.Kind.Layer() == history.API:
		h := c.hosts.Of(e.Host)
		h.Demand.Observe(e, &c.roles)
		switch e.Kind {
		case history.NodeDeleted, history.NodeOutOfService:
			h.released = true
		case history.NodeCreated: // an empty one, with which its fencer has the volumes detached
			h.released = c.roles.Remediates(e.Actor)
		case history.NodeInService:
			h.released = false
		}
		if set := e.Kind == history.AnnotationSet; set || e.Kind == history.AnnotationRemoved {
			switch {
			case e.Key == invariant.RemediationAnnotation:
				h.held = set
			case e.Key == invariant.PausedAnnotation && strings.HasPrefix(e.Object, "BareMetalHost/"):
				h.paused = set
			}
		}
		c.let(h, e)
	}
}

// let notes whether, as from e, the host is off and nothing keeps it so. What a tenant wants of a
// host is not in its BareMetalHost.
func (c *power) let(h *powerHost, e *history.Event) {
	switch {
	case invariant.Plays(h.edge.Actor, c.roles.Tenancy), !h.Demand.On() || h.held || h.paused || !h.IsOff():
		h.free = history.Event{}
	case h.free.Kind == "" || e.Kind == history.PowerOff:
		h.free = *e
	}
}

// expire judges a host that has been let go for too long when e comes.
func (c *power) expire(h *invariant.Entry[powerHost], e *history.Event) {
	free := &h.State.free
	if free.Kind == "" || c.patience == 0 || e.At-free.At <= c.patience || c.Found != nil {
		return
	}
	lost := c.Lost(free.At, e.At, invariant.Parties{BMC: h.Name, First: c.roles.Power, Ends: invariant.ReturnEnds})
	if e.At-free.At-lost <= c.patience {
		return
	}
	c.Judged++
	c.Breach(free, e, invariant.Clause(free)+", and nothing has kept "+h.Name+" off since; at "+invariant.Seconds(e.At)+" it was still off"+invariant.Beside(lost))
}

func (c *power) Lacks() iter.Seq[invariant.Lack] {
	return func(yield func(invariant.Lack) bool) {
		for i := range c.hosts.Hosts {
			h := &c.hosts.Hosts[i]
			s := &h.State
			l := invariant.Lack{Host: h.Name, Comes: invariant.BootEvents, On: invariant.Parties{BMC: h.Name, First: c.roles.Power, Ends: invariant.ReturnEnds}}
			switch {
			case c.roles.Power == "", !s.Demand.On(), s.Known() && s.Body.On:
				continue
			case !s.Known():
				l.Sentence, l.Blind = "nobody saw whether "+h.Name+" is on", true
			default:
				l.Sentence, l.Since = h.Name+" should be on and has been off since "+invariant.Seconds(s.edge.At), &s.edge
				if s.held {
					l.On.Second, l.On.Any = c.roles.Remediation, s.released
				}
			}
			if !yield(l) {
				return
			}
		}
	}
}

func (c *power) Pending() string { return c.Owing(c.Lacks()) }

func (c *power) Finish(complete bool) invariant.Result {
	untested := "no host went off"
	if c.roles.Power == "" {
		untested = "no controller switches hosts on"
	}
	return c.ConcludeAfterHealing(complete, c.Lacks(), untested)
}
