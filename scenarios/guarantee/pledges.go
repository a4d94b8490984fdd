package guarantee

import (
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// pledges know of each host whether its agent had promised, when it was last heard of, that the
// boot would end. It hadn't if there was no other host without a mark that it could ask, if it had
// hardly begun, or if it was asked to end itself: such a boot lives on, or only a person can say
// that it is over.
type pledges struct {
	*invariant.Hindrances
	roles invariant.Roles
	hosts invariant.Roster[pledge]
	// slack is the time from an agent's start to its announcement, if nothing holds it up.
	slack time.Duration
}

type pledge struct {
	invariant.Body
	marked bool // its Machine has the external-remediation annotation
	silent bool // nothing is heard of the host: it is off, stands still or is cut off
	// alone is as of when it fell silent: its agent knew of no peer to ask.
	alone bool
	// free says that it fell silent without a promise, and hasn't been heard of since.
	free bool
	// seen: this history shows when the host's agents start. Without that, none counts as young.
	seen          bool
	cut, nodeless bool
	wrote         bool          // the agent of this boot has written
	writes        bool          // an agent of this host has written, in whatever boot
	stopped       bool          // the agent was asked to end, and has not started again
	agent         history.Event // the first start of an agent in this boot, or behind a stop
	up            history.Event // since when it has a Node to announce itself on, and a way there
}

func newPledges(p invariant.Params) pledges {
	return pledges{Hindrances: p.Hindrances, roles: p.Roles, hosts: invariant.NewRoster[pledge](p.Hosts), slack: p.Timings.Slack}
}

func (c *pledges) observe(e *history.Event) {
	if len(c.roles.Fencers) == 0 {
		return // nothing is asked of them where there are no agents
	}
	if e.Kind == history.ControllerEffect {
		for i := range c.hosts.Hosts {
			h := &c.hosts.Hosts[i].State
			if h.agent.Kind != "" && h.agent.Actor == e.Actor {
				h.wrote, h.writes = true, true
			}
		}
	}
	if e.Host == "" {
		return
	}
	h := c.hosts.Of(e.Host)
	switch e.Kind {
	case history.LinkCut, history.LinkRestored:
		if e.From == "" && e.To == "" {
			c.silence(h, e, e.Kind == history.LinkCut)
			h.cut = e.Kind == history.LinkCut
		}
	case history.PowerOff, history.BootEnded, history.HostPaused:
		c.silence(h, e, true)
	case history.HostResumed:
		c.silence(h, e, h.cut)
	case history.BootStarted:
		h.alone, h.silent, h.stopped, h.free = false, false, false, h.free && h.cut
		h.anew()
	case history.ControllerStopping:
		if c.roles.Agent(e.Actor) {
			h.stopped = true
			h.anew()
		}
	case history.ControllerStarted:
		if h.agent.Kind == "" && c.roles.Agent(e.Actor) {
			h.seen, h.agent, h.stopped = true, *e, false
		}
	case history.NodeCreated, history.NodeDeleted:
		h.nodeless, h.wrote, h.up = e.Kind == history.NodeDeleted, false, history.Event{}
	case history.AnnotationSet, history.AnnotationRemoved:
		if e.Key == invariant.ExternalAnnotation {
			h.marked = e.Kind == history.AnnotationSet
		}
	}
	if h.agent.Kind != "" && h.up.Kind == "" && !h.cut && !h.nodeless {
		h.up = *e
	}
	if e.Kind.Layer() == history.World {
		h.Body.Observe(e)
	}
}

// anew notes that no agent of this boot has promised anything yet.
func (h *pledge) anew() { h.wrote, h.agent, h.up = false, history.Event{}, history.Event{} }

// silence notes that a host is heard of no more, or again, which one without a boot can't be.
func (c *pledges) silence(h *pledge, e *history.Event, silent bool) {
	switch {
	case !silent && h.On:
		h.alone, h.silent, h.free = false, false, false
	case silent && !h.silent:
		young := c.young(h, e)
		h.alone, h.silent = !c.asks(e.Host) || young && (h.writes || h.up.Kind == ""), true
		h.free = h.free || h.alone || young
	}
}

// asks reports whether there is a host that an agent can ask: another one that is on, and whose
// Machine isn't marked itself.
func (c *pledges) asks(agent string) bool {
	for i := range c.hosts.Hosts {
		if h := &c.hosts.Hosts[i]; h.Name != agent && h.State.On && !h.State.marked {
			return true
		}
	}
	return false
}

// young reports whether the host's agent has not had the time for its announcement.
func (c *pledges) young(h *pledge, e *history.Event) bool {
	return h.seen && !h.wrote && (h.up.Kind == "" || e.At-h.up.At-c.Lost(h.up.At, e.At, invariant.Parties{First: h.agent.Actor}) <= c.slack)
}

// alone reports whether the host's agent knew of no peer to ask, so that it lets the host live on.
func (c *pledges) alone(host string) bool { return c.hosts.Of(host).alone }

// free reports whether nothing was promised of the host.
func (c *pledges) free(host string) bool {
	h := c.hosts.Of(host)
	return h.free || h.stopped
}
