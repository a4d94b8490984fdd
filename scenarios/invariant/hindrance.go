package invariant

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Hindrances are the spells in which parties were held up, as events show. A panel has one, which
// observes each event before the checkers do.
//
// They excuse two things, and nothing else. Being late is excused by the time lost to the
// hindrances of this host or this process, and a while after each: what failed is tried again in
// growing intervals. A wrong action is excused only if no read could have shown that it was wrong:
// it had been decided, and was then held up.
type Hindrances struct {
	recovery, grace time.Duration
	// retry is the longest interval in which a process tries again what has failed. It grows as the
	// time does in which all tries fail.
	retry time.Duration
	// residents are Params.Residents: they share what befalls their host.
	residents map[string][]string
	// command is how long a command may take, and answer how long a BMC's client waits for one.
	command, answer time.Duration
	// anew is how long a process that has started anew may wait again, for a command that it
	// doesn't know to have had its time.
	anew time.Duration
	// withdrawn is when the faults were withdrawn, open before that; now is when the last event
	// came.
	withdrawn, now time.Duration
	// ignores reports whether to treat a hindrance as absent. Nil ignores none. event is the
	// number of the event being observed.
	ignores func(Hindrance) bool
	event   int
	// spells are in the order in which they began.
	spells []Spell
	// keepers are the finalizers of users on objects, by UID, and their holds on hosts, by host.
	keepers, holds map[string][]string
	// lent has the last request of a deletion to each host.
	lent  map[string]history.Event
	roles Roles
	// able has each actor that has written something: a process that waits to lead has not.
	able []string
}

// Hindrance names a hindrance of a party by the number of the event that shows it.
type Hindrance struct {
	Event int
	Party string
}

// Spell is a time in which a party was held up. One without an end is open.
type Spell struct {
	Party, Name string
	begin, end  time.Duration
	// replaced is since when another process of the same controller has been at work, which is not
	// held up: from then on it makes nothing late.
	replaced time.Duration
	// fails says that time was lost beyond its end; decided, that its effect had been decided
	// before.
	fails, decided bool
	// told says that no time is lost to it: see history.Hindrance.
	told bool
	// beyond is how long it lasts when it has been freed.
	beyond time.Duration
	// hangs says that what it held up takes no effect.
	hangs bool
	// kept says that a user keeps an object or a host, for as long as he likes.
	kept bool
	// scheduled says that the schedule held it up, and no longer than the schedule lasts.
	scheduled bool
}

// Scheduled reports whether the schedule held the party up.
func (s *Spell) Scheduled() bool { return s.scheduled }

// Keeps reports whether a user keeps such a thing of a host.
func (s *Spell) Keeps(of Ends, host string) bool {
	kind, name, kept := history.KeptOf(s.Party)
	return kept && of&endsOf[kind] != 0 && name == host
}

// open is the end of a spell that has none yet.
const open = time.Duration(math.MaxInt64)

// soon is within which time a process that tries again has done it.
const soon = 5 * time.Second

// NewHindrances returns hindrances that have observed nothing.
func NewHindrances(p Params) *Hindrances {
	return &Hindrances{residents: p.Residents, roles: p.Roles, keepers: make(map[string][]string), holds: make(map[string][]string), lent: make(map[string]history.Event), recovery: p.Timings.Backoff + soon, retry: p.Timings.Retry, command: p.Timings.Command, answer: p.Timings.Answer, anew: p.Timings.Command + p.Timings.Poll, grace: p.Timings.Slack, withdrawn: open}
}

// theLab is the party of everything that the lab runs.
const theLab = "lab"

// Names of spells whose ends are events of their own.
const (
	IsDown    = "the process is down"
	isPaused  = "the host stands still"
	isStalled = "the lab is late"
	isUnseen  = "nobody observes the host"
	noQuorum  = "the API server has no quorum"
	// What users keep from controllers.
	isUnmanaged    = "the host is not managed"
	isNobodys      = "the host is nobody's"
	isUnknown      = "the host has no BareMetalHost"
	isHeld         = "the host is held off"
	isPausedByUser = "the Machine is paused"
	isNameless     = "the Machine names no Node"
	isKeptOut      = "the storage keeps the host out"
)

