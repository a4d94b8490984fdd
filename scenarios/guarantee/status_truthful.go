package guarantee

import (
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var statusTruthful = invariant.Invariant{
	ID:    "status-truthful",
	Claim: "While the BMC answers truthfully, status.poweredOn soon reflects the actual power state, and lastPoweredOn records each boot before it begins.",
	Seed:  "000",
	New: func(p invariant.Params) invariant.Checker {
		return &reports{
			Ruling:     invariant.Ruling{ID: "status-truthful"},
			roles:      p.Roles,
			hosts:      invariant.NewRoster[reportHost](p.Hosts),
			Hindrances: p.Hindrances,
			patience:   p.Timings.Steady + 2*p.Timings.Poll + p.Timings.Slack,
		}
	},
}

// reports judges each power edge: the status must follow it within the time in which
// the power controller looks at every host again. And it judges each power-on by a
// controller: a boot must have been recorded since the host was last reported on, by a
// report that was not held up until then. What was lost to hindrances of the BMC or of the
// power controller doesn't count.
type reports struct {
	invariant.Ruling
	*invariant.Hindrances
	roles    invariant.Roles
	hosts    invariant.Roster[reportHost]
	patience time.Duration
}

type reportHost struct {
	invariant.Body
	unmanaged, paused bool
	// reported is the reported state, once told says that there is one.
	reported, told bool
	// shown is when the host was last reported on, if no boot was recorded since.
	shown history.Event
	// recorded says that the next boot is.
	recorded bool
	// The status is not true since an event, and should have been corrected from when
	// nothing hindered that any more.
	invariant.Lapse
}

func (c *reports) Observe(e *history.Event) *invariant.Violation {
	if c.roles.Power == "" {
		return nil
	}
	// What has lasted for too long has done so before anything else happens.
	for i := range c.hosts.Hosts {
		c.expire(&c.hosts.Hosts[i], e)
	}
	if e.Kind == history.ControllerStarted && invariant.Plays(e.Actor, c.roles.Power) {
		c.forget()
	}
	if e.Host != "" {
		c.judge(c.hosts.Of(e.Host), e)
	}
	return c.Tell()
}

func (c *reports) judge(h *reportHost, e *history.Event) {
	switch e.Kind.Layer() {
	case history.World:
		h.Body.Observe(e)
		edge := e.Kind == history.PowerOn || e.Kind == history.PowerOff
		if edge && h.told && h.On != h.reported {
			h.Differ(e)
		}
		if e.Kind == history.PowerOn {
			c.poweredOn(h, e)
			h.recorded = false
		}
	case history.API:
		switch e.Kind {
		case history.PowerReported:
			h.reported, h.told = e.Value == "true", true
			// A host that is off, and whose next boot is recorded, may be reported on because that
			// is about to begin.
			if h.reported && !(h.recorded && h.IsOff()) && !c.Belated(e) {
				h.shown = *e
			}
			if h.Known() && h.On != h.reported {
				h.Differ(e)
			}
		case history.LastPoweredOn:
			h.shown, h.recorded = history.Event{}, true
		case history.ProvisioningState:
			h.unmanaged = !invariant.Managed(e.Value)
		case history.BareMetalHostDeleted:
			h.unmanaged = true // it has no status
		case history.AnnotationSet, history.AnnotationRemoved:
			if e.Key == invariant.PausedAnnotation {
				h.paused = e.Kind == history.AnnotationSet
			}
		}
	}
	switch {
	case h.unmanaged || h.paused || !h.Known():
		h.Wrong = history.Event{}
	case h.Wrong.Kind != "" && h.On == h.reported:
		c.InTime(c.patience, c.Hindrances, c.on(e.Host), &h.Wrong, e)
		h.Wrong = history.Event{}
	}
}

// poweredOn judges a power-on by whether its boot was recorded.
func (c *reports) poweredOn(h *reportHost, e *history.Event) {
	if !invariant.Plays(e.Actor, c.roles.Power) || h.unmanaged || h.paused {
		return
	}
	c.Judged++
	if shown := h.shown; shown.Kind != "" && !c.Belated(e) { // a command that comes late was recorded in its time
		c.Breach(&shown, e, invariant.Clause(e)+", and lastPoweredOn still told of a boot from before "+invariant.Seconds(shown.At))
	}
}

// forget takes in that the power controller has started anew. It then can't know of a host that
// is reported off whether the boot that it finds recorded has been seen on: the next power-on may
// belong to that.
func (c *reports) forget() {
	for i := range c.hosts.Hosts {
		if h := &c.hosts.Hosts[i].State; !h.reported {
			h.shown = history.Event{}
		}
	}
}

// on returns the parties that a host's status depends on.
func (c *reports) on(host string) invariant.Parties {
	return invariant.Parties{BMC: host, First: c.roles.Power}
}

// expire judges what has been reported wrongly for too long when e comes.
func (c *reports) expire(h *invariant.Entry[reportHost], e *history.Event) {
	wrong := &h.State.Wrong
	if wrong.Kind == "" || e.At-wrong.At <= c.patience {
		return
	}
	lost := c.Lost(wrong.At, e.At, c.on(h.Name))
	if e.At-wrong.At-lost <= c.patience {
		return
	}
	c.Judged++
	was, says := "off", "powered on"
	if h.State.On {
		was, says = says, "off"
	}
	first := *wrong
	*wrong = history.Event{}
	c.Breach(&first, e, h.Name+" was "+was+" from "+invariant.Seconds(first.At)+" on, and was still reported "+says+" at "+invariant.Seconds(e.At)+invariant.Beside(lost))
}

func (c *reports) Finish(complete bool) invariant.Result {
	return c.Conclude(complete, "the power of no host changed while nothing hindered the controllers")
}
