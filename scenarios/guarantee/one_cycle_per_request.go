package guarantee

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var oneCyclePerRequest = invariant.Invariant{
	ID:       "one-cycle-per-request",
	Claim:    "A request causes one power cycle, in the time of a soft shutdown and a hard one, however often anything crashes.",
	Seed:     "000, 001",
	Liveness: true,
	New: func(p invariant.Params) invariant.Checker {
		c := &cycles{
			roles:    p.Roles,
			hosts:    invariant.NewRoster[cycleHost](p.Hosts),
			Promise:  invariant.NewPromise(p, invariant.Ruling{ID: "one-cycle-per-request", Skew: p.Timings.Skew}),
			patience: p.Timings.Patience(),
		}
		if p.Timings.SoftTimeout > 0 { // else the world doesn't know what a shutdown may take
			c.command = p.Timings.Command + p.Timings.Slack
		}
		return c
	},
}

// cycles judges every power cycle, from PowerOff to PowerOn, and after healing
// every request.
//
// A request is a reboot annotation that appears on a host. All that are open when
// the host goes off coalesce into that one cycle (seed 000). One that comes while
// the host is off is served by the boot that follows, and accounts for one more
// cycle only if it is still there then. A reset serves a request too, for what ran
// when it was made is gone, but the controllers may not know that and still owe
// it a cycle. One that its client takes back before anything came of it is not
// served; but it is lost only if it had stood for longer than a shutdown may take.
// While spec.online is false a host that is off has what was asked for, and is
// owed no boot.
//
// A controller that starts anew knows since when a request waits from the record of it. If the
// clock was wrong when that was written, the record says nothing, and the request has its time from
// the start on. To correct the record would be worse: a process that doesn't know which clock was
// wrong may write a time that is too early, and the next one would cut the power at once.
//
// Excused are cycles
//
//   - whose off was caused by spec.online, or by no process under test;
//   - that bring a host back to off which was powered on while a key held it off: that
//     is another claim's business;
//   - that bring a host back to off which was powered on while a request was pending,
//     by no process under test or by a command whose client had given up;
//   - for which the BMC received no command while the host was on, because it carries
//     one out late;
//   - of a host that isn't provisioned.
type cycles struct {
	invariant.Promise
	roles invariant.Roles
	hosts invariant.Roster[cycleHost]
	// patience is how long a client has to wait before nothing coming of its request is a loss,
	// and command how much longer a command may take that is given again; 0 if the world doesn't
	// know.
	patience, command time.Duration
}

type cycleHost struct {
	invariant.Resets
	invariant.Shutdown
	requests []request
	// off is the power-off that is in force, or zero. It is accounted for when something asked for
	// it; close is set when it is unknown whether that came first.
	off       history.Event
	accounted bool
	close     *history.Event
	switched  history.Event // spec.online became false and no power-off followed
	online    bool          // spec.online became true again since
	offline   bool
	// foreign says that no process under test powered the host on, or a command whose client had
	// given it up or died, as overdue says of the last one; and pending that a request was
	// recorded and no boot since: it must go off again.
	foreign, overdue, pending bool
	// misdated says that the record of the request was written by a clock that was wrong.
	misdated bool
	// commanded says that the BMC has received a command to go off since the last
	// power edge, and told that it received any.
	commanded, told bool
	// A request that is set while the host is detached is answered when it is adopted.
	unmanaged, detached bool
	paused              bool
	blind               bool
	lastServed          request
}

// request is one reboot annotation, from when it appeared.
type request struct {
	set, removed history.Event
	// since is from when it may be answered: when it was set, its host was not paused any more, or
	// a process started that can't know better.
	since  time.Duration
	owed   bool // it has caused no cycle yet
	served bool // a boot began after it, or it was withdrawn before one could be expected
	wasOff bool // the host was off at some time since
	// reset is the reset by which the power controller has answered it, or zero.
	reset history.Event
	cycle history.Event // the power-off that it caused
}

func (r *request) there() bool { return r.removed.Kind == "" }

func (c *cycles) Observe(e *history.Event) *invariant.Violation {
	c.Promise.Observe(e)
	for i := range c.hosts.Hosts {
		c.expire(&c.hosts.Hosts[i], e)
	}
	if e.Host != "" {
		c.judge(e)
	}
	if e.Kind == history.ControllerStarted && c.roles.Powers(e.Actor) {
		for i := range c.hosts.Hosts {
			if s := &c.hosts.Hosts[i].State; s.misdated {
				s.restart(e.At)
			}
		}
	}
	return c.Tell()
}

