package guarantee

import (
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var softHasItsTime = invariant.Invariant{
	ID:    "soft-has-its-time",
	Claim: "While nobody is in a hurry, a host is forced off only when its operating system has been asked and has had the time of a soft shutdown, or the BMC knows none.",
	Seed:  "000, 001",
	New: func(p invariant.Params) invariant.Checker {
		return &courtesies{
			Ruling:     invariant.Ruling{ID: "soft-has-its-time", Skew: p.Timings.Skew},
			Hindrances: p.Hindrances,
			roles:      p.Roles,
			hosts:      invariant.NewRoster[courted](p.Hosts),
			patience:   p.Timings.SoftTimeout,
			prompt:     p.Timings.Slack + p.Timings.Poll,
		}
	},
}

// courtesies judges every command of the power controller that forces a host off while only
// soft requests stand, or spec.online is false. The time begins with the first of them: the
// controller remembers a request that was withdrawn until the host has booted.
//
// Whoever could ask the operating system, for longer than that takes, before the time was up has to
// have done so. A request that is read late may have no time left: it counts from when it was made.
//
// Excused is a command after a fault that hit a request for a soft shutdown, which has failed then
// (seed 000), unless there was the time to ask once more; one that was sent before it could be
// known that the hurry is over; and one of a process that has begun since, and knows the time by a
// clock that is wrong. Not judged is one to a host whose boot isn't complete, or is reported off:
// that calls off a boot that was not seen.
type courtesies struct {
	invariant.Ruling
	*invariant.Hindrances
	roles    invariant.Roles
	hosts    invariant.Roster[courted]
	patience time.Duration
	// prompt is how long it takes to ask what can be asked.
	prompt time.Duration
	// started is the last start of the power controller.
	started history.Event
}

type courted struct {
	invariant.Body
	unmanaged, offline, pending bool
	reported                    bool              // the status says that the host is on
	requests                    map[string]string // those that stand, by key
	// since is the first wish that the host go off, of the wishes that stand or are on record.
	since   history.Event
	hurried history.Event // since when a hard request stands
	calmed  history.Event // when the last hard request went
	asked   history.Event // the last request to the operating system
	failed  history.Event // the last fault that may have prevented such a request
	fails   time.Duration // since when each such request has failed
	open    history.Event // since when the operating system can be asked, or zero
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
		asks := invariant.AsksGuest(&history.Event{Value: e.Note})
		if asks || e.Note == "" && e.Hinders == nil { // what bends an answer alone may hide that it can be asked
			if h.failed.Seq <= max(h.since.Seq, h.asked.Seq) {
				h.fails = e.At
			}
			h.failed = *e
			if asks {
				h.asked = history.Event{} // as far as anybody can know
			}
		}
	case history.BMCCommand:
		if invariant.AsksGuest(e) {
			h.asked = *e
		}
		if invariant.Plays(e.Actor, c.roles.Power) && invariant.PowersOff(e) && !invariant.AsksGuest(e) && e.Key != history.Late {
			c.forced(h, e)
		}
	case history.ProvisioningState:
		if h.unmanaged = !invariant.Managed(e.Value); h.unmanaged && e.Value != invariant.Detached {
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
	switch can := !h.unmanaged && h.Known() && h.Complete && h.reported && h.since.Kind != "" && !h.hurry(); {
	case !can:
		h.open = history.Event{}
	case h.open.Kind == "":
		h.open = *e
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
	case h.failed.Seq > h.since.Seq && !c.could(h, e), c.started.Seq > h.since.Seq && c.Misled(e.Actor, e.At):
		c.Excuse(e)
	case h.failed.Seq > h.since.Seq:
		c.Judged++
		c.Breach(&h.failed, e, invariant.Clause(e)+", and its operating system had not been asked again since "+invariant.Clause(&h.failed))
	case h.asked.Seq < h.since.Seq && c.idle(h, e, h.open.At) > c.prompt:
		c.Judged++
		c.Breach(&h.since, e, invariant.Clause(e)+", and its operating system had not been asked to shut down since "+invariant.Clause(&h.since))
	case e.At-h.since.At+invariant.Coarse >= c.patience:
		c.Judged++
		c.Kept(&h.since, e)
	default:
		c.Judged++
		c.Breach(&h.since, e, invariant.Clause(e)+", "+invariant.Seconds(e.At-h.since.At)+" after "+invariant.Clause(&h.since)+": its operating system has "+invariant.Seconds(c.patience)+" to shut down")
	}
}

// could reports whether no request has arrived, though there was the time to ask once more after
// the last failure. A right controller waits no longer than it has failed by then.
func (c *courtesies) could(h *courted, e *history.Event) bool {
	return h.asked.Seq < h.since.Seq && c.idle(h, e, max(h.open.At, h.failed.At)) > 2*c.prompt+h.failed.At-h.fails
}

// idle is how much of the time of a soft shutdown there was to ask the operating system between a
// time and e.
func (c *courtesies) idle(h *courted, e *history.Event, from time.Duration) time.Duration {
	to := min(e.At, h.since.At+c.patience)
	if h.open.Kind == "" || to <= from {
		return 0
	}
	return to - from - c.Lost(from, to, invariant.Parties{BMC: e.Host, First: c.roles.Power})
}

func (c *courtesies) Finish(complete bool) invariant.Result {
	return c.Conclude(complete, "no host was forced off that nobody was in a hurry for")
}
