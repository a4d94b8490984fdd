// Package leads compares what controllers did in a run with what a reference did in the same
// schedule of the same story: a second opinion that needs no guarantee. A difference is a lead for
// whoever reads it, and no verdict.
package leads

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// Side is one of the two runs.
type Side struct {
	Events []history.Event
	// Tested reports whether an actor is a process under test. What others do is no deed.
	Tested func(actor string) bool
	// Host, unless it is nil, returns the name that the other side has for a host, and Pace, unless
	// it is 0, says how many times as long everything takes.
	Host func(string) string
	Pace time.Duration
}

// How is the way in which a run differs from the reference.
type How string

// The ways, the strangest first: a deed that the reference never does, one that only the reference
// does, and a state that lasts until the run ends in one of the two; then how often, how long and
// how soon.
const (
	Only    How = "only"
	Never   How = "never"
	Stays   How = "stays"
	Ends    How = "ends"
	More    How = "more"
	Fewer   How = "fewer"
	Longer  How = "longer"
	Shorter How = "shorter"
	Later   How = "later"
	Earlier How = "earlier"
	// Unlike is a story whose retelling has another verdict.
	Unlike How = "unlike"
)

var strangest = []How{Unlike, Only, Never, Stays, Ends, More, Fewer, Longer, Shorter, Later, Earlier}

// Lead is one difference: what was done or was the case, to which host, and what it was in either
// run. Event is the number of the first event of the run that shows it; 0 if none does.
type Lead struct {
	How        How
	Deed, Host string
	// Told says what was changed in the retelling that the run was compared with, if it was one.
	Told            string
	Mine, Reference string
	Event           int
	// shift is by how much later the deed was done, of one that is.
	shift time.Duration
}

// Name is that by which a lead is accepted.
func (l *Lead) Name() string {
	name := string(l.How) + " " + l.Deed
	if l.Told != "" {
		name += ", " + l.Told
	}
	return name
}

// Recurs reports whether it is about writes or errors, which come as often as their author likes.
func (l *Lead) Recurs() bool {
	return strings.HasPrefix(l.Deed, "change ") || strings.HasPrefix(l.Deed, "controller-")
}

const (
	// Less than apart is no difference of times, and neither is less than twice as long.
	apart = 5 * time.Second
	// few is how many times more often a deed has to be done. Writes and errors recur with a
	// controller's own way of working: of those it takes manyTimes as many, and many more.
	few, many, manyTimes = 2, 6, 3
)

// thing is a deed, or a state, of a host.
type thing struct {
	deed, host string
	state      bool
}

// amount is how often a deed was done, or how long a state lasted in all. Begun is when it was done
// first or began last, after the operation of the story with that number.
type amount struct {
	times     int
	lasted    time.Duration
	open      bool
	at, begun time.Duration
	op        int
	event     int
	recurs    bool
}

// states of a host, its Node or its Machine last for a while.
var states = []struct {
	name       string
	begin, end []history.Kind
}{
	{"host off", []history.Kind{history.PowerOff}, []history.Kind{history.PowerOn}},
	{"Node away", []history.Kind{history.NodeDeleted}, []history.Kind{history.NodeCreated}},
	{"Node not Ready", []history.Kind{history.NodeNotReady}, []history.Kind{history.NodeReady, history.NodeDeleted}},
	{"Node cordoned", []history.Kind{history.NodeCordoned}, []history.Kind{history.NodeUncordoned, history.NodeDeleted}},
	{"Machine in deletion", []history.Kind{history.MachineDeleting}, []history.Kind{history.MachineDeleted}},
	{"boot to be fenced", []history.Kind{history.FenceRequested}, []history.Kind{history.FenceEnded}},
}

// Compare returns what differs, in the order of hosts and deeds.
func Compare(mine, reference Side) []Lead {
	a, b := sum(mine), sum(reference)
	things := slices.Collect(maps.Keys(a)) // order does not matter: sorted below
	for t := range b {                     // order does not matter: sorted below
		if a[t] == nil {
			things = append(things, t)
		}
	}
	slices.SortFunc(things, func(x, y thing) int { return cmp.Or(cmp.Compare(x.deed, y.deed), cmp.Compare(x.host, y.host)) })
	var all []Lead
	for _, t := range things {
		if l, differs := compare(t, cmp.Or(a[t], &amount{}), cmp.Or(b[t], &amount{})); differs {
			l.Deed, l.Host = t.deed, t.host
			all = append(all, l)
		}
	}
	return firstShifts(all)
}

// firstShifts leaves out, of each host, the deeds that are later or earlier because one before them
// is.
func firstShifts(all []Lead) []Lead {
	var shifted []*Lead
	for i := range all {
		if l := &all[i]; l.shift != 0 {
			shifted = append(shifted, l)
		}
	}
	slices.SortStableFunc(shifted, func(x, y *Lead) int { return cmp.Compare(x.Event, y.Event) })
	last := make(map[string]time.Duration)
	for _, l := range shifted {
		if d := l.shift - last[l.Host]; max(d, -d) >= apart {
			last[l.Host] = l.shift
			l.shift = 0
		}
	}
	return slices.DeleteFunc(all, func(l Lead) bool { return l.shift != 0 })
}

