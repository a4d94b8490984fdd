package invariant

import (
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

var softHasItsTime = Invariant{
	ID:    "soft-has-its-time",
	Claim: "While nobody is in a hurry, a host is forced off only when its operating system has had the time of a soft shutdown, or the BMC knows none.",
	Seed:  "000, 001",
	New: func(p Params) Checker {
		return &courtesies{
			ruling:     ruling{id: "soft-has-its-time", skew: p.Timings.Skew},
			hindrances: p.hindrances,
			roles:      p.Roles,
			hosts:      newRoster[courted](p.Hosts),
			patience:   p.Timings.SoftTimeout,
		}
	},
}

// courtesies judges every command of the power controller that forces a host off while only
// soft requests stand, or spec.online is false. The time begins with the first of them: the
// controller remembers a request that was withdrawn until the host has booted.
//
// Excused is a command after a fault of the BMC, which may have refused to ask the operating
// system, and one that was sent before it could be known that nobody is in a hurry any more.
// Not judged is one to a host whose boot isn't complete, or is reported off: that calls off a boot
// that nobody has seen.
type courtesies struct {
	ruling
	*hindrances
	roles    Roles
	hosts    roster[courted]
	patience time.Duration
}

type courted struct {
	body
	unmanaged, offline, pending bool
	// reported says that the status tells of a host that is on.
	reported bool
	// requests are those that stand, by key, and since the first wish that the host go off, of
	// those that stand or are on record.
	requests map[string]string
	since    history.Event
	// hurried is since when a hard request stands, calmed when the last one went, and fault the
	// last fault of the BMC.
	hurried, calmed, fault history.Event
}

func (c *courtesies) Observe(e *history.Event) *Violation {
	if e.Host != "" && c.roles.Power != "" && c.patience > 0 {
		c.judge(c.hosts.of(e.Host), e)
	}
	return c.tell()
}

func (c *courtesies) judge(h *courted, e *history.Event) {
	switch e.Kind {
	case history.BMCFault:
		h.fault = *e
	case history.BMCCommand:
		if plays(e.Actor, c.roles.Power) && powersOff(e) && !asksGuest(e) && e.Key != history.Late {
			c.forced(h, e)
		}
	case history.ProvisioningState:
		if h.unmanaged = !managed(e.Value); h.unmanaged {
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
	h.body.observe(e)
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
	if _, ok := rebootRequest(e); !ok {
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
		if hard(value) {
			return true
		}
	}
	return false
}

// forced judges a command that gives the operating system no time.
func (c *courtesies) forced(h *courted, e *history.Event) {
	switch {
	case h.unmanaged || !h.known() || !h.complete || !h.reported || h.since.Kind == "":
		return
	case h.hurry():
		c.judged++
		c.kept(&h.hurried, e)
	case c.unaware(e, &h.calmed):
		return
	case h.fault.Seq > h.since.Seq:
		c.excuse(e)
	case e.At-h.since.At+coarse >= c.patience:
		c.judged++
		c.kept(&h.since, e)
	default:
		c.judged++
		c.breach(&h.since, e, clause(e)+", "+seconds(e.At-h.since.At)+" after "+clause(&h.since)+": its operating system has "+seconds(c.patience)+" to shut down")
	}
}

func (c *courtesies) Finish(complete bool) Result {
	return c.verdict(complete, "no host was forced off that nobody was in a hurry for")
}
