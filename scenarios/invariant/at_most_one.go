package invariant

import "github.com/fencelab/fencelab/scenarios/history"

var atMostOne = Invariant{
	ID:    "at-most-one",
	Claim: "At any time, at most one copy of the exclusive workload is physically running.",
	Seed:  "002, 004",
	New: func(p Params) Checker {
		return &copies{
			ruling: ruling{id: "at-most-one", skew: p.Timings.Skew},
			hosts:  newRoster[body](p.Hosts),
		}
	},
}

// copies judges every WorkloadStarted. A process ends when it is seen to stop or
// when its boot ends; while its host is not observed it may run on.
type copies struct {
	ruling
	hosts   roster[body]
	running []placed
	// ended are the ends of the recent past, kept only for as long as their order
	// with a start is not known.
	ended []placed
	// over is the process that ended last.
	over placed
	// unseen counts the hosts whose state became unknown in a gap.
	unseen int
}

// placed is a process of the exclusive workload on a host.
type placed struct {
	host, boot string
	process
}

func (c *copies) Observe(e *history.Event) *Violation {
	c.ripen(e.At)
	if e.Host != "" && e.Kind.Layer() == history.World {
		c.judge(e)
	}
	return c.tell()
}

func (c *copies) judge(e *history.Event) {
	b := c.hosts.of(e.Host)
	was := lapsed(b)
	gone := b.observe(e)
	if is := lapsed(b); is && !was {
		c.unseen++
	} else if was && !is {
		c.unseen--
	}
	if gone {
		c.end(e, "", "")
		c.settle(cause{host: e.Host}, e)
	}
	switch e.Kind {
	case history.EvidenceLost:
		c.lose(e)
	case history.WorkloadStopped:
		c.end(e, e.Object, e.UID)
		c.settle(cause{e.Host, e.Object}, e)
	case history.WorkloadStarted:
		if e.Boot == "" || e.Boot == b.boot {
			c.start(e, b.boot)
		}
	}
}

// lapsed reports whether the state of a host is unknown because of a gap.
func lapsed(b *body) bool { return b.gap && !b.known() }

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
		if c.skew > 0 {
			c.ended = append(c.ended, p)
		}
	}
	c.running = kept
}

// lose forgets what runs on a host that nobody observes any more. The observer
// repeats it when it is back.
func (c *copies) lose(e *history.Event) {
	kept, elsewhere := c.running[:0], false
	for _, p := range c.running {
		if p.host != e.Host {
			kept, elsewhere = append(kept, p), true
		}
	}
	c.running = kept
	if elsewhere {
		c.suspend(e, " while a copy ran elsewhere")
	}
}

func (c *copies) start(e *history.Event, boot string) {
	c.judged++
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
		c.accuse(cause{p.host, p.object}, &p.event, e, while)
	}
	if len(c.running) == 0 && c.over.object == e.Object && c.over.host != e.Host {
		c.kept(&c.over.event, e)
	}
	recent := c.ended[:0]
	for _, p := range c.ended {
		if !c.near(&p.event, e) {
			continue
		}
		recent = append(recent, p)
		if p.object == e.Object && p.host != e.Host {
			c.close(&p.event, e)
		}
	}
	c.ended = recent
	if c.unseen > 0 {
		c.suspend(e, " while another host was not observed")
	}
	c.running = append(c.running, placed{e.Host, boot, process{e.Object, e.UID, *e}})
}

func (c *copies) Finish(complete bool) Result {
	for i := range c.hosts.hosts {
		if h := &c.hosts.hosts[i]; c.doubt == "" && !h.state.seen && !h.state.gap {
			r := c.verdict(complete, "")
			if r.Verdict != Violated {
				r = c.unknown("no observer reported on " + h.name)
			}
			return r
		}
	}
	return c.verdict(complete, "no exclusive workload ran")
}