// Observe notes the parties that an event holds up or frees. Call it before the checkers observe
// e.
func (h *Hindrances) Observe(e *history.Event) {
	h.now, h.event = e.At, e.Seq
	for _, name := range e.Frees {
		h.free(e.At, func(s *Spell) bool { return s.Name != "" && strings.HasPrefix(s.Name, name) })
	}
	if hinders := e.Hinders; hinders != nil {
		s := Spell{Party: hinders.Party, Name: hinders.Name, begin: e.At + hinders.After, end: open, fails: hinders.Fails, decided: hinders.Decided, told: hinders.Told, scheduled: e.Kind == history.Deviated}
		if s.Name == "" {
			s.end = s.begin + hinders.For
			if e.Kind == history.BMCFault && e.Note != "" { // a command, which is given its time before it is sent again
				s.end += h.command
			}
		} else {
			s.beyond, s.hangs = hinders.For, hinders.Hangs
		}
		h.add(s)
	}
	switch e.Kind {
	case history.RunStarted: // every effect of the start is over, but for what users keep
		h.spells = slices.DeleteFunc(h.spells, func(s Spell) bool { return !s.kept })
	case history.ScheduleEnded: // what is late comes now
		h.free(e.At, func(s *Spell) bool { return s.scheduled })
	case history.Healed: // which mends no boot, and switches no host on: either ends a spell of its own
		h.withdrawn = e.At
		h.free(e.At, func(s *Spell) bool {
			return !slices.Contains(e.Lasting, s.Name) && !s.kept && !strings.HasPrefix(s.Name, history.BootOf("")) && s.Name != noQuorum && !(s.Name == IsDown && h.resides(s.Party))
		})
	case history.LabStalled:
		h.begin(e, theLab, isStalled, true)
	case history.LabRecovered:
		h.end(e, theLab, isStalled)
	case history.ControllerCrashed:
		s := Spell{Party: history.ControllerEnd(e.Actor), Name: IsDown, begin: e.At, end: open} // it starts without a back-off
		if h.another(e.Actor) {
			s.replaced = e.At
		}
		h.add(s)
		h.able = slices.DeleteFunc(h.able, func(name string) bool { return name == e.Actor })
	case history.ControllerStarted:
		h.end(e, history.ControllerEnd(e.Actor), IsDown)
		h.replace(e)
	case history.APIFault:
		h.add(Spell{Party: history.RequestsOf(e.Actor), begin: e.At, end: e.At, fails: true})
	case history.QuorumLost:
		h.begin(e, history.Everybody, noQuorum, false)
	case history.QuorumRegained:
		h.end(e, history.Everybody, noQuorum)
	case history.HostPaused:
		for _, party := range h.on(history.HostEnd(e.Host)) {
			h.begin(e, party, isPaused, true)
		}
	case history.HostResumed:
		for _, party := range h.on(history.HostEnd(e.Host)) {
			h.end(e, party, isPaused)
		}
	case history.PowerOff, history.BootEnded, history.BootStarted:
		party, boot, kubelet := history.HostEnd(e.Host), history.BootOf(e.Host), history.KubeletOf(e.Host)
		// What was done to a host in the instant of its reset was done to the boot that begins.
		h.free(e.At, func(s *Spell) bool {
			return s.Party == party && (s.Name == boot || s.Name == kubelet) && s.begin < e.At
		})
	case history.EvidenceLost:
		h.begin(e, history.BMCEnd(e.Host), isUnseen, false)
	case history.EvidenceRegained:
		h.end(e, history.BMCEnd(e.Host), isUnseen)
	case history.LinkCut, history.LinkImpaired, history.LinkRestored:
		h.linked(e)
	}
	h.byUsers(e)
	if e.Actor != "" && e.Kind.Layer() == history.API && !slices.Contains(h.able, e.Actor) {
		h.able = append(h.able, e.Actor)
	}
}

