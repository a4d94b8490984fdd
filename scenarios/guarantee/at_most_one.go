package guarantee

import (
	"cmp"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var atMostOne = invariant.Invariant{
	ID:    "at-most-one",
	Claim: "At any time, at most one copy of the exclusive workload is physically running, but for one that the storage keeps out of its volume.",
	Seed:  "002, 004",
	New: func(p invariant.Params) invariant.Checker {
		return &copies{
			Ruling:   invariant.Ruling{ID: "at-most-one", Skew: p.Timings.Skew},
			hosts:    invariant.NewRoster[cutOff](p.Hosts),
			nodeless: map[string]history.Event{}, freed: map[string]history.Event{},
			pledges: newPledges(p),
			agents:  len(p.Roles.Fencers) > 0 && p.Timings.Watchdog > 0,
			resets:  p.Timings.Silence + p.Timings.Hearing + p.Timings.Watchdog + cmp.Or(p.Timings.Act, p.Timings.Slack),
		}
	},
}

// copies judges every WorkloadStarted. A process ends when it is seen to stop or
// when its boot ends; while its host is not observed it may run on. A user who deletes the Pod of
// one that runs, or its Node, releases it: no controller keeps the next copy from starting then,
// unless an agent should have let its host be reset by now. What makes a workload with a volume
// exclusive is the volume, so a copy that the storage keeps out of it is none.
type copies struct {
	invariant.Ruling
	hosts   invariant.Roster[cutOff]
	running []placed
	// nodeless has the users' deletions of Nodes, by host, until a kubelet has another Node. Freed
	// has the users' deeds for which Pods are gone, by the UIDs of these: a kubelet that hasn't
	// heard of it yet starts such a Pod still.
	nodeless, freed map[string]history.Event
	// agents says that hosts which are cut off are reset, but for those whose agents have no peer
	// to ask, and resets how long that takes at most.
	agents  bool
	pledges pledges
	resets  time.Duration
	// ended are the ends of the recent past, kept only for as long as their order
	// with a start is not known.
	ended []placed
	// over is the process that ended last.
	over placed
	// unseen counts the hosts whose state became unknown in a gap.
	unseen int
}

// cutOff is a host, and since when it has no network.
type cutOff struct {
	invariant.Body
	since history.Event
}

// placed is a process of the exclusive workload on a host.
type placed struct {
	host, boot string
	process
}

func (c *copies) Observe(e *history.Event) *invariant.Violation {
	c.Ripen(e.At)
	c.pledges.observe(e)
	switch layer := e.Kind.Layer(); {
	case e.Host == "":
	case layer == history.World:
		c.judge(e)
	case layer == history.API:
		c.released(e)
	}
	return c.Tell()
}

// released takes in what users do to Nodes and Pods.
func (c *copies) released(e *history.Event) {
	switch e.Kind {
	case history.NodeCreated, history.NodeReady:
		if !invariant.ByUser(e) {
			delete(c.nodeless, e.Host)
		}
	case history.NodeDeleted:
		if invariant.ByUser(e) {
			c.nodeless[e.Host] = *e
		}
	case history.PodDeleted:
		if invariant.ByUser(e) {
			c.freed[e.UID] = *e
		} else if node, ok := c.nodeless[e.Host]; ok {
			c.freed[e.UID] = node
		}
	}
}

func (c *copies) judge(e *history.Event) {
	h := c.hosts.Of(e.Host)
	b := &h.Body
	if whole := e.From == "" && e.To == ""; e.Kind == history.LinkCut && whole && h.since.Kind == "" {
		h.since = *e
	} else if e.Kind == history.LinkRestored && whole {
		h.since = history.Event{}
	}
	was := lapsed(b)
	gone := b.Observe(e)
	if is := lapsed(b); is && !was {
		c.unseen++
	} else if was && !is {
		c.unseen--
	}
	if gone {
		c.end(e, "", "")
		c.Settle(invariant.Cause{Host: e.Host}, e)
	}
	switch e.Kind {
	case history.EvidenceLost:
		c.lose(e)
	case history.WorkloadStopped:
		c.end(e, e.Object, e.UID)
		c.Settle(invariant.Cause{Host: e.Host, Thing: e.Object}, e)
	case history.WorkloadStarted:
		if e.Boot == "" || e.Boot == b.Boot {
			c.start(e, b.Boot)
		}
	}
}

// lapsed reports whether the state of a host is unknown because of a gap.
func lapsed(b *invariant.Body) bool { return b.Gap && !b.Known() }

// end removes the processes of e's host: all, or that of an object and a Pod.
func (c *copies) end(e *history.Event, object, uid string) {
	kept := c.running[:0]
	for _, p := range c.running {
		if p.host != e.Host || object != "" && p.object != object || uid != "" && p.uid != "" && p.uid != uid {
			kept = append(kept, p)
			continue
		}
		p.event = *e
		c.over = p
		if c.Skew > 0 {
			c.ended = append(c.ended, p)
		}
	}
	c.running = kept
}

// lose forgets what runs on a host once it is no longer observed. The observer repeats it when it
// is back.
func (c *copies) lose(e *history.Event) {
	kept, elsewhere := c.running[:0], false
	for _, p := range c.running {
		if p.host != e.Host {
			kept, elsewhere = append(kept, p), true
		}
	}
	c.running = kept
	if elsewhere {
		c.Suspend(e, " while a copy ran elsewhere")
	}
}

func (c *copies) start(e *history.Event, boot string) {
	c.Judged++
	for i := range c.running {
		p := &c.running[i]
		if p.object != e.Object {
			continue
		}
		if p.host == e.Host && p.boot == boot && p.uid == e.UID {
			return // repeated
		}
		while := "it still ran on " + p.host
		if p.host == e.Host {
			while = "another copy still ran there"
		}
		if kept := c.hosts.Of(p.host).Kept(); kept.Kind != "" && p.host != e.Host {
			if c.Near(kept, e) {
				c.Close(kept, e)
			}
			c.Kept(kept, e)
			continue
		}
		if freed := c.freedBefore(p, e); freed.Kind != "" {
			c.Judged--
			c.SetAside(e, "a user had released one while "+while+": "+invariant.Clause(&freed))
			continue
		}
		c.Accuse(invariant.Cause{Host: p.host, Thing: p.object}, &p.event, e, while)
	}
	if len(c.running) == 0 && c.over.object == e.Object && c.over.host != e.Host {
		c.Kept(&c.over.event, e)
	}
	recent := c.ended[:0]
	for _, p := range c.ended {
		if !c.Near(&p.event, e) {
			continue
		}
		recent = append(recent, p)
		if p.object == e.Object && p.host != e.Host {
			c.Close(&p.event, e)
		}
	}
	c.ended = recent
	if c.unseen > 0 {
		c.Suspend(e, " while another host was not observed")
	}
	c.running = append(c.running, placed{host: e.Host, boot: boot, process: process{e.Object, e.UID, *e}})
}

// freedBefore returns the user's deed that let go of one of two copies, if nothing else should have
// ended it by the time the second one starts.
func (c *copies) freedBefore(first *placed, second *history.Event) history.Event {
	for _, of := range []struct{ host, uid string }{{first.host, first.uid}, {second.Host, second.UID}} {
		cut := &c.hosts.Of(of.host).since
		due := c.agents && !c.pledges.alone(of.host) && cut.Kind != "" && second.At-cut.At > c.resets
		if freed := c.freed[of.uid]; of.uid != "" && freed.Kind != "" && !due {
			return freed
		}
	}
	return history.Event{}
}

func (c *copies) Finish(complete bool) invariant.Result {
	for i := range c.hosts.Hosts {
		if h := &c.hosts.Hosts[i]; c.Doubt == "" && !h.State.Seen && !h.State.Gap {
			r := c.Conclude(complete, "")
			if r.Verdict != invariant.Violated {
				r = c.Unknown("no observer reported on " + h.Name)
			}
			return r
		}
	}
	return c.Conclude(complete, "no exclusive workload ran")
}