func (c *cycles) judge(e *history.Event) {
	if e.Kind.Layer() == history.World {
		h := c.hosts.Of(e.Host)
		if reset := h.Resets.Observe(e); reset != nil {
			c.reset(h, reset)
		}
	}
	c.hosts.Of(e.Host).Shutdown.Observe(e)
	switch e.Kind {
	case history.AnnotationSet:
		c.hosts.Of(e.Host).pause(e, true)
		if _, ok := invariant.RebootRequest(e); ok {
			c.set(c.hosts.Of(e.Host), e)
		}
	case history.AnnotationRemoved:
		c.hosts.Of(e.Host).pause(e, false)
		if keyed, ok := invariant.RebootRequest(e); ok {
			c.remove(c.hosts.Of(e.Host), e, keyed)
		}
	case history.OnlineWanted:
		h := c.hosts.Of(e.Host)
		h.online = e.Value != "false"
		h.offline = !h.online
		if h.offline {
			h.switched = *e
			h.late(c, e)
		}
	case history.ProvisioningState:
		h := c.hosts.Of(e.Host)
		h.unmanaged, h.detached = !invariant.Managed(e.Value), e.Value == invariant.Detached
		switch {
		case h.detached:
		case h.unmanaged:
			h.pending = false
			h.drop(e)
		default:
			h.restart(e.At)
		}
	case history.MachineDeleted:
		c.abandoned(c.hosts.Of(e.Host), e)
	case history.BMCCommand:
		h := c.hosts.Of(e.Host)
		if invariant.PowersOn(e) {
			h.overdue = e.Key == history.Late
		}
		if invariant.PowersOff(e) && !c.roles.Blameless(e) {
			h.commanded, h.told = h.commanded || e.Key != history.Late, true
		}
	case history.PendingRebootSince:
		h := c.hosts.Of(e.Host)
		h.pending = e.Value != ""
		h.misdated = h.pending && c.Misled(e.Actor, e.At)
	case history.LastPoweredOn:
		c.hosts.Of(e.Host).pending = false
	case history.PowerOff:
		c.off(c.hosts.Of(e.Host), e)
	case history.PowerOn:
		c.on(c.hosts.Of(e.Host), e)
	case history.BootStarted:
		c.serve(c.hosts.Of(e.Host), e)
	case history.EvidenceLost:
		h := c.hosts.Of(e.Host)
		h.blind = true
		if len(h.requests) > 0 || h.lastServed.set.Kind != "" {
			c.Suspend(e, " after "+e.Host+" was asked to reboot")
		}
	case history.EvidenceRegained:
		c.hosts.Of(e.Host).blind = false
	}
}

// drop notes that e has taken every request away. A shutdown that was asked for may still follow.
func (h *cycleHost) drop(e *history.Event) {
	for i := range h.requests {
		if r := &h.requests[i]; r.there() {
			r.removed, r.served, r.owed = *e, true, r.owed && h.Asked()
		}
	}
	h.forget()
}

// pause notes whether its BareMetalHost is paused. A request has its time from then on again.
func (h *cycleHost) pause(e *history.Event, paused bool) {
	if e.Key != invariant.PausedAnnotation || !strings.HasPrefix(e.Object, "BareMetalHost/") {
		return
	}
	h.paused = paused
	h.restart(e.At)
}

// abandoned notes that a deletion is cut short by e and can't take its requests back any more.
func (c *cycles) abandoned(h *cycleHost, e *history.Event) {
	for i := range h.requests {
		if r := &h.requests[i]; c.roles.CutsShort(e, &r.set) && !r.served {
			r.served = true
			c.Excuse(&r.set)
		}
	}
}

// restart gives each request its time anew.
func (h *cycleHost) restart(at time.Duration) {
	for i := range h.requests {
		h.requests[i].since = at
	}
}

