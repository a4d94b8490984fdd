package guarantee

import (
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var oneWriter = invariant.Invariant{
	ID:    "one-writer",
	Claim: "A volume is mounted for writing by one boot at a time, written by none after another host was given it, and never taken from a boot that may still write.",
	Seed:  "002, 004",
	Wakes: []history.Kind{history.VolumeMounted, history.VolumeDetached, history.VolumeWritten},
	New: func(p invariant.Params) invariant.Checker {
		return &writers{
			Ruling: invariant.Ruling{ID: "one-writer", Skew: p.Timings.Skew},
			hosts:  invariant.NewRoster[access](p.Hosts),
		}
	},
}

// writers judges what the storage reports, whoever caused it: Kubernetes promises it by the
// attach-detach controller, and ReadWriteOncePod adds nothing to that, for it is the scheduler's
// promise and no storage's. A boot that has the volume mounted may write until it has unmounted it,
// is over, or the storage keeps its host out.
type writers struct {
	invariant.Ruling
	hosts invariant.Roster[access]
	// ended is the latest end of an access.
	ended history.Event
}

// access describes how one host can use the volume.
type access struct {
	invariant.Body
	// attached and mounted are the events that made it so, zero if it isn't.
	attached, mounted history.Event
}

// observe takes in an event of the host, and reports whether it ended its writing.
func (a *access) observe(e *history.Event) (over bool) {
	could := a.mayWrite()
	if a.Body.Observe(e) {
		a.mounted = history.Event{}
	}
	switch e.Kind {
	case history.VolumeAttached:
		a.attached = *e
	case history.VolumeDetached:
		a.attached = history.Event{}
	case history.VolumeMounted:
		a.mounted = *e
	case history.VolumeUnmounted:
		a.mounted = history.Event{}
	}
	return could && !a.mayWrite()
}

func (a *access) mayWrite() bool { return a.mounted.Kind != "" && !a.KeptOut() }

func (c *writers) Observe(e *history.Event) *invariant.Violation {
	c.Ripen(e.At)
	if e.Host != "" && e.Kind.Layer() == history.World {
		h := c.hosts.Of(e.Host)
		if h.observe(e) {
			c.ended = *e
			c.Settle(invariant.Cause{Host: e.Host}, e)
		}
		c.judge(h, e)
	}
	return c.Tell()
}

func (c *writers) judge(h *access, e *history.Event) {
	switch e.Kind {
	case history.VolumeDetached:
		c.Judged++
		c.taken(h, e)
	case history.VolumeMounted:
		c.Judged++
		c.alone(h, e)
	case history.VolumeUnfenced:
		if h.mounted.Kind != "" {
			c.Judged++
			c.alone(h, e)
		}
	case history.VolumeWritten:
		for i := range c.hosts.Hosts {
			if o := &c.hosts.Hosts[i]; o.Name != e.Host && o.State.attached.Seq > max(h.attached.Seq, h.mounted.Seq) {
				c.Breach(&o.State.attached, e, invariant.Clause(e)+", though "+o.Name+" had it since "+invariant.Seconds(o.State.attached.At))
				return
			}
		}
	}
}

// taken judges a host that has lost the volume.
func (c *writers) taken(h *access, e *history.Event) {
	switch {
	case !h.Known():
		c.Suspend(e, ", and nobody saw whether it was mounted there")
	case h.mayWrite():
		c.Accuse(invariant.Cause{Host: e.Host}, &h.mounted, e, "boot "+h.Boot+" there had it mounted and could write")
	case c.Near(&c.ended, e):
		c.Close(&c.ended, e)
	default:
		c.Kept(&c.ended, e)
	}
}

// alone judges a host that may write from now on.
func (c *writers) alone(h *access, e *history.Event) {
	for i := range c.hosts.Hosts {
		o := &c.hosts.Hosts[i]
		switch {
		case o.Name == e.Host:
		case o.State.Gap && !o.State.Known():
			c.Suspend(e, " while "+o.Name+" was not observed")
			return
		case o.State.mayWrite():
			c.Accuse(invariant.Cause{Host: o.Name}, &o.State.mounted, e, "boot "+o.State.Boot+" of "+o.Name+" had it mounted and could write")
			return
		}
	}
	if c.ended.Host != e.Host && c.Near(&c.ended, e) {
		c.Close(&c.ended, e)
	}
	c.Kept(&c.ended, e)
}

func (c *writers) Finish(complete bool) invariant.Result {
	return c.Conclude(complete, "no volume was mounted")
}
