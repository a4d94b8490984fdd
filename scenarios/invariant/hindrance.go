package invariant

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// hindrances are the spells in which somebody was held up, as events tell. A panel has one,
// which has taken in an event before any checker is shown it.
//
// They excuse two things, and nothing else. Being late is excused by as much as was lost to
// them, of this host or this process, and a while after each: what failed is tried again in
// growing intervals. Doing what is no longer right is excused only by what no read could
// have told: what had been decided, and was then held up.
type hindrances struct {
	recovery, grace time.Duration
	// command is how long a command may take.
	command time.Duration
	// anew is how long a process may wait again that has started anew: for a command that it
	// doesn't know to have been given its time.
	anew time.Duration
	// withdrawn is when the faults were withdrawn, open before that; now is when the last event came.
	withdrawn, now time.Duration
	// ignores chooses the hindrances that there are not, whatever events tell; nil for none. event is the number of the one that is
	// observed.
	ignores func(hindrance) bool
	event   int
	// spells are in the order in which they began.
	spells []spell
}

// hindrance names what holds a party up: the event that tells of it, by its number.
type hindrance struct {
	event int
	party string
}

// spell is a time in which a party was held up. One without an end is open.
type spell struct {
	party, name string
	begin, end  time.Duration
	// replaced is when another process of the same controller took over, whom it doesn't hold up:
	// nothing is late because of it from then on.
	replaced time.Duration
	// fails says that time was lost beyond its end, decided that what it held up had been decided.
	fails, decided bool
	// told says that no time is lost to it: see history.Hindrance.
	told bool
	// beyond is how long it lasts when it has been freed.
	beyond time.Duration
}

// open is the end of a spell that has none yet.
const open = time.Duration(math.MaxInt64)

func newHindrances(p Params) *hindrances {
	return &hindrances{recovery: p.Timings.Backoff + 5*time.Second, command: p.Timings.Command, anew: p.Timings.Command + p.Timings.Poll, grace: p.Timings.Slack, withdrawn: open}
}

// theLab is the party of everything that the lab runs.
const theLab = "lab"

// Names of spells whose ends are events of their own.
const (
	isDown    = "the process is down"
	isPaused  = "the host stands still"
	isStalled = "the lab is late"
	isUnseen  = "nobody observes the host"
)

func (h *hindrances) observe(e *history.Event) {
	h.now, h.event = e.At, e.Seq
	for _, name := range e.Frees {
		h.free(e.At, func(s *spell) bool { return s.name != "" && strings.HasPrefix(s.name, name) })
	}
	if hinders := e.Hinders; hinders != nil {
		s := spell{party: hinders.Party, name: hinders.Name, begin: e.At + hinders.After, end: open, fails: hinders.Fails, decided: hinders.Decided, told: hinders.Told}
		if s.name == "" {
			s.end = s.begin + hinders.For
			if e.Kind == history.BMCFault && e.Note != "" { // a command, which is given its time before it is sent again
				s.end += h.command
			}
		} else {
			s.beyond = hinders.For
		}
		h.add(s)
	}
	switch e.Kind {
	case history.RunStarted: // all that the coming up has left is over
		h.spells = h.spells[:0]
	case history.Healed:
		h.withdrawn = e.At
		h.free(e.At, func(s *spell) bool { return !slices.Contains(e.Lasting, s.name) })
	case history.LabStalled:
		h.begin(e, theLab, isStalled, true)
	case history.LabRecovered:
		h.end(e, theLab, isStalled)
	case history.ControllerCrashed:
		h.add(spell{party: history.ControllerEnd(e.Actor), name: isDown, begin: e.At, end: open}) // it starts without a back-off
	case history.ControllerStarted:
		h.end(e, history.ControllerEnd(e.Actor), isDown)
		h.replace(e)
	case history.APIFault:
		h.add(spell{party: history.RequestsOf(e.Actor), begin: e.At, end: e.At, fails: true})
	case history.HostPaused:
		h.begin(e, history.HostEnd(e.Host), isPaused, true)
	case history.HostResumed:
		h.end(e, history.HostEnd(e.Host), isPaused)
	case history.PowerOff, history.BootEnded, history.BootStarted:
		h.end(e, history.HostEnd(e.Host), history.BootOf(e.Host))
	case history.EvidenceLost:
		h.begin(e, history.BMCEnd(e.Host), isUnseen, false)
	case history.EvidenceRegained:
		h.end(e, history.BMCEnd(e.Host), isUnseen)
	case history.LinkCut, history.LinkImpaired, history.LinkRestored:
		h.linked(e)
	}
}