// expire judges each request that has stood for too long when e comes, and its host never went off.
func (c *cycles) expire(h *invariant.Entry[cycleHost], e *history.Event) {
	s := &h.State
	if s.off.Kind != "" || s.unmanaged || s.paused || s.blind || c.roles.Power == "" || c.command == 0 {
		return
	}
	for i := range s.requests {
		r := &s.requests[i]
		if !r.there() || r.served || r.wasOff || e.At-r.since <= c.patience+c.command {
			continue
		}
		if lost := c.Lost(r.since, e.At, c.dependsOn(h.Name)); e.At-r.since-lost > c.patience+c.command && c.Found == nil {
			c.Breach(&r.set, e, invariant.Clause(&r.set)+", and at "+invariant.Seconds(e.At)+" "+h.Name+" had not been off since"+invariant.Beside(lost))
		}
	}
}

func (c *cycles) set(h *cycleHost, e *history.Event) {
	if h.unmanaged && !h.detached {
		return
	}
	for i := range h.requests {
		if r := &h.requests[i]; r.set.Key == e.Key && r.there() {
			return // only its value changed
		}
	}
	if h.blind {
		c.Suspend(e, " while nobody observed "+e.Host)
	}
	c.Judged++
	h.late(c, e)
	h.requests = append(h.requests, request{set: *e, since: e.At, owed: true, wasOff: h.off.Kind != ""})
}

// reset judges a reset by the power controller, which is an answer to every request that
// stands: to each one only once.
func (c *cycles) reset(h *cycleHost, e *history.Event) {
	if !invariant.Plays(e.Actor, c.roles.Power) || h.off.Kind != "" || h.unmanaged {
		return
	}
	var before *history.Event
	for i := range h.requests {
		r := &h.requests[i]
		switch {
		case !r.there():
		case r.reset.Kind == "":
			r.reset, before = *e, nil
			return // and so it is for the others
		default:
			before = &r.reset
		}
	}
	if before != nil {
		c.Breach(before, e, invariant.Clause(e)+" by "+e.Actor+", as at "+invariant.Seconds(before.At)+", and nobody had asked for anything since")
	}
}

// late notes that e, which could have caused the power-off in force, may have
// come before it.
func (h *cycleHost) late(c *cycles, e *history.Event) {
	if h.off.Kind != "" && !h.accounted && c.Near(&h.off, e) {
		closer := *e
		h.close = &closer
	}
}

// remove takes a request back. A plain one is the controller's to remove, so that
// only whoever set it can withdraw it. A client removes a keyed one when it is done
// with it, at any time; the host had time to go off unless it was in a hurry.
func (c *cycles) remove(h *cycleHost, e *history.Event, keyed bool) {
	for i := range h.requests {
		r := &h.requests[i]
		if r.set.Key != e.Key || !r.there() {
			continue
		}
		r.removed = *e
		if keyed {
			c.neverOff(h, r, e)
		}
		withdrawn := keyed || e.Actor != "" && e.Actor == r.set.Actor
		if !r.served && withdrawn {
			late := c.roles.Power != "" && h.off.Kind == "" &&
				e.At-r.set.At-c.Lost(r.set.At, e.At, c.dependsOn(e.Host)) > c.patience
			if r.served = !late; r.served && r.owed && h.off.Kind == "" {
				c.Judged-- // nothing had to come of it yet
			}
		}
		break
	}
	h.forget()
}

// dependsOn is on whom an answer to a request depends.
func (c *cycles) dependsOn(host string) invariant.Parties {
	return invariant.Parties{BMC: host, First: c.roles.Power, Ends: invariant.HostEnds}
}

// neverOff judges a key that was taken back by its owner: it had held the host off, unless
// there was no time for that.
func (c *cycles) neverOff(h *cycleHost, r *request, e *history.Event) {
	if r.wasOff || h.unmanaged || h.blind || c.roles.Power == "" || c.Found != nil {
		return
	}
	lost := c.Lost(r.set.At, e.At, c.dependsOn(e.Host))
	if e.At-r.set.At-lost > c.patience {
		c.Breach(&r.set, e, invariant.Clause(&r.set)+" and removed at "+invariant.Seconds(e.At)+", and "+e.Host+" was never off in between"+invariant.Beside(lost))
	}
}

// forget drops the requests that can neither be missed nor cause a cycle.
func (h *cycleHost) forget() {
	kept := h.requests[:0]
	for _, r := range h.requests {
		if r.owed || !r.served || r.there() {
			kept = append(kept, r)
		}
	}
	h.requests = kept
}

