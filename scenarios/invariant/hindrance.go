package invariant

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Hindrances are the spells in which somebody was held up, as events tell. A panel has one,
// which has taken in an event before any checker is shown it.
//
// They excuse two things, and nothing else. Being late is excused by as much as was lost to
// them, of this host or this process, and a while after each: what failed is tried again in
// growing intervals. Doing what is no longer right is excused only by what no read could
// have told: what had been decided, and was then held up.
type Hindrances struct {
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
	ignores func(Hindrance) bool
	event   int
	// spells are in the order in which they began.
	spells []Spell
}

// Hindrance names what holds a party up: the event that tells of it, by its number.
type Hindrance struct {
	Event int
	Party string
}

// Spell is a time in which a party was held up. One without an end is open.
type Spell struct {
	Party, Name string
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

// NewHindrances returns those of a history of which nothing has been observed.
func NewHindrances(p Params) *Hindrances {
	return &Hindrances{recovery: p.Timings.Backoff + 5*time.Second, command: p.Timings.Command, anew: p.Timings.Command + p.Timings.Poll, grace: p.Timings.Slack, withdrawn: open}
}

// theLab is the party of everything that the lab runs.
const theLab = "lab"

// Names of spells whose ends are events of their own.
const (
	IsDown    = "the process is down"
	isPaused  = "the host stands still"
	isStalled = "the lab is late"
	isUnseen  = "nobody observes the host"
)

// Observe takes in whom an event holds up, or frees. It comes before a checker is shown it.
func (h *Hindrances) Observe(e *history.Event) {
	h.now, h.event = e.At, e.Seq
	for _, name := range e.Frees {
		h.free(e.At, func(s *Spell) bool { return s.Name != "" && strings.HasPrefix(s.Name, name) })
	}
	if hinders := e.Hinders; hinders != nil {
		s := Spell{Party: hinders.Party, Name: hinders.Name, begin: e.At + hinders.After, end: open, fails: hinders.Fails, decided: hinders.Decided, told: hinders.Told}
		if s.Name == "" {
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
		h.free(e.At, func(s *Spell) bool { return !slices.Contains(e.Lasting, s.Name) })
	case history.LabStalled:
		h.begin(e, theLab, isStalled, true)
	case history.LabRecovered:
		h.end(e, theLab, isStalled)
	case history.ControllerCrashed:
		h.add(Spell{Party: history.ControllerEnd(e.Actor), Name: IsDown, begin: e.At, end: open}) // it starts without a back-off
	case history.ControllerStarted:
		h.end(e, history.ControllerEnd(e.Actor), IsDown)
		h.replace(e)
	case history.APIFault:
		h.add(Spell{Party: history.RequestsOf(e.Actor), begin: e.At, end: e.At, fails: true})
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
func (h *Hindrances) replace(e *history.Event) {
	for i := range h.spells {
		s := &h.spells[i]
		name, process := strings.CutPrefix(s.Party, history.ControllerEnd(""))
		if process && name != e.Actor && Same(name, e.Actor) && s.end > e.At && s.replaced == open {
			s.replaced = e.At
		}
	}
}

// linked takes in what happens to a link: it holds up what is at both of its ends.
func (h *Hindrances) linked(e *history.Event) {
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

func (h *Hindrances) begin(e *history.Event, party, name string, decided bool) {
	h.add(Spell{Party: party, Name: name, begin: e.At, end: open, fails: true, decided: decided})
}

// add keeps the spells in order: some are known before they begin.
func (h *Hindrances) add(s Spell) {
	s.replaced = open
	if h.ignores != nil && h.ignores(Hindrance{h.event, s.Party}) {
		return
	}
	i := len(h.spells)
	for i > 0 && h.spells[i-1].begin > s.begin {
		i--
	}
	h.spells = slices.Insert(h.spells, i, s)
}

func (h *Hindrances) end(e *history.Event, party, name string) {
	h.free(e.At, func(s *Spell) bool { return s.Party == party && s.Name == name })
}

// free ends the spells that are not over, and that meet a condition.
func (h *Hindrances) free(at time.Duration, which func(*Spell) bool) {
	for i := range h.spells {
		if s := &h.spells[i]; s.end > at && which(s) {
			s.end = min(s.end, at+s.beyond)
		}
	}
}

// Parties are those on whom something depends that is to happen in time. An instance of a
// process counts as the process. What runs on a host is among them only if host names it.
type Parties struct {
	BMC, Host     string
	First, Second string
	// Any says that all processes are among them.
	Any bool
}

// Has reports whether a party is among them. All depend on the API server.
func (p *Parties) Has(party string) bool {
	kind, name, _ := strings.Cut(party, "/")
	switch kind {
	case theLab:
		return true
	case "host": // what runs there; a BMC does without
		return name == p.Host
	case "bmc":
		return name == p.BMC
	default: // a process, its requests, or all requests
		return name == "" || p.Any || Plays(name, p.First) || Plays(name, p.Second)
	}
}

// Lost is how much of the time between two moments was lost to spells of some parties.
func (h *Hindrances) Lost(from, to time.Duration, on Parties) time.Duration {
	return h.LostTo(from, to, h.recovery, func(s *Spell) bool { return on.Has(s.Party) })
}

// inForce reports whether something holds some parties up at a moment.
func (h *Hindrances) inForce(at time.Duration, on Parties) bool {
	for i := range h.spells {
		if s := &h.spells[i]; !s.told && s.begin <= at && at < min(s.end, s.replaced) && on.Has(s.Party) {
			return true
		}
	}
	return false
}

// lasting reports whether a fault lasts for good: one that was not withdrawn with the others.
func (h *Hindrances) lasting() bool {
	return slices.ContainsFunc(h.spells, h.lasts)
}

// lastsOn reports whether such a fault holds up some parties.
func (h *Hindrances) lastsOn(on Parties) bool {
	return slices.ContainsFunc(h.spells, func(s Spell) bool { return h.lasts(s) && on.Has(s.Party) })
}

func (h *Hindrances) lasts(s Spell) bool {
	return s.begin < h.withdrawn && s.end == open && s.replaced == open && h.withdrawn != open
}

// LostTo is how much of the time between two moments was lost to some spells, and to the
// recovery after each in which something failed.
func (h *Hindrances) LostTo(from, to, recovery time.Duration, which func(*Spell) bool) (sum time.Duration) {
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
		case s.Name == IsDown:
			end += h.anew
		}
		end = min(end, to)
		if begin := max(s.begin, covered); begin < end && which(s) {
			sum, covered = sum+end-begin, end
		}
	}
	return sum
}

// Unaware reports whether whoever did e may have decided it before something changed: what
// is read just before a write may be so old, beside the time for which what was decided was
// held up.
func (h *Hindrances) Unaware(e, changed *history.Event) bool {
	return h.decidedBefore(e, changed, h.grace)
}

// sending is how long a request may take that nothing holds up.
const sending = 100 * time.Millisecond

// OnItsWay is unaware of whoever must look just before they act, and not only some time before.
func (h *Hindrances) OnItsWay(e, changed *history.Event) bool {
	return h.decidedBefore(e, changed, sending)
}

func (h *Hindrances) decidedBefore(e, changed *history.Event, grace time.Duration) bool {
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

// Belated reports whether e may be what its actor decided before something held that up.
func (h *Hindrances) Belated(e *history.Event) bool {
	for i := range h.spells {
		if s := &h.spells[i]; s.decided && s.of(e.Actor) && s.begin < e.At && e.At-h.grace <= s.end && s.over(e, h.grace) {
			return true
		}
	}
	return false
}

// heldBack reports whether e may be what a command does that a fault of the host's BMC has held back.
func (h *Hindrances) heldBack(command, e *history.Event) bool {
	return slices.ContainsFunc(h.spells, func(s Spell) bool {
		done := command.At + s.beyond
		return s.beyond > 0 && s.Party == history.BMCEnd(e.Host) && s.begin <= command.At && command.At < s.end && e.At >= done && e.At-done < h.grace
	})
}

// over reports whether what a spell held up may have come with e: one request that is on its
// way excuses no other.
func (s *Spell) over(e *history.Event, grace time.Duration) bool {
	return s.Name != "" || s.end <= e.At+grace
}

// of reports whether a spell is that of an actor: its own, its host's, or everybody's.
func (s *Spell) of(actor string) bool {
	kind, name, _ := strings.Cut(s.Party, "/")
	switch kind {
	case "host":
		return strings.HasPrefix(actor, name+".")
	case "bmc":
		return false
	}
	return name == "" || Same(actor, name)
}

// link reports whether a spell is that of a link.
func (s *Spell) link() bool { return strings.HasPrefix(s.Name, history.ALink) }

// network reports whether a spell is that of all links of a host.
func (s *Spell) network() bool { return s.Name == history.LinkOf("", "") }

// on reports whether a spell is that of a host, of an agent on it, or of all of the lab. An
// API server that refuses requests stands still for nobody.
func (s *Spell) on(host string, roles *Roles) bool {
	kind, name, _ := strings.Cut(s.Party, "/")
	switch kind {
	case "controller":
		return strings.HasPrefix(name, host+".") && roles.Agent(name)
	case "host":
		return name == host
	}
	return kind == theLab
}
