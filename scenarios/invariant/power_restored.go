package invariant

import (
	"iter"

	"github.com/fencelab/fencelab/scenarios/history"
)

var powerRestored = Invariant{
	ID:       "power-restored",
	Claim:    "No host that should be on stays off.",
	Seed:     "000, 001, 002",
	Liveness: true,
	New: func(p Params) Checker {
		return &power{promise: newPromise(p, ruling{id: "power-restored"}), roles: p.Roles, hosts: newRoster[powerHost](p.Hosts)}
	},
}

// power judges the hosts as they stand after healing. A host should be on unless
// spec.online is false, it isn't provisioned, or another client than the
// remediation controller still holds it off with its own key. spec.online is the
// user's: what a controller under test makes of it changes nothing of that, unless it
// gives the host of a Machine back that is deleted (seed 003). Where no controller has
// power over the hosts, none can be asked for it.
type power struct {
	promise
	roles Roles
	hosts roster[powerHost]
}

type powerHost struct {
	body
	demand
	// edge is the last power edge.
	edge history.Event
	// leaving says that the host's Machine is being deleted.
	leaving bool
}

// givenBack reports whether the host of a Machine that is deleted is given back.
func (c *power) givenBack(e *history.Event) bool {
	return plays(e.Actor, c.roles.Deletion) && c.hosts.of(e.Host).leaving
}

func (c *power) Observe(e *history.Event) *Violation {
	c.promise.observe(e)
	switch {
	case c.roles.Power == "":
	case e.Host == "", e.Kind == history.OnlineWanted && c.roles.tested(e.Actor) && !c.givenBack(e):
	case e.Kind.Layer() == history.World:
		h := c.hosts.of(e.Host)
		h.body.observe(e)
		switch e.Kind {
		case history.PowerOff:
			c.judged++
			h.edge = *e
		case history.PowerOn:
			h.edge = *e
		}
	case e.Kind.Layer() == history.API:
		h := c.hosts.of(e.Host)
		h.demand.observe(e)
		switch e.Kind {
		case history.MachineDeleting:
			h.leaving = true
		case history.MachineCreated, history.MachineDeleted:
			h.leaving = false
		}
	}
	return nil
}

func (c *power) lacks() iter.Seq[lack] {
	return func(yield func(lack) bool) {
		for i := range c.hosts.hosts {
			h := &c.hosts.hosts[i]
			s := &h.state
			l := lack{host: h.name, comes: bootEvents, on: parties{bmc: h.name, first: c.roles.Power}}
			switch {
			case c.roles.Power == "", !s.demand.on(), s.known() && s.body.on:
				continue
			case !s.known():
				l.sentence, l.blind = "nobody saw whether "+h.name+" is on", true
			default:
				l.sentence, l.since = h.name+" should be on and has been off since "+seconds(s.edge.At), &s.edge
			}
			if !yield(l) {
				return
			}
		}
	}
}

// bootEvents come when a host comes up.
var bootEvents = []history.Kind{history.PowerOn, history.BootStarted, history.BootComplete}

func (c *power) Pending() string { return c.pending(c.lacks()) }

func (c *power) Finish(complete bool) Result {
	untested := "no host went off"
	if c.roles.Power == "" {
		untested = "no controller switches hosts on"
	}
	return c.verdictAfterHealing(complete, c.lacks(), untested)
}