func (c *cycles) off(h *cycleHost, e *history.Event) {
	if h.off.Kind != "" {
		return // repeated
	}
	h.off, h.close = *e, nil
	for i := range h.requests {
		h.requests[i].wasOff = true
	}
	late := h.told && !h.commanded
	h.commanded = false
	h.accounted = late || h.unmanaged || c.roles.Blameless(e) || c.held(h, e) || h.foreign && h.pending
	var closest *history.Event
	account := func(by *history.Event) {
		if c.Near(by, e) {
			closest = by
			return
		}
		h.accounted = true
	}
	if h.switched.Kind != "" {
		account(&h.switched)
	}
	for i := range h.requests {
		if r := &h.requests[i]; r.owed {
			account(&r.set)
			r.owed, r.cycle = false, *e
			h.lastServed = *r
		}
	}
	if closest != nil && !h.accounted {
		closer := *closest
		h.close = &closer
	}
	h.switched = history.Event{}
}

// held reports whether a key keeps the host off, so that it must go off again
// whoever powered it on.
func (c *cycles) held(h *cycleHost, e *history.Event) bool {
	for i := range h.requests {
		if r := &h.requests[i]; r.there() && r.set.Key != invariant.RebootAnnotation && !r.owed && !c.Near(&r.set, e) {
			return true
		}
	}
	return h.offline && h.switched.Kind == ""
}

func (c *cycles) on(h *cycleHost, e *history.Event) {
	off := h.off
	h.foreign, h.overdue, h.commanded = h.overdue || c.roles.Blameless(e), false, false
	c.serve(h, e)
	if off.Kind == "" {
		return // the first boot, or a repeated event
	}
	switch {
	case h.accounted:
	case h.close != nil:
		c.Close(h.close, &off)
	case c.Found == nil:
		sentence := e.Host + " was powered off at " + invariant.Seconds(off.At) + " and on at " + invariant.Seconds(e.At) + ", which nobody had asked for"
		if r := &h.lastServed; r.set.Kind != "" {
			sentence += ": the last request, " + r.set.Key + " of " + invariant.Seconds(r.set.At) + ", had its power cycle at " + invariant.Seconds(r.cycle.At)
		}
		c.Found = &invariant.Violation{Invariant: c.ID, First: off, Second: *e, Margin: e.At - off.At, Sentence: sentence}
	}
	// What came while the host was off and is gone again was served by this boot.
	for i := range h.requests {
		if r := &h.requests[i]; r.owed && !r.there() && r.set.Seq > off.Seq {
			r.owed = false
		}
	}
	h.forget()
	if h.online {
		h.switched = history.Event{}
	}
	h.off = history.Event{}
}

// serve notes that what ran before e is gone.
func (c *cycles) serve(h *cycleHost, e *history.Event) {
	for i := range h.requests {
		r := &h.requests[i]
		if !r.served && c.Near(&r.set, e) {
			c.Close(&r.set, e)
		}
		r.served = true
	}
}

func (c *cycles) Lacks() iter.Seq[invariant.Lack] {
	return func(yield func(invariant.Lack) bool) {
		for i := range c.hosts.Hosts {
			h := &c.hosts.Hosts[i]
			for j := range h.State.requests {
				r := &h.State.requests[j]
				if c.roles.Power == "" || r.served || h.State.offline && h.State.off.Kind != "" && (r.there() || r.cycle.Kind != "") {
					continue
				}
				var within time.Duration
				if r.there() {
					within = h.State.Within(c.patience)
				}
				sentence := "the request " + r.set.Key + " of " + invariant.Seconds(r.set.At) + " on " + h.Name
				if !r.there() {
					sentence += " was removed at " + invariant.Seconds(r.removed.At) + " and"
				}
				if !yield(invariant.Lack{
					Sentence: sentence + " was followed by no boot", Since: &r.set, Within: within,
					Blind: c.Doubt != "", // an unseen boot may have served it
					Host:  h.Name, Comes: cycleEvents, On: invariant.Parties{BMC: h.Name, Any: true, Ends: invariant.ReturnEnds},
				}) {
					return
				}
			}
		}
	}
}

// cycleEvents come when a host is power-cycled.
var cycleEvents = slices.Concat(invariant.OffEvents, invariant.BootEvents)

func (c *cycles) Pending() string { return c.Owing(c.Lacks()) }

func (c *cycles) Finish(complete bool) invariant.Result {
	return c.ConcludeAfterHealing(complete, c.Lacks(), "nobody asked for a reboot")
}