// replace notes that a process has taken over from the others of its controller.
func (h *hindrances) replace(e *history.Event) {
	for i := range h.spells {
		s := &h.spells[i]
		name, process := strings.CutPrefix(s.party, history.ControllerEnd(""))
		if process && name != e.Actor && same(name, e.Actor) && s.end > e.At && s.replaced == open {
			s.replaced = e.At
		}
	}
}

// linked takes in what happens to a link: it holds up what is at both of its ends.
func (h *hindrances) linked(e *history.Event) {
	link := history.LinkOf(e.From, e.To)
	ends := [...]string{e.From, e.To}
	if e.From == "" && e.To == "" {
		ends[0] = history.HostEnd(e.Host)
	}
	for _, party := range ends {
		switch {
		case party == "", party == history.Everybody: // who else uses the API server is well
		case e.Kind == history.LinkRestored:
			h.end(e, party, link)
		default:
			h.end(e, party, link)
			h.begin(e, party, link, false)
		}
	}
}

func (h *hindrances) begin(e *history.Event, party, name string, decided bool) {
	h.add(spell{party: party, name: name, begin: e.At, end: open, fails: true, decided: decided})
}

// add keeps the spells in order: some are known before they begin.
func (h *hindrances) add(s spell) {
	s.replaced = open
	if h.ignores != nil && h.ignores(hindrance{h.event, s.party}) {
		return
	}
	i := len(h.spells)
	for i > 0 && h.spells[i-1].begin > s.begin {
		i--
	}
	h.spells = slices.Insert(h.spells, i, s)
}

func (h *hindrances) end(e *history.Event, party, name string) {
	h.free(e.At, func(s *spell) bool { return s.party == party && s.name == name })
}

// free ends the spells that are not over, and that meet a condition.
func (h *hindrances) free(at time.Duration, which func(*spell) bool) {
	for i := range h.spells {
		if s := &h.spells[i]; s.end > at && which(s) {
			s.end = min(s.end, at+s.beyond)
		}
	}
}

// parties are those on whom something depends that is to happen in time. An instance of a
// process counts as the process. What runs on a host is among them only if host names it.
type parties struct {
	bmc, host     string
	first, second string
	// any says that all processes are among them.
	any bool
}

// has reports whether a party is among them. All depend on the API server.
func (p *parties) has(party string) bool {
	kind, name, _ := strings.Cut(party, "/")
	switch kind {
	case theLab:
		return true
	case "host": // what runs there; a BMC does without
		return name == p.host
	case "bmc":
		return name == p.bmc
	default: // a process, its requests, or all requests
		return name == "" || p.any || plays(name, p.first) || plays(name, p.second)
	}
}

// lost is how much of the time between two moments was lost to spells of some parties.
func (h *hindrances) lost(from, to time.Duration, on parties) time.Duration {
	return h.lostTo(from, to, h.recovery, func(s *spell) bool { return on.has(s.party) })
}

// inForce reports whether something holds some parties up at a moment.
func (h *hindrances) inForce(at time.Duration, on parties) bool {
	for i := range h.spells {
		if s := &h.spells[i]; !s.told && s.begin <= at && at < min(s.end, s.replaced) && on.has(s.party) {
			return true
		}
	}
	return false
}

// lasting reports whether a fault lasts for good: one that was not withdrawn with the others.
func (h *hindrances) lasting() bool {
	return slices.ContainsFunc(h.spells, h.lasts)
}

// lastsOn reports whether such a fault holds up some parties.
func (h *hindrances) lastsOn(on parties) bool {
	return slices.ContainsFunc(h.spells, func(s spell) bool { return h.lasts(s) && on.has(s.party) })
}