// byUsers notes what users keep from controllers, and what they give back.
func (h *Hindrances) byUsers(e *history.Event) {
	switch e.Kind {
	case history.FinalizerAdded:
		if !h.roles.Tested(e.Actor) {
			h.keepers[e.UID] = append(h.keepers[e.UID], e.Key)
		}
	case history.NodeDeleting, history.MachineDeleting, history.PodTerminating:
		if len(h.keepers[e.UID]) > 0 {
			h.add(Spell{Party: keptEnd(e), Name: e.Object, begin: e.At, end: open, kept: true})
		}
	case history.FinalizerRemoved:
		if h.keepers[e.UID] = Without(h.keepers[e.UID], e.Key); len(h.keepers[e.UID]) == 0 {
			h.end(e, keptEnd(e), e.Object)
		}
	case history.ProvisioningState:
		h.keep(e, history.KeptEnd("Host", e.Host), isUnmanaged, !Managed(e.Value))
	case history.HostConsumer:
		h.keep(e, history.KeptEnd("Host", e.Host), isNobodys, e.Value == "")
	case history.BareMetalHostCreated, history.BareMetalHostDeleted:
		gone := e.Kind == history.BareMetalHostDeleted
		h.keep(e, history.KeptEnd("Host", e.Host), isUnknown, gone)
		if gone {
			delete(h.holds, e.Host)
			delete(h.lent, e.Host)
			h.end(e, history.KeptEnd("Hold", e.Host), isHeld)
		}
	case history.OnlineWanted:
		h.hold(e, "spec.online", e.Value == "false")
	case history.AnnotationSet, history.AnnotationRemoved:
		set := e.Kind == history.AnnotationSet
		if keyed, _ := RebootRequest(e); keyed {
			if h.hold(e, e.Key, set); set && h.roles.Deletes(e.Actor) {
				h.lent[e.Host] = *e
			}
		} else if e.Key == PausedAnnotation && strings.HasPrefix(e.Object, "Machine/") {
			h.keep(e, history.KeptEnd("Pause", e.Host), isPausedByUser, set)
		}
	case history.VolumeFenced, history.VolumeUnfenced:
		h.keep(e, history.KeptEnd("Storage", e.Host), isKeptOut, e.Kind == history.VolumeFenced && ByUser(e))
	case history.MachineNode:
		h.keep(e, history.KeptEnd("Pause", e.Host), isNameless, e.Value == "")
	case history.MachineDeleted:
		party := history.KeptEnd("Pause", e.Host)
		h.free(e.At, func(s *Spell) bool { return s.Party == party })
		if lent := h.lent[e.Host]; lent.Kind != "" && h.roles.CutsShort(e, &lent) {
			h.hold(e, lent.Key, true) // it is the user's to take back
		}
	}
}

// keep notes that a user keeps something from its controllers, or gives it back.
func (h *Hindrances) keep(e *history.Event, party, name string, is bool) {
	h.end(e, party, name)
	if is && !h.roles.Tested(e.Actor) {
		h.add(Spell{Party: party, Name: name, begin: e.At, end: open, fails: true, kept: true})
	}
}

// hold notes that a user holds a host off, by a key or by spec.online, or no longer.
func (h *Hindrances) hold(e *history.Event, by string, is bool) {
	held, keys := len(h.holds[e.Host]) > 0, Without(h.holds[e.Host], by)
	if is && !h.roles.Tested(e.Actor) {
		keys = append(keys, by)
	}
	if h.holds[e.Host] = keys; held != (len(keys) > 0) {
		h.keep(e, history.KeptEnd("Hold", e.Host), isHeld, !held)
	}
}

// keptEnd is the party of whatever waits for the end of an event's object.
func keptEnd(e *history.Event) string {
	kind, _, _ := strings.Cut(e.Object, "/")
	return history.KeptEnd(kind, e.Host)
}

