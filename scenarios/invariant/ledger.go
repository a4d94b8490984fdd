package invariant

import (
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Harm is something that a process under test took from somebody.
type Harm struct {
	Event history.Event
	// What describes it in a few words, and Judge is the guarantee that judges such harms.
	What, Judge string
	// By are the guarantees that have ruled on it, empty if none has; Because is the number of
	// the event that allows it, by the first of them, or 0.
	By      []string
	Because int
	// NoPart says that its author plays no part in the story, and Unlisted that no row of the table
	// of writes has it, so that no guarantee is known to look at it.
	NoPart, Unlisted bool
}

// HarmKind is a kind of harm: the events that show it, of one kind and those of it that Of picks,
// or all, and the guarantee that judges it.
type HarmKind struct {
	What  string
	Kind  history.Kind
	Of    func(*history.Event) bool
	Judge string
}

// HarmKinds lists all kinds, in the order in which they are looked for. An event shows one at
// most.
var HarmKinds = []HarmKind{
	{"a host was powered off", history.PowerOff, nil, "no-false-fence"},
	{"the API server's quorum was ended", history.QuorumLost, nil, "no-false-fence"},
	{"a host was powered on", history.PowerOn, nil, "online-respected"},
	{"a Node was deleted", history.NodeDeleted, nil, "fenced-before-release"},
	{"a Node was to be deleted", history.NodeDeleting, nil, "fenced-before-release"},
	{"a Node was called out of service", history.NodeOutOfService, nil, "released-only-when-over"},
	{"a Node was called in service again", history.NodeInService, nil, "own-annotations-only"},
	{"a volume was to be detached", history.DetachAsked, nil, "released-only-when-over"},
	{"a host was to be kept out of the storage", history.StorageFenceAsked, nil, "bystanders-spared"},
	{"a host was to be let in to the storage again", history.StorageUnfenceAsked, nil, "released-only-when-over"},
	{"a Node was cordoned", history.NodeCordoned, nil, "bystanders-spared"},
	{"a Pod was evicted", history.PodTerminating, nil, "bystanders-spared"},
	{"a Pod was ended", history.PodDeleted, nil, "fenced-before-release"},
	{"a host was given away", history.HostConsumer, nil, "bystanders-spared"},
	{"a host was deprovisioned", history.ProvisioningState, nil, "bystanders-spared"},
	{"a field of its user was changed", history.SpecChanged, nil, "bystanders-spared"},
	{"a host was wanted on", history.OnlineWanted, func(e *history.Event) bool { return e.Value == "true" }, "online-respected"},
	{"a tenant's host was given back", history.HostReleased, nil, "fenced-before-release"},
	{"a host was not wanted any more", history.OnlineWanted, func(e *history.Event) bool { return e.Value == "false" }, "bystanders-spared"},
	{"a Machine was to be deleted", history.MachineDeleting, nil, "bystanders-spared"},
	{"a Machine was deleted", history.MachineDeleted, nil, "bystanders-spared"},
	{"a BareMetalHost was deleted", history.BareMetalHostDeleted, nil, "bystanders-spared"},
	{"a Machine was marked for remediation", history.AnnotationSet, aboutMark, "no-false-fence"},
	{"a host was asked to go off", history.AnnotationSet, asksOff, "bystanders-spared"},
	{"a boot was to be fenced", history.FenceRequested, nil, "no-false-fence"},
	{"a fencing was called over", history.FenceEnded, nil, "safe-time-kept"},
	{"a mark or a request was taken away", history.AnnotationRemoved, func(e *history.Event) bool { return aboutMark(e) || asksOff(e) }, "own-annotations-only"},
	{"a cordon was taken away", history.NodeUncordoned, nil, "own-annotations-only"},
	{"a finalizer was taken away", history.FinalizerRemoved, nil, "own-annotations-only"},
	{"a hook or a pause was taken away", history.AnnotationRemoved, KeepsOff, "own-annotations-only"},
}

func aboutMark(e *history.Event) bool { return e.Key == ExternalAnnotation }

func asksOff(e *history.Event) bool {
	_, reboot := RebootRequest(e)
	return reboot
}

// Shows reports whether an event shows such a harm.
func (h *HarmKind) Shows(e *history.Event) bool { return h.Kind == e.Kind && (h.Of == nil || h.Of(e)) }

// harmKinds has the kinds of harm by the kind of event that shows them.
var harmKinds = func() map[history.Kind][]*HarmKind {
	all := make(map[history.Kind][]*HarmKind)
	for i := range HarmKinds {
		h := &HarmKinds[i]
		all[h.Kind] = append(all[h.Kind], h)
	}
	return all
}()

// ledger records every harm done by a process under test, with the guarantees that ruled on it,
// and whether there was any such process.
type ledger struct {
	roles Roles
	// kinds names the kinds of the world's own objects.
	kinds  []string
	resets map[string]*Resets
	harms  []Harm
	// up holds the processes under test that are up, and still those that stand still.
	up, still map[string]bool
	// begun: the first step was done. over: the faults were withdrawn. lasted: time passed between
	// the two. ran: a process under test ran then.
	begun, over, lasted, ran bool
	// last is the time of the last event.
	last time.Duration
}

func newLedger(p Params) ledger {
	return ledger{roles: p.Roles, kinds: p.Timings.Kinds, resets: make(map[string]*Resets), up: make(map[string]bool), still: make(map[string]bool)}
}

// attend notes which processes under test run, and for how long.
func (l *ledger) attend(e *history.Event) {
	if l.begun && !l.over && e.At > l.last {
		l.lasted = true
		l.ran = l.ran || len(l.up) > len(l.still)
	}
	l.last = e.At
	switch e.Kind {
	case history.ControllerStarted:
		if l.roles.UnderTest(e.Actor) {
			l.up[e.Actor] = true
		}
	case history.ControllerCrashed:
		delete(l.up, e.Actor)
		delete(l.still, e.Actor)
	case history.OpApplied:
		l.begun, l.over = true, false // a story may withdraw faults in its midst
	case history.Healed:
		l.over = true
	}
	if h := e.Hinders; h != nil && h.Name != "" && h.Decided {
		if name, ok := strings.CutPrefix(h.Party, history.ControllerEnd("")); ok && l.up[name] {
			l.still[name] = true
		}
	}
	if len(e.Frees) > 0 { // whatever it frees: whoever is taken to run may have been idle, and no more than that
		clear(l.still)
	}
}

// idle explains why the story put no process to the test, or returns "".
func (l *ledger) idle() string {
	switch {
	case !l.lasted || l.ran:
		return ""
	case len(l.roles.Names()) == 0:
		return "no controller was put to the test: the scenario has none"
	}
	return "no controller was put to the test: none was up while the story was told"
}

// observe records an event after all checkers have had the chance to rule on it.
func (l *ledger) observe(e *history.Event, checkers []Checker, ids []string) {
	l.attend(e)
	if e.Kind.Layer() == history.World && e.Host != "" {
		r := l.resets[e.Host]
		if r == nil {
			r = &Resets{}
			l.resets[e.Host] = r
		}
		if ended := r.Observe(e); ended != nil && l.roles.UnderTest(ended.Actor) {
			l.add(ended, "a host was reset", "no-false-fence", checkers, ids)
		}
	}
	if e.Actor == "" || !l.roles.UnderTest(e.Actor) {
		return
	}
	for _, h := range harmKinds[e.Kind] {
		if h.Shows(e) {
			l.add(e, h.What, h.Judge, checkers, ids)
			return
		}
	}
	if l.roles.Tested(e.Actor) && l.unlisted(e) {
		l.harms = append(l.harms, Harm{Event: *e, What: "something was done that no row of the table of writes has", Unlisted: true})
	}
}

func (l *ledger) add(e *history.Event, what, judge string, checkers []Checker, ids []string) {
	harm := Harm{Event: *e, What: what, Judge: judge, NoPart: !l.roles.Tested(e.Actor)}
	for i, c := range checkers {
		if c == nil {
			continue // it sleeps
		}
		because, ok := c.RuledOn(e)
		if !ok {
			continue
		}
		if len(harm.By) == 0 {
			harm.Because = because.Seq
		}
		harm.By = append(harm.By, ids[i])
	}
	l.harms = append(l.harms, harm)
}

// unjudged returns the harms on which no guarantee has ruled.
func (l *ledger) unjudged() []Harm {
	var all []Harm
	for i := range l.harms {
		if len(l.harms[i].By) == 0 {
			all = append(all, l.harms[i])
		}
	}
	return all
}