func compare(t thing, a, b *amount) (l Lead, differs bool) {
	l.Event = a.event
	if t.state {
		l.Mine, l.Reference = a.length(), b.length()
		switch {
		case a.open != b.open:
			l.How = map[bool]How{true: Stays, false: Ends}[a.open]
		case a.times > 0 && b.times > 0 && !a.open && farApart(a.lasted, b.lasted):
			l.How = map[bool]How{true: Longer, false: Shorter}[a.lasted > b.lasted]
		}
		return l, l.How != ""
	}
	l.Mine, l.Reference = a.count(), b.count()
	least, times := few, 2
	if a.recurs || b.recurs {
		least, times = many, manyTimes
	}
	switch {
	case b.times == 0:
		l.How = Only
	case a.times == 0:
		l.How = Never
	case a.times >= times*b.times && a.times-b.times >= least:
		l.How = More
	case b.times >= times*a.times && b.times-a.times >= least:
		l.How = Fewer
	case a.recurs || a.op != b.op && max(a.at, b.at)-min(a.at, b.at) < apart || a.op == b.op && !farApart(a.begun, b.begun):
	default:
		l.How, l.Mine, l.Reference = Later, "after "+invariant.Seconds(a.begun), "after "+invariant.Seconds(b.begun)
		if a.op < b.op || a.op == b.op && a.begun < b.begun {
			l.How = Earlier
		}
		if l.shift = a.begun - b.begun; a.op != b.op {
			l.shift = a.at - b.at
		}
	}
	return l, l.How != ""
}

// farApart reports whether one time is more than twice as long as another, and longer for certain.
func farApart(a, b time.Duration) bool {
	longer, shorter := max(a, b), min(a, b)
	return longer-shorter >= apart && longer > 2*shorter
}

func (a *amount) count() string {
	switch a.times {
	case 0:
		return "never"
	case 1:
		return "once"
	}
	return fmt.Sprintf("%d times", a.times)
}

func (a *amount) length() string {
	switch {
	case a.times == 0:
		return "never"
	case a.open:
		return "until the end"
	}
	return "for " + invariant.Seconds(a.lasted)
}

// sum adds up what happened in the story of a run.
func sum(s Side) map[thing]*amount {
	all := make(map[thing]*amount)
	of := func(t thing) *amount {
		if s.Host != nil {
			t.host = s.Host(t.host)
		}
		if all[t] == nil {
			all[t] = &amount{}
		}
		return all[t]
	}
	begun, op, since := false, 0, time.Duration(0)
	for i := range s.Events {
		e := &s.Events[i]
		at := e.At / max(s.Pace, 1)
		switch {
		case e.Kind == history.RunStarted:
			begun = true
		case e.Kind == history.OpApplied:
			op, since = op+1, at
		}
		if !begun {
			continue
		}
		if deed, host, recurs := deedOf(e); deed != "" && s.Tested(e.Actor) {
			a := of(thing{deed: deed, host: host})
			if a.times == 0 {
				a.at, a.begun, a.op, a.event = at, at-since, op, e.Seq
			}
			a.times++
			a.recurs = recurs
		}
		for _, c := range changes(e) {
			a := of(thing{deed: c.state, host: e.Host, state: true})
			switch {
			case c.begins && !a.open:
				a.times, a.open, a.at = a.times+1, true, at
				if a.event == 0 {
					a.event = e.Seq
				}
			case !c.begins && a.open:
				a.open, a.lasted = false, a.lasted+at-a.at
			}
		}
	}
	return all
}

// change is the beginning or the end of a state.
type change struct {
	state  string
	begins bool
}

func changes(e *history.Event) (all []change) {
	for i := range states {
		switch s := &states[i]; {
		case slices.Contains(s.begin, e.Kind):
			all = append(all, change{s.name, true})
		case slices.Contains(s.end, e.Kind):
			all = append(all, change{s.name, false})
		}
	}
	if e.Kind == history.AnnotationSet || e.Kind == history.AnnotationRemoved {
		kind, _, _ := strings.Cut(e.Object, "/")
		all = append(all, change{e.Key + " on a " + kind, e.Kind == history.AnnotationSet})
	}
	return all
}

// evident kinds of objects have events of their own for their creation and deletion.
var evident = []string{"Node", "Machine", "BareMetalHost", "NodeFence"}

// deedOf names what an event shows that its actor has done, as a story names the event, and the
// host that it was done to. Recurs says that it is done as often as its author likes.
func deedOf(e *history.Event) (deed, host string, recurs bool) {
	switch e.Kind {
	case history.ControllerEffect:
		verb, object, _ := strings.Cut(e.Value, " ")
		if does, host, of := strings.Cut(object, " "); of && (verb == "bmc" || verb == "storage") {
			return verb + " " + does, host, false
		}
		kind, _, _ := strings.Cut(object, "/")
		switch {
		case verb == "patch" || verb == "update" || verb == "apply":
			return "change " + kind, "", true
		case slices.Contains(evident, kind):
			return "", "", false
		}
		return verb + " " + kind, "", false
	case history.ControllerError, history.ControllerWarning, history.ControllerPanicked:
		return string(e.Kind), "", true
	case history.AnnotationSet:
		deed := "annotation-set " + e.Key
		if _, reboot := invariant.RebootRequest(e); reboot && !invariant.Hard(e.Value) {
			deed += " (soft)"
		}
		return deed, e.Host, false
	case history.AnnotationRemoved, history.Stamped:
		return string(e.Kind) + " " + e.Key, e.Host, false
	case history.OnlineWanted, history.PowerReported, history.ProvisioningState, history.DeletionPhase:
		return string(e.Kind) + " " + e.Value, e.Host, false
	case history.PowerOn, history.PowerOff, history.BootEnded, history.WatchdogFired:
		return string(e.Kind), e.Host, false
	}
	note := e.IsEntry() && e.Note == "" // of its own, which takes nothing
	if e.Kind.Layer() == history.API && e.Kind != history.FieldIs && !note {
		return string(e.Kind), e.Host, false
	}
	return "", "", false
}
