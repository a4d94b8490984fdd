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

// HarmKind is a kind of harm: the events that show it, and the guarantee that judges it.
type HarmKind struct {
	What  string
	Shows func(*history.Event) bool
	Judge string
}

// HarmKinds lists all kinds, in the order in which they are looked for. An event shows one at
// most.
var HarmKinds = []HarmKind{
	{"a host was powered off", kindIs(history.PowerOff), "no-false-fence"},
	{"a host was powered on", kindIs(history.PowerOn), "online-respected"},
	{"a Node was deleted", kindIs(history.NodeDeleted), "fenced-before-release"},
	{"a Node was to be deleted", kindIs(history.NodeDeleting), "fenced-before-release"},
	{"a Node was called out of service", kindIs(history.NodeOutOfService), "released-only-when-over"},
	{"a Node was called in service again", kindIs(history.NodeInService), "released-only-when-over"},
	{"a volume was to be detached", kindIs(history.DetachAsked), "released-only-when-over"},
	{"a Node was cordoned", kindIs(history.NodeCordoned), "bystanders-spared"},
	{"a Pod was evicted", kindIs(history.PodTerminating), "bystanders-spared"},
	{"a Pod was ended", kindIs(history.PodDeleted), "fenced-before-release"},
	{"a host was given away", kindIs(history.HostConsumer), "bystanders-spared"},
	{"a host was deprovisioned", kindIs(history.ProvisioningState), "bystanders-spared"},
	{"a host was wanted on", func(e *history.Event) bool { return e.Kind == history.OnlineWanted && e.Value == "true" }, "online-respected"},
	{"a tenant's host was given back", kindIs(history.HostReleased), "fenced-before-release"},
	{"a host was not wanted any more", func(e *history.Event) bool { return e.Kind == history.OnlineWanted && e.Value == "false" }, "bystanders-spared"},
	{"a Machine was to be deleted", kindIs(history.MachineDeleting), "bystanders-spared"},
	{"a Machine was deleted", kindIs(history.MachineDeleted), "bystanders-spared"},
	{"a BareMetalHost was deleted", kindIs(history.BareMetalHostDeleted), "bystanders-spared"},
	{"a Machine was marked for remediation", func(e *history.Event) bool {
		return e.Kind == history.AnnotationSet && e.Key == ExternalAnnotation
	}, "no-false-fence"},
	{"a host was asked to go off", func(e *history.Event) bool {
		_, reboot := RebootRequest(e)
		return reboot && e.Kind == history.AnnotationSet
	}, "bystanders-spared"},
	{"a boot was to be fenced", kindIs(history.FenceRequested), "no-false-fence"},
	{"a fencing was called over", kindIs(history.FenceEnded), "safe-time-kept"},
	{"a mark or a request was taken away", func(e *history.Event) bool {
		_, reboot := RebootRequest(e)
		return e.Kind == history.AnnotationRemoved && (reboot || e.Key == ExternalAnnotation)
	}, "own-annotations-only"},
	{"a cordon was taken away", kindIs(history.NodeUncordoned), "own-annotations-only"},
	{"a hook or a pause was taken away", func(e *history.Event) bool { return e.Kind == history.AnnotationRemoved && KeepsOff(e) }, "own-annotations-only"},
}

func kindIs(kind history.Kind) func(*history.Event) bool {
	return func(e *history.Event) bool { return e.Kind == kind }
}

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
	// begun says that the first step was done, over that the faults were withdrawn, lasted that
	// time passed in between, and ran that a process ran then. last is when the last event came.
	begun, over, lasted, ran bool
	last                     time.Duration
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
		if l.underTest(e.Actor) {
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
		if ended := r.Observe(e); ended != nil && l.underTest(ended.Actor) {
			l.add(ended, "a host was reset", "no-false-fence", checkers, ids)
		}
	}
	if e.Actor == "" || !l.underTest(e.Actor) {
		return
	}
	for i := range HarmKinds {
		if h := &HarmKinds[i]; h.Shows(e) {
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

// underTest reports whether an actor is a process of the story, whatever part it plays.
func (l *ledger) underTest(actor string) bool {
	if l.roles.Tested(actor) {
		return true
	}
	for _, name := range l.roles.Others {
		if Plays(actor, name) || strings.HasSuffix(actor, "."+name) {
			return true
		}
	}
	return false
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