// another reports whether a process of the same controller is at work that nothing holds up.
func (h *Hindrances) another(process string) bool {
	return slices.ContainsFunc(h.able, func(name string) bool {
		return name != process && Same(name, process) && !slices.ContainsFunc(h.spells, func(s Spell) bool {
			return s.Party == history.ControllerEnd(name) && s.begin <= h.now && h.now < s.end
		})
	})
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

// linked notes what happens to a link: it holds up the parties at both of its ends.
func (h *Hindrances) linked(e *history.Event) {
	link := history.LinkOf(e.From, e.To)
	ends := [...]string{e.From, e.To}
	if e.From == "" && e.To == "" {
		ends[0] = history.HostEnd(e.Host)
	}
	for _, party := range slices.Concat(h.on(ends[0]), h.on(ends[1])) {
		switch {
		case party == "", party == history.Everybody: // the other users of the API server are well
		case e.Kind == history.LinkRestored:
			h.end(e, party, link)
		default:
			h.end(e, party, link)
			h.add(Spell{Party: party, Name: link, begin: e.At, end: open, fails: true, beyond: h.unanswered(ends[:]), hangs: true})
		}
	}
}

// unanswered is how long a client waits in vain for what it has sent just before a link between two
// ends is restored. Whoever asks the API server asks again in a moment.
func (h *Hindrances) unanswered(ends []string) time.Duration {
	if slices.ContainsFunc(ends, func(end string) bool { return strings.HasPrefix(end, history.BMCEnd("")) }) {
		return h.answer
	}
	return 0
}

// on returns an end of links with the processes of controllers that a story has put there.
func (h *Hindrances) on(end string) []string {
	parties := []string{end}
	if host, ok := strings.CutPrefix(end, history.HostEnd("")); ok {
		for _, name := range h.residents[host] {
			parties = append(parties, history.ControllerEnd(name))
		}
	}
	return parties
}

// resides reports whether a party is a process that a story has put on a host.
func (h *Hindrances) resides(party string) bool {
	for _, names := range h.residents { // order does not matter: it looks for one
		for _, name := range names {
			if party == history.ControllerEnd(name) {
				return true
			}
		}
	}
	return false
}

func (h *Hindrances) begin(e *history.Event, party, name string, decided bool) {
	h.add(Spell{Party: party, Name: name, begin: e.At, end: open, fails: true, decided: decided})
}

// add keeps the spells in order: some are known before they begin.
func (h *Hindrances) add(s Spell) {
	if s.replaced == 0 {
		s.replaced = open
	}
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

// Parties are the parties that a timely event depends on. An instance of a process counts as the
// process. Parties on a host are among them only if Host names it.
type Parties struct {
	BMC, Host     string
	First, Second string
	// Any says that all processes are among them.
	Any bool
	// Ends are the things of the host, or of any if none is named, whose end they wait for.
	Ends Ends
}

// Ends are kinds of things that users keep.
type Ends uint8

// The members of Ends.
const (
	NodeEnds Ends = 1 << iota
	MachineEnds
	PodEnds
	// HostEnds is when a host can be managed again, and HoldEnds the end of the last hold on
	// it. With PauseEnds its Machine is not paused any more, or names a Node again, and with
	// StorageEnds the storage lets the host in again.
	HostEnds
	HoldEnds
	PauseEnds
	StorageEnds
	// ReleaseEnds end with the release of a host, and ReturnEnds before it returns.
	ReleaseEnds = NodeEnds | PodEnds | PauseEnds
	ReturnEnds  = ReleaseEnds | HostEnds | HoldEnds
)

// endsOf has them by their names.
var endsOf = map[string]Ends{"Node": NodeEnds, "Machine": MachineEnds, "Pod": PodEnds, "Host": HostEnds, "Hold": HoldEnds, "Pause": PauseEnds, "Storage": StorageEnds}

// Has reports whether a party is among them. All depend on the API server.
func (p *Parties) Has(party string) bool {
	if of, host, kept := history.KeptOf(party); kept {
		return p.Ends&endsOf[of] != 0 && (host == p.BMC || host == p.Host || p.BMC == "" && p.Host == "")
	}
	kind, name, _ := strings.Cut(party, "/")
	switch kind {
	case theLab:
		return true
	case "host": // agents on the host; a BMC doesn't depend on them
		return name == p.Host
	case "bmc":
		return name == p.BMC
	default: // a process, its requests, or all requests
		return name == "" || p.Any || Plays(name, p.First) || Plays(name, p.Second)
	}
}

// Lost returns how much of the time between two moments was lost to spells of some parties.
func (h *Hindrances) Lost(from, to time.Duration, on Parties) time.Duration {
	return h.LostTo(from, to, h.recovers, func(s *Spell) bool { return on.Has(s.Party) })
}

// recovers is how long after a spell what failed in it is tried again.
func (h *Hindrances) recovers(s *Spell) time.Duration {
	if strings.HasPrefix(s.Party, history.BMCEnd("")) {
		return h.recovery
	}
	return max(h.recovery, min(h.retry, s.end-s.begin)+soon)
}

// inForce reports whether a hindrance holds some parties up at a moment.
func (h *Hindrances) inForce(at time.Duration, on Parties) bool {
	for i := range h.spells {
		if s := &h.spells[i]; !s.told && s.begin <= at && at < min(s.end, s.replaced) && on.Has(s.Party) {
			return true
		}
	}
	return false
}

// lasting reports whether a fault lasts for good: it was not withdrawn with the others. A process
// that is down with its host is no fault: who switched it off may have been its controller.
func (h *Hindrances) lasting() bool {
	return slices.ContainsFunc(h.spells, h.lasts)
}

// UserKeeps reports whether a user keeps something now.
func (h *Hindrances) UserKeeps() bool {
	return slices.ContainsFunc(h.spells, func(s Spell) bool { return s.kept && s.end == open })
}

// lastsOn reports whether such a fault holds up some parties.
func (h *Hindrances) lastsOn(on Parties) bool {
	return slices.ContainsFunc(h.spells, func(s Spell) bool { return h.lasts(s) && on.Has(s.Party) })
}

func (h *Hindrances) lasts(s Spell) bool {
	return s.Name != IsDown && (s.begin < h.withdrawn || s.kept) && s.end == open && s.replaced == open && h.withdrawn != open
}

// LostTo returns how much of the time between two moments was lost to some spells, and to the
// recovery after each spell in which something failed.
func (h *Hindrances) LostTo(from, to time.Duration, recovery func(*Spell) time.Duration, which func(*Spell) bool) (sum time.Duration) {
	covered := from
	for i := range h.spells {
		s := &h.spells[i]
		if s.told || s.replaced == s.begin {
			continue
		}
		end := min(s.end, s.replaced)
		switch {
		case end >= to:
		case s.fails:
			end += recovery(s)
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

// Unaware reports whether the actor of e may have decided it before something changed: the read
// just before a write may be old, and the decided action may have been held up in addition.
func (h *Hindrances) Unaware(e, changed *history.Event) bool {
	return h.decidedBefore(e, changed, h.grace)
}

// sending is how long a request takes at most when nothing holds it up.
const sending = 100 * time.Millisecond

// OnItsWay is Unaware for actors that must look immediately before they act.
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

// Belated reports whether the actor of e may have decided it before something held it up.
func (h *Hindrances) Belated(e *history.Event) bool {
	for i := range h.spells {
		if s := &h.spells[i]; s.decided && s.of(e.Actor) && s.begin < e.At && e.At-h.grace <= s.end && s.over(e, h.grace) {
			return true
		}
	}
	return false
}

// HeldBack reports whether e may be the effect of a command that a fault of the host's BMC held
// back.
func (h *Hindrances) HeldBack(command, e *history.Event) bool {
	return slices.ContainsFunc(h.spells, func(s Spell) bool {
		done := command.At + s.beyond
		return s.beyond > 0 && !s.hangs && s.Party == history.BMCEnd(e.Host) && s.begin <= command.At && command.At < s.end && e.At >= done && e.At-done < h.grace
	})
}

// Misled reports whether the clock of an actor is wrong at a moment.
func (h *Hindrances) Misled(actor string, at time.Duration) bool {
	return slices.ContainsFunc(h.spells, func(s Spell) bool {
		return history.IsAClock(s.Name) && s.of(actor) && s.begin <= at && at < s.end
	})
}

// over reports whether what a spell held up may have arrived by e: one request under way excuses
// no other.
func (s *Spell) over(e *history.Event, grace time.Duration) bool {
	return s.Name != "" && !strings.HasPrefix(s.Name, history.AWait) || s.end <= e.At+grace
}

// of reports whether a spell concerns an actor: its own, its host's, or everybody's.
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

// link reports whether a spell concerns one link.
func (s *Spell) link() bool { return strings.HasPrefix(s.Name, history.ALink) }

// network reports whether a spell concerns all links of a host.
func (s *Spell) network() bool { return s.Name == history.LinkOf("", "") }

// on reports whether a spell concerns a host, an agent on it, or all of the lab. An API server
// that refuses requests doesn't count: it makes no host stand still.
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
