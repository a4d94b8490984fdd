package guarantee

import (
	"iter"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var powerRestored = invariant.Invariant{
	ID:       "power-restored",
	Claim:    "No host that should be on stays off.",
	Seed:     "000, 001, 002",
	Liveness: true,
	New: func(p invariant.Params) invariant.Checker {
		return &power{Promise: invariant.NewPromise(p, invariant.Ruling{ID: "power-restored"}), roles: p.Roles, hosts: invariant.NewRoster[powerHost](p.Hosts)}
	},
}

// power judges the hosts as they stand after healing. A host should be on unless
// spec.online is false, it isn't provisioned, or another client than the
// remediation controller still holds it off with its own key. spec.online is the
// user's: what a controller under test makes of it changes nothing of that, unless it
// gives the host of a Machine back that is deleted (seed 003). Where no controller has
// power over the hosts, none can be asked for it.
type power struct {
	invariant.Promise
	roles invariant.Roles
	hosts invariant.Roster[powerHost]
}

type powerHost struct {
	invariant.Body
	invariant.Demand
	// edge is the last power edge.
	edge history.Event
	// leaving says that the host's Machine is being deleted.
	leaving bool
}

// givenBack reports whether the host of a Machine that is deleted is given back.
func (c *power) givenBack(e *history.Event) bool {
	return invariant.Plays(e.Actor, c.roles.Deletion) && c.hosts.Of(e.Host).leaving
}

func (c *power) Observe(e *history.Event) *invariant.Violation {
	c.Promise.Observe(e)
	switch {
	case c.roles.Power == "":
	case e.Host == "", e.Kind == history.OnlineWanted && c.roles.Tested(e.Actor) && !c.givenBack(e):
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
	case e.Kind.Layer() == history.API:
		h := c.hosts.Of(e.Host)
		h.Demand.Observe(e)
		switch e.Kind {
		case history.MachineDeleting:
			h.leaving = true
		case history.MachineCreated, history.MachineDeleted:
			h.leaving = false
		}
	}
	return nil
}

func (c *power) Lacks() iter.Seq[invariant.Lack] {
	return func(yield func(invariant.Lack) bool) {
		for i := range c.hosts.Hosts {
			h := &c.hosts.Hosts[i]
			s := &h.State
			l := invariant.Lack{Host: h.Name, Comes: invariant.BootEvents, On: invariant.Parties{BMC: h.Name, First: c.roles.Power}}
			switch {
			case c.roles.Power == "", !s.Demand.On(), s.Known() && s.Body.On:
				continue
			case !s.Known():
				l.Sentence, l.Blind = "nobody saw whether "+h.Name+" is on", true
			default:
				l.Sentence, l.Since = h.Name+" should be on and has been off since "+invariant.Seconds(s.edge.At), &s.edge
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
