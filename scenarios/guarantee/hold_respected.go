package guarantee

import "github.com/fencelab/fencelab/scenarios/invariant"

import "github.com/fencelab/fencelab/scenarios/history"

var holdRespected = invariant.Invariant{
	ID:    "hold-respected",
	Claim: "While a keyed annotation is on a host that is off, the host stays off until the annotation's owner has removed it.",
	Seed:  "000, 001",
	New: func(p invariant.Params) invariant.Checker {
		return &holds{
			Ruling:     invariant.Ruling{ID: "hold-respected", Skew: p.Timings.Skew},
			Hindrances: p.Hindrances,
			roles:      p.Roles,
			hosts:      invariant.NewRoster[holdHost](p.Hosts),
		}
	},
}

// holds judges every PowerOn. A key that comes so late that the power-on was under
// way already can't hold it. One that a controller removes although it isn't its own
// holds on, until the host is powered on: its owner believes so.
type holds struct {
	invariant.Ruling
	*invariant.Hindrances
	roles invariant.Roles
	hosts invariant.Roster[holdHost]
}

type holdHost struct {
	invariant.Start
	off       history.Event // the power-off that is in force, or zero
	blind     bool
	unmanaged bool
	keyed     []hold
	removed   history.Event // of the last key that held the host off
}

// hold is a keyed annotation: as it was set, and as a stranger removed it.
type hold struct{ set, stolen history.Event }

func (c *holds) Observe(e *history.Event) *invariant.Violation {
	c.Ripen(e.At)
	if e.Host != "" {
		c.judge(e)
	}
	return c.Tell()
}

func (c *holds) judge(e *history.Event) {
	switch e.Kind {
	case history.AnnotationSet:
		if keyed, ok := invariant.RebootRequest(e); keyed && ok {
			c.set(c.hosts.Of(e.Host), e)
		}
	case history.AnnotationRemoved:
		if keyed, ok := invariant.RebootRequest(e); keyed && ok {
			c.remove(c.hosts.Of(e.Host), e)
		}
	case history.ProvisioningState:
		c.hosts.Of(e.Host).unmanaged = !invariant.Managed(e.Value)
	case history.PowerOff:
		h := c.hosts.Of(e.Host)
		if h.off.Kind != "" {
			return // repeated
		}
		h.off = *e
		if len(h.keyed) > 0 {
			c.Judged++
		}
	case history.PowerOn:
		c.on(c.hosts.Of(e.Host), e)
	case history.LastPoweredOn, history.PendingRebootSince, history.HeldOffFor, history.BMCCommand, history.PowerReported:
		c.hosts.Of(e.Host).Start.Observe(e, &c.roles)
	case history.EvidenceLost:
		h := c.hosts.Of(e.Host)
		h.blind = true
		if len(h.keyed) > 0 {
			c.Suspend(e, " while "+h.keyed[0].set.Key+" was set on it")
		}
	case history.EvidenceRegained:
		c.hosts.Of(e.Host).blind = false
	}
}

func (h *holdHost) find(key string) *hold {
	for i := range h.keyed {
		if h.keyed[i].set.Key == key {
			return &h.keyed[i]
		}
	}
	return nil
}

func (c *holds) set(h *holdHost, e *history.Event) {
	if k := h.find(e.Key); k != nil {
		if k.stolen.Kind != "" {
			*k = hold{set: *e}
		}
		return // else only its value changed
	}
	if h.blind {
		c.Suspend(e, " while nobody observed "+e.Host)
	}
	if h.off.Kind != "" {
		c.Judged++
	}
	h.keyed = append(h.keyed, hold{set: *e})
}

func (c *holds) remove(h *holdHost, e *history.Event) {
	k := h.find(e.Key)
	if k == nil {
		return
	}
	if h.off.Kind != "" && c.roles.Tested(e.Actor) && !c.roles.MayTouch(e.Actor, k.set.Actor, e, h.unmanaged) {
		k.stolen = *e
		return
	}
	c.Settle(invariant.Cause{Host: e.Host, Thing: e.Key}, e)
	if h.off.Kind != "" {
		h.removed = *e
	}
	h.drop(k)
}

func (h *holdHost) drop(k *hold) {
	for i := range h.keyed {
		if &h.keyed[i] == k {
			h.keyed = append(h.keyed[:i], h.keyed[i+1:]...)
			return
		}
	}
}

func (c *holds) on(h *holdHost, e *history.Event) {
	kept := h.keyed[:0]
	for i := range h.keyed {
		k := &h.keyed[i]
		switch {
		case h.unmanaged, c.roles.Blameless(e):
		case c.Near(&k.set, e):
			c.Close(&k.set, e)
		case h.UnderWay(e, &k.set, c.Hindrances):
		case k.stolen.Kind != "":
			c.Breach(&k.stolen, e, invariant.Clause(e)+"; "+k.set.Key+" had held it off, and was not "+k.stolen.Actor+"'s to remove at "+invariant.Seconds(k.stolen.At))
		default:
			c.Accuse(invariant.Cause{Host: e.Host, Thing: k.set.Key}, &k.set, e, k.set.Key+" still held it off")
		}
		if k.stolen.Kind == "" {
			kept = append(kept, *k)
		}
	}
	h.keyed = kept
	if c.Near(&h.removed, e) {
		c.Close(&h.removed, e)
	} else if len(h.keyed) == 0 {
		c.Kept(&h.removed, e)
	}
	h.Start.Observe(e, &c.roles)
	h.off, h.removed = history.Event{}, history.Event{}
}

func (c *holds) Finish(complete bool) invariant.Result {
	return c.Conclude(complete, "no host was off with a keyed annotation on it")
}
