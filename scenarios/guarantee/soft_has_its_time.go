package guarantee

import (
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var softHasItsTime = invariant.Invariant{
	ID:    "soft-has-its-time",
	Claim: "While nobody is in a hurry, a host is forced off only when its operating system has had the time of a soft shutdown, or the BMC knows none.",
	Seed:  "000, 001",
	New: func(p invariant.Params) invariant.Checker {
		return &courtesies{
			Ruling:     invariant.Ruling{ID: "soft-has-its-time", Skew: p.Timings.Skew},
			Hindrances: p.Hindrances,
			roles:      p.Roles,
			hosts:      invariant.NewRoster[courted](p.Hosts),
			patience:   p.Timings.SoftTimeout,
		}
	},
}

// courtesies judges every command of the power controller that forces a host off while only
// soft requests stand, or spec.online is false. The time begins with the first of them: the
// controller remembers a request that was withdrawn until the host has booted.
//
// Excused is a command after a fault of the BMC, which may have refused to ask the operating
// system, unless that was asked without one; one that was sent before it could be known that the
// hurry is over; and one of a process that has begun since, and knows the time by a clock that is
// wrong. Not judged is one to a host whose boot isn't complete, or is reported off: that calls off
// a boot that was not seen.
type courtesies struct {
	invariant.Ruling
	*invariant.Hindrances
	roles    invariant.Roles
	hosts    invariant.Roster[courted]
	patience time.Duration
	// started is the last start of the power controller.
	started history.Event
}

type courted struct {
	invariant.Body
	unmanaged, offline, pending bool
	// reported says that the status reports the host on.
	reported bool
	// requests are the standing requests, by key, and since is the first wish that the host go
	// off, of the wishes that stand or are on record.
	requests map[string]string
	since    history.Event
	// hurried is since when a hard request stands, calmed when the last one went, and fault the
	// last fault of the BMC. Asked is the last request to the operating system, and bent says that
	// a fault hit it.
	hurried, calmed, fault, asked history.Event
	bent                          bool
}

func (c *courtesies) Observe(e *history.Event) *invariant.Violation {
	if e.Kind == history.ControllerStarted && c.roles.Powers(e.Actor) {
		c.started = *e
	}
	if e.Host != "" && c.roles.Power != "" && c.patience > 0 {
		c.judge(c.hosts.Of(e.Host), e)
	}
	return c.Tell()
}

func (c *courtesies) judge(h *courted, e *history.Event) {
	switch e.Kind {
	case history.BMCFault:
		h.fault = *e
		h.bent = h.bent || e.At == h.asked.At
	case history.BMCCommand:
		if invariant.AsksGuest(e) {
			h.asked, h.bent = *e, e.At == h.fault.At
		}
		if invariant.Plays(e.Actor, c.roles.Power) && invariant.PowersOff(e) && !invariant.AsksGuest(e) && e.Key != history.Late {
			c.forced(h, e)
		}
	case history.ProvisioningState:
		if h.unmanaged = !invariant.Managed(e.Value); h.unmanaged {
			h.pending = false // it was about an image that is gone
		}
	case history.PowerReported:
		h.reported = e.Value == "true"
	case history.PendingRebootSince:
		h.pending = e.Value != ""
	case history.LastPoweredOn:
		h.pending = false
	case history.OnlineWanted:
		h.offline = e.Value == "false"
		h.wish(e, h.offline)
	case history.AnnotationSet, history.AnnotationRemoved:
		c.asked(h, e)
	}
	h.Body.Observe(e)
	if !h.offline && !h.pending && len(h.requests) == 0 {
		h.since = history.Event{}
	}
}

func (h *courted) wish(e *history.Event, off bool) {
	if off && h.since.Kind == "" {
		h.since = *e
	}
}

func (c *courtesies) asked(h *courted, e *history.Event) {
	if _, ok := invariant.RebootRequest(e); !ok {
		return
	}
	was, set := h.hurry(), e.Kind == history.AnnotationSet
	if h.wish(e, set); set {
		if h.requests == nil {
			h.requests = map[string]string{}
		}
		h.requests[e.Key] = e.Value
	} else {
		delete(h.requests, e.Key)
	}
	switch is := h.hurry(); {
	case is && !was:
		h.hurried = *e
	case was && !is:
		h.calmed = *e
	}
}

// hurry reports whether a hard request stands.
func (h *courted) hurry() bool {
	for _, value := range h.requests { // order does not matter: any will do
		if invariant.Hard(value) {
			return true
		}
	}
	return false
}

// forced judges a command that gives the operating system no time.
func (c *courtesies) forced(h *courted, e *history.Event) {
	switch {
	case h.unmanaged || !h.Known() || !h.Complete || !h.reported || h.since.Kind == "":
		return
	case h.hurry():
		c.Judged++
		c.Kept(&h.hurried, e)
	case c.Unaware(e, &h.calmed):
		return
	case h.fault.Seq > h.since.Seq && (h.bent || h.asked.Seq < h.since.Seq), c.started.Seq > h.since.Seq && c.Misled(e.Actor, e.At):
		c.Excuse(e)
	case e.At-h.since.At+invariant.Coarse >= c.patience:
		c.Judged++
		c.Kept(&h.since, e)
	default:
		c.Judged++
		c.Breach(&h.since, e, invariant.Clause(e)+", "+invariant.Seconds(e.At-h.since.At)+" after "+invariant.Clause(&h.since)+": its operating system has "+invariant.Seconds(c.patience)+" to shut down")
	}
}

func (c *courtesies) Finish(complete bool) invariant.Result {
	return c.Conclude(complete, "no host was forced off that nobody was in a hurry for")
}
