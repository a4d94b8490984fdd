package invariant

import "github.com/fencelab/fencelab/scenarios/history"

var powerRestored = Invariant{
	ID:       "power-restored",
	Claim:    "No host that should be on stays off.",
	Seed:     "000, 001, 002",
	Liveness: true,
	New: func(p Params) Checker {
		return &power{ruling: ruling{id: "power-restored"}, roles: p.Roles, hosts: newRoster[powerHost](p.Hosts)}
	},
}

// power judges the hosts as they stand after healing. A host should be on unless
// spec.online is false, it isn't provisioned, or another client than the
// remediation controller still holds it off with its own key. spec.online is the
// user's: what a controller under test makes of it changes nothing of that, unless it
// gives the host of a Machine back that is deleted (seed 003). Where no controller has
// power over the hosts, none can be asked for it.
type power struct {
	ruling
	roles  Roles
	hosts  roster[powerHost]
	healed history.Event
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

func (c *power) Observe(e history.Event) *Violation {
	switch {
	case c.roles.Power == "":
	case e.Kind == history.Healed:
		c.healed = e
	case e.Host == "", e.Kind == history.OnlineWanted && c.roles.tested(e.Actor) && !c.givenBack(&e):
	case e.Kind.Layer() == history.World:
		h := c.hosts.of(e.Host)
		h.body.observe(&e)
		switch e.Kind {
		case history.PowerOff:
			c.judged++
			h.edge = e
		case history.PowerOn:
			h.edge = e
		}
	case e.Kind.Layer() == history.API:
		h := c.hosts.of(e.Host)
		h.demand.observe(&e)
		switch e.Kind {
		case history.MachineDeleting:
			h.leaving = true
		case history.MachineCreated, history.MachineDeleted:
			h.leaving = false
		}
	}
	return nil
}

func (c *power) lacking() lack {
	var unknown lack
	for i := range c.hosts.hosts {
		h := &c.hosts.hosts[i]
		s := &h.state
		switch {
		case !s.demand.on():
		case !s.known():
			if unknown.sentence == "" {
				unknown = lack{sentence: "nobody saw whether " + h.name + " is on", blind: true}
			}
		case !s.body.on:
			return lack{sentence: h.name + " should be on and has been off since " + seconds(s.edge.At), since: &s.edge}
		}
	}
	return unknown
}

func (c *power) Pending() string {
	if c.roles.Power == "" {
		return ""
	}
	return c.lacking().sentence
}

func (c *power) Finish(complete bool) Result {
	if c.roles.Power == "" {
		return c.verdictAfterHealing(complete, &c.healed, lack{}, "no controller switches hosts on")
	}
	return c.verdictAfterHealing(complete, &c.healed, c.lacking(), "no host went off")
}
