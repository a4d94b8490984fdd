package invariant

import (
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

var statusTruthful = Invariant{
	ID:    "status-truthful",
	Claim: "While the BMC answers truthfully, status.poweredOn soon reflects the actual power state, and lastPoweredOn records each boot before it begins.",
	Seed:  "000",
	New: func(p Params) Checker {
		return &reports{
			ruling:     ruling{id: "status-truthful"},
			roles:      p.Roles,
			hosts:      newRoster[reportHost](p.Hosts),
			hindrances: p.hindrances,
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
	ruling
	*hindrances
	roles    Roles
	hosts    roster[reportHost]
	patience time.Duration
}

type reportHost struct {
	body
	unmanaged, paused bool
	// reported is what the status says, once something has.
	reported, told bool
	// shown is when the host was last reported on, if no boot was recorded since.
	shown history.Event
	// recorded says that the next boot is.
	recorded bool
	// The status is not true since an event, and should have been corrected from when
	// nothing hindered that any more.
	lapse
}

func (c *reports) Observe(e *history.Event) *Violation {
	if c.roles.Power == "" {
		return nil
	}
	// What has lasted for too long has done so before anything else happens.
	for i := range c.hosts.hosts {
		c.expire(&c.hosts.hosts[i], e)
	}
	if e.Kind == history.ControllerStarted && plays(e.Actor, c.roles.Power) {
		c.forget()
	}
	if e.Host != "" {
		c.judge(c.hosts.of(e.Host), e)
	}
	return c.tell()
}

func (c *reports) judge(h *reportHost, e *history.Event) {
	switch e.Kind.Layer() {
	case history.World:
		h.body.observe(e)
		edge := e.Kind == history.PowerOn || e.Kind == history.PowerOff
		if edge && h.told && h.on != h.reported {
			h.differ(e)
		}
		if e.Kind == history.PowerOn {
			c.poweredOn(h, e)
			h.recorded = false
		}
	case history.API:
		switch e.Kind {
		case history.PowerReported:
			h.reported, h.told = e.Value == "true", true
			// A host that is off, and whose next boot is recorded, may be reported on because that is about to begin.
			if h.reported && !(h.recorded && h.isOff()) && !c.belated(e) {
				h.shown = *e
			}
			if h.known() && h.on != h.reported {
				h.differ(e)
			}
		case history.LastPoweredOn:
			h.shown, h.recorded = history.Event{}, true
		case history.ProvisioningState:
			h.unmanaged = !managed(e.Value)
		case history.BareMetalHostDeleted:
			h.unmanaged = true // it has no status
		case history.AnnotationSet, history.AnnotationRemoved:
			if e.Key == pausedAnnotation {
				h.paused = e.Kind == history.AnnotationSet
			}
		}
	}
	switch {
	case h.unmanaged || h.paused || !h.known():
		h.wrong = history.Event{}
	case h.wrong.Kind != "" && h.on == h.reported:
		c.inTime(c.patience, c.hindrances, c.on(e.Host), &h.wrong, e)
		h.wrong = history.Event{}
	}
}

// poweredOn judges a power-on by whether its boot was recorded.
func (c *reports) poweredOn(h *reportHost, e *history.Event) {
	if !plays(e.Actor, c.roles.Power) || h.unmanaged || h.paused {
		return
	}
	c.judged++
	if shown := h.shown; shown.Kind != "" && !c.belated(e) { // a command that comes late was recorded in its time
		c.breach(&shown, e, clause(e)+", and lastPoweredOn still told of a boot from before "+seconds(shown.At))
	}
}

// forget takes in that the power controller has started anew. Of a host that is reported off
// nothing tells it then whether the boot that it finds recorded has been seen on: the next
// power-on may belong to that.
func (c *reports) forget() {
	for i := range c.hosts.hosts {
		if h := &c.hosts.hosts[i].state; !h.reported {
			h.shown = history.Event{}
		}
	}
}

// on are those on whom a host's status depends.
func (c *reports) on(host string) parties { return parties{bmc: host, first: c.roles.Power} }

// expire judges what has been reported wrongly for too long when e comes.
func (c *reports) expire(h *entry[reportHost], e *history.Event) {
	wrong := &h.state.wrong
	if wrong.Kind == "" || e.At-wrong.At <= c.patience {
		return
	}
	lost := c.lost(wrong.At, e.At, c.on(h.name))
	if e.At-wrong.At-lost <= c.patience {
		return
	}
	c.judged++
	was, says := "off", "powered on"
	if h.state.on {
		was, says = says, "off"
	}
	first := *wrong
	*wrong = history.Event{}
	c.breach(&first, e, h.name+" was "+was+" from "+seconds(first.At)+" on, and was still reported "+says+" at "+seconds(e.At)+beside(lost))
}

func (c *reports) Finish(complete bool) Result {
	return c.verdict(complete, "the power of no host changed while nothing hindered the controllers")
}
