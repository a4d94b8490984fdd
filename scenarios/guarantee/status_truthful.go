package guarantee

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var statusTruthful = invariant.Invariant{
	ID:    "status-truthful",
	Claim: "While the BMC answers truthfully, status.poweredOn soon reflects the actual power state, and keeps to it; lastPoweredOn records each boot before it begins, and none that never was; heldOffFor answers only of a host that is off; no time of the status is in the future; and an error of the BMC doesn't stand once all is as it should be.",
	Seed:  "000",
	New: func(p invariant.Params) invariant.Checker {
		return &reports{
			Ruling:     invariant.Ruling{ID: "status-truthful"},
			roles:      p.Roles,
			hosts:      invariant.NewRoster[reportHost](p.Hosts),
			Hindrances: p.Hindrances,
			patience:   p.Timings.Steady + 2*p.Timings.Poll + p.Timings.Slack,
			retries:    p.Timings.Backoff + p.Timings.Answer,
			epoch:      p.Timings.Epoch,
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
	// retries is how long it may take beside that until a BMC which has failed is asked again and
	// answers; 0 if the world doesn't know.
	retries time.Duration
	// epoch is the time of the run's start, zero if clocks can't be compared.
	epoch time.Time
}

// contradictions is how often the status may contradict a fact that it has reported before: a
// process that is taken over from may write once what it had read.
const contradictions = 3

type reportHost struct {
	invariant.Body
	unmanaged, paused bool
	// reported is the reported state, once told says that there is one.
	reported, told bool
	// shown is when the host was last reported on, if no boot was recorded since.
	shown history.Event
	// recorded says that the next boot is.
	recorded bool
	// foreign says that another than the power controller has written a time, by which it may go.
	foreign bool
	// sent are the commands to go on that its BMC received.
	sent []history.Event
	// last is the last record of a boot, and booted the last boot if it came after that.
	last, booted history.Event
	// edge is the last power edge, right that the status has reported it, and wrong how often it
	// has reported the contrary after that, first at disputed.
	edge     history.Event
	right    bool
	wrong    int
	disputed history.Event
	// failing says that the status has an error of the BMC, demand has what is wanted of the host,
	// requests are the reboot annotations that stand, and old is the event since which nothing is
	// wanted that the error could be about.
	failing  bool
	demand   invariant.Demand
	requests []string
	old      history.Event
	// asked are all reboot annotations that it ever had.
	asked []string
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
		c.outlived(&c.hosts.Hosts[i], e)
	}
	if e.Kind == history.ControllerStarted && invariant.Plays(e.Actor, c.roles.Power) {
		c.forget()
	}
	if e.Host != "" {
		h := c.hosts.Of(e.Host)
		if c.roles.Powers(e.Actor) && !h.unmanaged && !h.paused {
			c.said(h, e)
		} else if e.Kind == history.LastPoweredOn || e.Kind == history.PendingRebootSince {
			h.foreign = h.foreign || e.Value != "" && e.At > 0
		}
		c.judge(h, e)
	}
	return c.Tell()
}

// said judges what the power controller says of a host by what is the case.
func (c *reports) said(h *reportHost, e *history.Event) {
	switch e.Kind {
	case history.PowerReported:
		c.contradicts(h, e)
		return
	case history.PendingRebootSince, history.LastPoweredOn, history.HeldOffFor:
	default:
		return
	}
	if e.Value == "" {
		return
	}
	if h.Known() {
		c.Judged++
	}
	off := !h.Known() || !h.On || h.told && !h.reported || c.Unaware(e, &h.edge) // or believed so, which is judged by itself
	switch {
	case e.Kind == history.HeldOffFor && !off:
		c.Breach(&h.edge, e, invariant.Clause(e)+", though "+invariant.Clause(&h.edge))
	case e.Kind == history.HeldOffFor:
		for answered := range strings.SplitSeq(e.Value, ",") {
			key, _, _ := strings.Cut(answered, "=")
			if key = invariant.RebootAnnotation + "/" + key; !slices.Contains(h.asked, key) {
				c.Breach(e, e, invariant.Clause(e)+", and nobody has ever set "+key)
				break
			}
		}
	case e.Kind == history.LastPoweredOn && !off && h.booted.Kind == "" && h.last.Kind != "":
		c.Breach(&h.last, e, invariant.Clause(e)+", as at "+invariant.Seconds(h.last.At)+", and "+e.Host+" has not booted in between")
	default:
		c.dated(h, e)
	}
}

// dated judges a time in the status, as far as clocks can be compared.
func (c *reports) dated(h *reportHost, e *history.Event) {
	at, err := time.Parse(time.RFC3339Nano, e.Value)
	switch {
	case err != nil || c.epoch.IsZero() || h.foreign: // it is no time, or of a clock of its own
	case at.Sub(c.epoch) > e.At+invariant.Coarse:
		c.Breach(e, e, invariant.Clause(e)+" as of "+e.Value+", which is still to come")
	case e.Kind == history.LastPoweredOn && h.last.Kind != "" && e.Value < h.last.Value:
		c.Breach(&h.last, e, invariant.Clause(e)+" as of "+e.Value+", which is before the boot that had been recorded at "+invariant.Seconds(h.last.At))
	}
}

// contradicts judges a report by those that came before it: one that is true doesn't make it so.
func (c *reports) contradicts(h *reportHost, e *history.Event) {
	switch reported := e.Value == "true"; {
	case !h.Known():
	case reported == h.On:
		h.right = true
	case !h.right || c.Lost(e.At-c.patience, e.At, invariant.Parties{BMC: e.Host}) > 0 || c.Unaware(e, &h.edge) || c.Belated(e):
	default:
		if h.wrong++; h.wrong == 1 {
			h.disputed = *e
		}
		if h.wrong > contradictions {
			c.Judged++
			c.Breach(&h.disputed, e, fmt.Sprintf("%s, for the %dth time since %s, and its power has not changed in between", invariant.Clause(e), h.wrong, invariant.Seconds(h.disputed.At)))
		}
	}
}

func (c *reports) judge(h *reportHost, e *history.Event) {
	switch e.Kind.Layer() {
	case history.World:
		h.Body.Observe(e)
		edge := e.Kind == history.PowerOn || e.Kind == history.PowerOff
		if edge || e.Kind == history.BootStarted {
			h.edge, h.right, h.wrong = *e, false, 0
		}
		if e.Kind == history.PowerOn || e.Kind == history.BootStarted {
			h.booted = *e
		}
		if edge && h.told && h.On != h.reported {
			h.Differ(e)
		}
		if e.Kind == history.PowerOn {
			c.poweredOn(h, e)
			h.recorded = false
		}
	case history.BMC:
		if e.Kind == history.BMCCommand && invariant.PowersOn(e) {
			h.sent = append(h.sent, *e)
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
			h.last, h.booted = *e, history.Event{}
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
	c.blamed(h, e)
	switch {
	case h.unmanaged || h.paused || !h.Known():
		h.Wrong = history.Event{}
	case h.Wrong.Kind != "" && h.On == h.reported:
		c.InTime(c.patience, c.Hindrances, c.on(e.Host), &h.Wrong, e)
		h.Wrong = history.Event{}
	}
}

// blamed notes whether, as from e, an error of the BMC stands of a host that is as it should be:
// on, reported so, and without a request. What was last said to a command or a reading may stand
// for as long as somebody waits for what it failed at.
func (c *reports) blamed(h *reportHost, e *history.Event) {
	h.demand.Observe(e, &c.roles)
	switch _, request := invariant.RebootRequest(e); {
	case e.Kind == history.PowerError:
		h.failing = e.Value == "true"
	case e.Kind == history.AnnotationSet && request:
		h.requests = append(invariant.Without(h.requests, e.Key), e.Key)
		h.asked = append(invariant.Without(h.asked, e.Key), e.Key)
	case e.Kind == history.AnnotationRemoved && request:
		h.requests = invariant.Without(h.requests, e.Key)
	}
	settled := h.Known() && h.On && h.reported && h.demand.On() && len(h.requests) == 0 && !h.paused
	switch {
	case e.Kind == history.PowerError && !h.failing && h.old.Kind != "":
		c.InTime(2*c.patience+c.retries, c.Hindrances, c.on(e.Host), &h.old, e)
		h.old = history.Event{}
	case !settled || !h.failing || c.retries == 0:
		h.old = history.Event{}
	case h.old.Kind == "" || e.Kind == history.BMCFault:
		h.old = *e
	}
}

// outlived judges an error that has stood for too long when e comes.
func (c *reports) outlived(h *invariant.Entry[reportHost], e *history.Event) {
	old, limit := h.State.old, 2*c.patience+c.retries
	if old.Kind == "" || e.At-old.At <= limit {
		return
	}
	lost := c.Lost(old.At, e.At, c.on(h.Name))
	if e.At-old.At-lost <= limit {
		return
	}
	c.Judged++
	h.State.old = history.Event{}
	c.Breach(&old, e, "the status of "+h.Name+" told of an error of its BMC; from "+invariant.Seconds(old.At)+" on the host was as it should be, and at "+invariant.Seconds(e.At)+" the error still stood"+invariant.Beside(lost))
}

// poweredOn judges a power-on by whether its boot was recorded.
func (c *reports) poweredOn(h *reportHost, e *history.Event) {
	if !invariant.Plays(e.Actor, c.roles.Power) || h.unmanaged || h.paused {
		return
	}
	c.Judged++
	heldBack := func(command history.Event) bool { return c.HeldBack(&command, e) }
	if shown := h.shown; shown.Kind != "" && !c.Belated(e) && !slices.ContainsFunc(h.sent, heldBack) { // a command that comes late was recorded in its time
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
