package guarantee

import (
	"iter"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// OneFencingPerRequest is judged where a plan describes requests of a system's own.
var OneFencingPerRequest = invariant.Invariant{
	ID:       "one-fencing-per-request",
	Claim:    "A request to fence a host leads to one power cycle, however often anything crashes; it isn't done before the host was off; no controller makes another one before the host has booted; and in the end it is done.",
	Seed:     "000, 002",
	Liveness: true,
	New: func(p invariant.Params) invariant.Checker {
		return &fencings{
			Promise: invariant.NewPromise(p, invariant.Ruling{ID: "one-fencing-per-request", Skew: p.Timings.Skew}),
			roles:   p.Roles,
			hosts:   invariant.NewRoster[fencingHost](p.Hosts),
		}
	},
}

// fencings judges each power-off by a process under test, by the requests of a system's own, and
// each end of such a request. All that stand when the host goes off coalesce into that one cycle.
//
// Excused are power-offs
//
//   - that somebody else has asked for: a user, by an annotation or spec.online, or a mark;
//   - of a host that was powered on by no process under test, or by a command whose client had
//     given it up, while a request stood;
//   - for which the BMC received no command while the host was on: it carries one out late.
type fencings struct {
	invariant.Promise
	roles invariant.Roles
	hosts invariant.Roster[fencingHost]
}

type fencingHost struct {
	standing []fencing
	last     history.Event // the latest request that has had its power-off
	off      history.Event // that power-off
	booting  bool          // no boot has completed since
	ended    history.Event // when the host was off last
	// others are annotations of users, and marks, that stand.
	others    map[string]bool
	offline   bool // spec.online is false
	stray     bool // no process under test has powered the host on, or by a late command
	late      bool // the last command to power it on came late
	commanded bool // the BMC has received a command to go off since the last power edge
	ever      bool // the BMC has received one at some time
}

// fencing is a request, and the power-off that it has had.
type fencing struct{ asked, off history.Event }

func (c *fencings) Observe(e *history.Event) *invariant.Violation {
	c.Promise.Observe(e)
	if e.Host != "" {
		c.judge(c.hosts.Of(e.Host), e)
	}
	return c.Tell()
}

func (c *fencings) judge(h *fencingHost, e *history.Event) {
	if wanted, is := invariant.OwnRequest(e); is {
		if wanted {
			c.asked(h, e)
		} else {
			c.ended(h, e)
		}
		return
	}
	switch e.Kind {
	case history.AnnotationSet, history.AnnotationRemoved:
		_, reboot := invariant.RebootRequest(e)
		if !reboot && e.Key != invariant.ExternalAnnotation || reboot && e.Kind == history.AnnotationSet && c.roles.Tested(e.Actor) {
			return
		}
		if h.others == nil {
			h.others = make(map[string]bool)
		}
		if h.others[e.UID+e.Key] = e.Kind == history.AnnotationSet; e.Kind == history.AnnotationRemoved {
			delete(h.others, e.UID+e.Key)
		}
	case history.OnlineWanted:
		h.offline = e.Value == "false"
	case history.BMCCommand:
		if invariant.PowersOn(e) {
			h.late = e.Key == history.Late
		}
		if invariant.PowersOff(e) {
			h.commanded, h.ever = h.commanded || e.Key != history.Late, true
		}
	case history.PowerOff:
		c.off(h, e)
	case history.BootEnded:
		h.ended = *e
	case history.PowerOn:
		h.stray = len(h.standing) > 0 && (h.late || c.roles.Blameless(e))
		h.commanded, h.late = false, false
	case history.BootComplete:
		h.booting = false
	case history.EvidenceLost:
		c.Suspend(e, ", so that nobody saw whether it was powered off")
	}
}

func (c *fencings) asked(h *fencingHost, e *history.Event) {
	if h.booting && c.roles.Tested(e.Actor) && len(h.standing) == 0 && !c.Unaware(e, &h.last) {
		c.Judged++
		c.Breach(&h.last, e, invariant.Clause(e)+" by "+e.Actor+", though "+e.Host+" had not booted yet since it was off for "+h.last.Object)
	}
	delete(h.others, e.UID+invariant.ExternalAnnotation) // its own mark asks for no other cycle
	h.standing = append(h.standing, fencing{asked: *e})
}

// ended judges a request that says that it is done by whether its host was off since it was made.
// One whose object is gone may have been withdrawn.
func (c *fencings) ended(h *fencingHost, e *history.Event) {
	for i := range h.standing {
		f := h.standing[i]
		if f.asked.Object != e.Object {
			continue
		}
		h.standing = append(h.standing[:i:i], h.standing[i+1:]...)
		switch {
		case e.Value != history.FencingDone:
		case f.off.Kind == "" && c.Near(&h.ended, e):
			c.Close(&h.ended, e)
		case f.off.Kind == "" && h.ended.Seq < f.asked.Seq:
			c.Judged++
			c.Breach(&f.asked, e, invariant.Clause(e)+", and "+e.Host+" was never off since it was made at "+invariant.Seconds(f.asked.At))
		default:
			c.Judged++
			if f.off.Kind == "" {
				f.off = h.ended
			}
			c.Kept(&f.off, e)
		}
		return
	}
}

func (c *fencings) off(h *fencingHost, e *history.Event) {
	commanded, stray := h.commanded || !h.ever, h.stray
	h.ended, h.commanded, h.stray = *e, false, false
	if c.roles.Blameless(e) {
		return
	}
	fresh := false
	for i := range h.standing {
		if f := &h.standing[i]; f.off.Kind == "" {
			f.off, fresh = *e, true
			h.last, h.off, h.booting = f.asked, *e, true
		}
	}
	switch {
	case fresh:
		c.Judged++
		return
	case h.last.Kind == "" || !commanded || stray || h.offline || len(h.others) > 0:
		return
	}
	c.Judged++
	c.Breach(&h.off, e, e.Host+" was powered off again at "+invariant.Seconds(e.At)+", which nobody had asked for since "+h.last.Object+" of "+invariant.Seconds(h.last.At)+" had its power-off at "+invariant.Seconds(h.off.At))
}

// Lacks yields the requests that are not done.
func (c *fencings) Lacks() iter.Seq[invariant.Lack] {
	return func(yield func(invariant.Lack) bool) {
		for i := range c.hosts.Hosts {
			h := &c.hosts.Hosts[i]
			for j := range h.State.standing {
				f := &h.State.standing[j]
				if !yield(invariant.Lack{
					Sentence: f.asked.Object + " of " + invariant.Seconds(f.asked.At) + " was not done", Since: &f.asked,
					Host: h.Name, Comes: cycleEvents, On: invariant.Parties{BMC: h.Name, Any: true, Ends: invariant.ReturnEnds},
				}) {
					return
				}
			}
		}
	}
}

// Pending implements invariant.Checker.
func (c *fencings) Pending() string { return c.Owing(c.Lacks()) }

// Finish implements invariant.Checker.
func (c *fencings) Finish(complete bool) invariant.Result {
	return c.ConcludeAfterHealing(complete, c.Lacks(), "no request of the system's own was made")
}
