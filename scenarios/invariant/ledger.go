package invariant

import (
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Harm is something that a process under test took from somebody.
type Harm struct {
	Event history.Event
	// What it is in a few words, and Judge the guarantee that looks at such a thing.
	What, Judge string
	// By are the guarantees that have ruled on it, empty if none has; Because is the number of
	// the event that allows it, by the first of them, or 0.
	By      []string
	Because int
	// NoPart says that its author plays no part in the story.
	NoPart bool
}

// harms is what can be taken from somebody, in the order in which it is looked for: from
// which events it shows, and which guarantee looks at it. An event shows one harm at most.
var harms = []struct {
	what  string
	shows func(*history.Event) bool
	judge *Invariant
}{
	{"a host was powered off", kindIs(history.PowerOff), &noFalseFence},
	{"a Node was deleted", kindIs(history.NodeDeleted), &fencedBeforeRelease},
	{"a Node was cordoned", kindIs(history.NodeCordoned), &bystandersSpared},
	{"a Pod was evicted", kindIs(history.PodTerminating), &bystandersSpared},
	{"a Pod was ended", kindIs(history.PodDeleted), &fencedBeforeRelease},
	{"a host was given away", func(e *history.Event) bool { return e.Kind == history.HostConsumer && e.Value == "" }, &bystandersSpared},
	{"a host was not wanted any more", func(e *history.Event) bool { return e.Kind == history.OnlineWanted && e.Value == "false" }, &bystandersSpared},
	{"a Machine was deleted", kindIs(history.MachineDeleted), &bystandersSpared},
	{"a BareMetalHost was deleted", kindIs(history.BareMetalHostDeleted), &bystandersSpared},
	{"a Machine was marked for remediation", func(e *history.Event) bool {
		return e.Kind == history.AnnotationSet && e.Key == externalAnnotation
	}, &noFalseFence},
	{"a boot was to be fenced", kindIs(history.FenceRequested), &noFalseFence},
	{"a fencing was called over", kindIs(history.FenceEnded), &safeTimeKept},
	{"a mark or a request was taken away", func(e *history.Event) bool {
		_, reboot := rebootRequest(e)
		return e.Kind == history.AnnotationRemoved && (reboot || e.Key == externalAnnotation)
	}, &ownAnnotationsOnly},
	{"a cordon was taken away", kindIs(history.NodeUncordoned), &ownAnnotationsOnly},
	{"a hook or a pause was taken away", func(e *history.Event) bool { return e.Kind == history.AnnotationRemoved && keepsOff(e) }, &ownAnnotationsOnly},
}

func kindIs(kind history.Kind) func(*history.Event) bool {
	return func(e *history.Event) bool { return e.Kind == kind }
}

// ledger has every harm that a process under test did, and who has ruled on it; and whether
// there was any such process.
type ledger struct {
	roles  Roles
	resets map[string]*resets
	harms  []Harm
	// up are the processes under test that are, and still those that stand still.
	up, still map[string]bool
	// begun says that the first step was done, over that the faults were withdrawn, lasted
	// that time passed in between, and ran that a process ran then. last is when the last event
	// came.
	begun, over, lasted, ran bool
	last                     time.Duration
}

func newLedger(p Params) ledger {
	return ledger{roles: p.Roles, resets: make(map[string]*resets), up: make(map[string]bool), still: make(map[string]bool)}
}

// attend takes in which processes under test run, and for how long.
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

// idle says why the story put nobody to the test, or "".
func (l *ledger) idle() string {
	switch {
	case !l.lasted || l.ran:
		return ""
	case len(l.roles.Names()) == 0:
		return "no controller was put to the test: the scenario has none"
	}
	return "no controller was put to the test: none was up while the story was told"
}

// observe takes in an event on which all checkers have ruled that wanted to.
func (l *ledger) observe(e *history.Event, checkers []Checker, ids []string) {
	l.attend(e)
	if e.Kind.Layer() == history.World && e.Host != "" {
		r := l.resets[e.Host]
		if r == nil {
			r = &resets{}
			l.resets[e.Host] = r
		}
		if ended := r.observe(e); ended != nil && l.underTest(ended.Actor) {
			l.add(ended, "a host was reset", noFalseFence.ID, checkers, ids)
		}
	}
	if e.Actor == "" || !l.underTest(e.Actor) {
		return
	}
	for i := range harms {
		if h := &harms[i]; h.shows(e) {
			l.add(e, h.what, h.judge.ID, checkers, ids)
			return
		}
	}
}

func (l *ledger) add(e *history.Event, what, judge string, checkers []Checker, ids []string) {
	harm := Harm{Event: *e, What: what, Judge: judge, NoPart: !l.roles.tested(e.Actor)}
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
	if l.roles.tested(actor) {
		return true
	}
	for _, name := range l.roles.Others {
		if plays(actor, name) || strings.HasSuffix(actor, "."+name) {
			return true
		}
	}
	return false
}

// unjudged are the harms on which nobody has ruled.
func (l *ledger) unjudged() []Harm {
	var all []Harm
	for i := range l.harms {
		if len(l.harms[i].By) == 0 {
			all = append(all, l.harms[i])
		}
	}
	return all
}