func (h *hindrances) lasts(s spell) bool {
	return s.begin < h.withdrawn && s.end == open && s.replaced == open && h.withdrawn != open
}

// lostTo is how much of the time between two moments was lost to some spells, and to the
// recovery after each in which something failed.
func (h *hindrances) lostTo(from, to, recovery time.Duration, which func(*spell) bool) (sum time.Duration) {
	covered := from
	for i := range h.spells {
		s := &h.spells[i]
		if s.told {
			continue
		}
		end := min(s.end, s.replaced)
		switch {
		case end >= to:
		case s.fails:
			end += recovery
		case s.name == isDown:
			end += h.anew
		}
		end = min(end, to)
		if begin := max(s.begin, covered); begin < end && which(s) {
			sum, covered = sum+end-begin, end
		}
	}
	return sum
}

// unaware reports whether whoever did e may have decided it before something changed: what
// is read just before a write may be so old, beside the time for which what was decided was
// held up.
func (h *hindrances) unaware(e, changed *history.Event) bool {
	return h.decidedBefore(e, changed, h.grace)
}

// sending is how long a request may take that nothing holds up.
const sending = 100 * time.Millisecond

// onItsWay is unaware of whoever must look just before they act, and not only some time before.
func (h *hindrances) onItsWay(e, changed *history.Event) bool {
	return h.decidedBefore(e, changed, sending)
}

func (h *hindrances) decidedBefore(e, changed *history.Event, grace time.Duration) bool {
	if changed.Kind == "" {
		return false
	}
	age := e.At - changed.At
	if age < grace {
		return true
	}
	covered := changed.At
	for i := range h.spells {
		s := &h.spells[i]
		if begin, end := max(s.begin, covered), min(s.end, e.At); s.decided && begin < end && s.of(e.Actor) && s.over(e, h.grace) {
			age, covered = age-(end-begin), end
		}
	}
	return age < grace
}

// belated reports whether e may be what its actor decided before something held that up.
func (h *hindrances) belated(e *history.Event) bool {
	for i := range h.spells {
		if s := &h.spells[i]; s.decided && s.of(e.Actor) && s.begin < e.At && e.At-h.grace <= s.end && s.over(e, h.grace) {
			return true
		}
	}
	return false
}

// heldBack reports whether e may be what a command does that a fault of the host's BMC has held back.
func (h *hindrances) heldBack(command, e *history.Event) bool {
	return slices.ContainsFunc(h.spells, func(s spell) bool {
		done := command.At + s.beyond
		return s.beyond > 0 && s.party == history.BMCEnd(e.Host) && s.begin <= command.At && command.At < s.end && e.At >= done && e.At-done < h.grace
	})
}

// over reports whether what a spell held up may have come with e: one request that is on its
// way excuses no other.
func (s *spell) over(e *history.Event, grace time.Duration) bool {
	return s.name != "" || s.end <= e.At+grace
}

// of reports whether a spell is that of an actor: its own, its host's, or everybody's.
func (s *spell) of(actor string) bool {
	kind, name, _ := strings.Cut(s.party, "/")
	switch kind {
	case "host":
		return strings.HasPrefix(actor, name+".")
	case "bmc":
		return false
	}
	return name == "" || same(actor, name)
}

// link reports whether a spell is that of a link.
func (s *spell) link() bool { return strings.HasPrefix(s.name, history.ALink) }

// network reports whether a spell is that of all links of a host.
func (s *spell) network() bool { return s.name == history.LinkOf("", "") }

// on reports whether a spell is that of a host, of an agent on it, or of all of the lab. An
// API server that refuses requests stands still for nobody.
func (s *spell) on(host string, roles *Roles) bool {
	kind, name, _ := strings.Cut(s.party, "/")
	switch kind {
	case "controller":
		return strings.HasPrefix(name, host+".") && roles.agent(name)
	case "host":
		return name == host
	}
	return kind == theLab
}

// retold reports whether the scenario changes what the health check is told, so that
// nobody here knows it any more.
func retold(e *history.Event) bool {
	return e.Kind == history.OpApplied && strings.HasPrefix(e.Object, "MachineHealthCheck/")
}
