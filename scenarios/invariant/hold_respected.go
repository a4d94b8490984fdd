package invariant

import "github.com/fencelab/fencelab/scenarios/history"

var holdRespected = Invariant{
	ID:    "hold-respected",
	Claim: "While a keyed annotation that was there when the host went off remains, the host stays off.",
	Seed:  "000, 001",
	New: func(p Params) Checker {
		return &holds{
			ruling: ruling{id: "hold-respected", skew: p.Timings.Skew},
			hosts:  newRoster[holdHost](p.Hosts),
		}
	},
}

// holds judges every PowerOn. An annotation that comes when the host is off
// already is no hold: nothing can keep a power-on in flight from arriving.
type holds struct {
	ruling
	hosts roster[holdHost]
}

type holdHost struct {
	off     history.Event // the power-off that is in force, or zero
	blind   bool
	keyed   []hold
	removed history.Event // of the last one that was in force
}

type hold struct {
	set history.Event
	// inForce says that it was there when the host went off, perhaps that
	// nobody knows which was first.
	inForce, perhaps bool
}

func (c *holds) Observe(e history.Event) *Violation {
	c.ripen(e.At)
	if e.Host != "" {
		c.judge(&e)
	}
	return c.tell()
}

func (c *holds) judge(e *history.Event) {
	switch e.Kind {
	case history.AnnotationSet:
		if keyed, ok := rebootRequest(e); keyed && ok {
			c.set(c.hosts.of(e.Host), e)
		}
	case history.AnnotationRemoved:
		if keyed, ok := rebootRequest(e); keyed && ok {
			c.settle(cause{e.Host, e.Key}, e)
			c.remove(c.hosts.of(e.Host), e)
		}
	case history.PowerOff:
		h := c.hosts.of(e.Host)
		if h.off.Kind != "" {
			return // repeated
		}
		h.off = *e
		for i := range h.keyed {
			k := &h.keyed[i]
			k.perhaps = c.near(&k.set, e)
			k.inForce = !k.perhaps
		}
		if len(h.keyed) > 0 {
			c.judged++
		}
	case history.PowerOn:
		c.on(c.hosts.of(e.Host), e)
	case history.EvidenceLost:
		h := c.hosts.of(e.Host)
		h.blind = true
		if len(h.keyed) > 0 {
			c.suspend(e, " while "+h.keyed[0].set.Key+" was set on it")
		}
	case history.EvidenceRegained:
		c.hosts.of(e.Host).blind = false
	}
}

func (c *holds) set(h *holdHost, e *history.Event) {
	for i := range h.keyed {
		if h.keyed[i].set.Key == e.Key {
			return // only its value changed
		}
	}
	if h.blind {
		c.suspend(e, " while nobody observed "+e.Host)
	}
	h.keyed = append(h.keyed, hold{set: *e, perhaps: c.near(&h.off, e)})
}

func (c *holds) remove(h *holdHost, e *history.Event) {
	for i := range h.keyed {
		if h.keyed[i].set.Key == e.Key {
			if h.keyed[i].inForce {
				h.removed = *e
			}
			h.keyed = append(h.keyed[:i], h.keyed[i+1:]...)
			return
		}
	}
}

func (c *holds) on(h *holdHost, e *history.Event) {
	for i := range h.keyed {
		k := &h.keyed[i]
		switch {
		case k.perhaps:
			c.close(&k.set, &h.off)
		case k.inForce && byScenario(e):
			c.suspend(e, " by the scenario itself, while "+k.set.Key+" held it off")
		case k.inForce:
			c.accuse(cause{e.Host, k.set.Key}, &k.set, e, k.set.Key+" still held it off")
		}
		k.inForce, k.perhaps = false, false
	}
	if c.near(&h.removed, e) {
		c.close(&h.removed, e)
	}
	h.off = history.Event{}
}

func (c *holds) Finish(complete bool) Result {
	return c.verdict(complete, "no host went off with a keyed annotation on it")
}
