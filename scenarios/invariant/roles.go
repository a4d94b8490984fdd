package invariant

import (
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Roles are the names of the processes under test by the part that they play in
// seeds 000 to 004. A part that nobody plays is empty. Nobody else is blamed for
// what they did: neither the scenario, nor a BMC or a guest by itself, nor a user.
type Roles struct {
	// Power owns the power of the hosts, and the plain reboot annotation.
	Power string
	// Remediation fences the hosts of marked Machines, with a key of its own.
	Remediation string
	// HealthCheck marks Machines.
	HealthCheck string
	// Deletion takes Machines that are deleted out of service (seed 003).
	Deletion string
	// Fencers have an agent on each host, which has it reset, or feeds its watchdog, and may
	// release the Nodes of others.
	Fencers []string
	// Others are processes under test that play no part, so that no guarantee knows what to
	// make of what they do.
	Others []string
}

// Names are those of all processes under test.
func (r *Roles) Names() []string {
	names := slices.Concat(r.Fencers, r.Others)
	for _, name := range [...]string{r.Power, r.Remediation, r.HealthCheck, r.Deletion} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// agent reports whether an actor is an agent of a Fencer.
func (r *Roles) agent(actor string) bool {
	for _, name := range r.Fencers {
		if strings.HasSuffix(actor, "."+name) {
			return true
		}
	}
	return false
}

// tested reports whether an actor is a process under test.
func (r *Roles) tested(actor string) bool {
	return plays(actor, r.Power) || plays(actor, r.Remediation) || plays(actor, r.HealthCheck) || plays(actor, r.Deletion) || r.agent(actor)
}

// blameless reports whether an event is known to be the doing of nobody under
// test. One whose actor is not known may be.
func (r *Roles) blameless(e *history.Event) bool { return e.Actor != "" && !r.tested(e.Actor) }

// plays reports whether an actor is the process of this name, or one of several
// instances of it: name-2.
func plays(actor, name string) bool {
	if name == "" || actor == name {
		return name != ""
	}
	instance, ok := strings.CutPrefix(actor, name+"-")
	return ok && instance != "" && strings.Trim(instance, "0123456789") == ""
}

// same reports whether two actors are instances of one process.
func same(a, b string) bool { return a != "" && (plays(a, b) || plays(b, a)) }

// mayTouch reports whether an actor may remove or rewrite an annotation that
// setter set (seeds 000 and 001: clients touch only their own). The plain reboot
// annotation is also the power controller's, which removes every one from a host
// that is deprovisioned; and the remediation controller's are its own key, and the
// mark that it is done with (seed 002).
func (r *Roles) mayTouch(actor, setter string, e *history.Event, unmanaged bool) bool {
	if same(actor, setter) {
		return true
	}
	keyed, reboot := rebootRequest(e)
	switch {
	case reboot && plays(actor, r.Power):
		return e.Kind == history.AnnotationRemoved && (!keyed || unmanaged)
	case r.agent(actor):
		return e.Key == externalAnnotation
	case plays(actor, r.Remediation):
		return e.Key == remediationAnnotation || e.Key == externalAnnotation
	}
	return false
}

// placedOn are annotations as they stand, by object and key, with the event that
// set each first and the value that it has.
type placedOn map[[2]string]standing

type standing struct {
	set   history.Event
	value string
}

// observe takes in an annotation event and returns what stood before.
func (p placedOn) observe(e *history.Event) (before standing, had bool) {
	at := [2]string{e.Object, e.Key}
	before, had = p[at]
	switch {
	case e.Kind == history.AnnotationRemoved:
		delete(p, at)
	case had:
		p[at] = standing{before.set, e.Value}
	default:
		p[at] = standing{*e, e.Value}
	}
	return before, had
}
