package invariant

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Roles are the names of the processes under test by the part that they play in seeds 000 to 004.
// A part that no process plays is empty. The guarantees hold only these responsible, and not the
// scenario, a BMC or a guest by itself, or a user.
type Roles struct {
	// Power owns the power of the hosts, and the plain reboot annotation.
	Power string
	// Remediation fences the hosts of marked Machines, with a key of its own.
	Remediation string
	// HealthCheck marks Machines.
	HealthCheck string
	// Deletion takes Machines that are deleted out of service (seed 003).
	Deletion string
	// Tenancy gives hosts to tenants, and takes them back.
	Tenancy string
	// Fencers have an agent on each host, which has it reset, or feeds its watchdog, and may
	// release the Nodes of others.
	Fencers []string
	// Others are processes under test that play no part, so that no guarantee knows what to
	// make of what they do.
	Others []string
}

// parts are what a process under test can play, each with how that is recorded. Several
// processes in one part are instances of the first, unless they are fencers.
var parts = map[string]func(*Roles, string){
	"power":       func(r *Roles, name string) { r.Power = cmp.Or(r.Power, name) },
	"remediation": func(r *Roles, name string) { r.Remediation = cmp.Or(r.Remediation, name) },
	"healthcheck": func(r *Roles, name string) { r.HealthCheck = cmp.Or(r.HealthCheck, name) },
	"deletion":    func(r *Roles, name string) { r.Deletion = cmp.Or(r.Deletion, name) },
	"tenancy":     func(r *Roles, name string) { r.Tenancy = cmp.Or(r.Tenancy, name) },
	"fencer":      func(r *Roles, name string) { r.Fencers = append(r.Fencers, name) },
}

// Parts are the names of what a process under test can play, sorted.
func Parts() []string { return slices.Sorted(maps.Keys(parts)) }

// Cast gives a part to the process of this name. A part that isn't one of Parts changes nothing.
func (r *Roles) Cast(part, name string) {
	if cast := parts[part]; cast != nil {
		cast(r, name)
	}
}

// Names are those of all processes under test.
func (r *Roles) Names() []string {
	names := slices.Concat(r.Fencers, r.Others)
	for _, name := range r.central() {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// Agent reports whether an actor is an agent of a Fencer.
func (r *Roles) Agent(actor string) bool {
	return slices.ContainsFunc(r.Fencers, func(name string) bool { return onHost(actor, name) })
}

// onHost reports whether an actor is the process of this name on some host: HOST.name.
func onHost(actor, name string) bool {
	host, ok := strings.CutSuffix(actor, name)
	return ok && strings.HasSuffix(host, ".")
}

// Powers, Remediates, Checks and Deletes report whether an actor plays that part.
func (r *Roles) Powers(actor string) bool { return Plays(actor, r.Power) }

// Remediates is like Powers.
func (r *Roles) Remediates(actor string) bool { return Plays(actor, r.Remediation) }

// Checks is like Powers.
func (r *Roles) Checks(actor string) bool { return Plays(actor, r.HealthCheck) }

// Deletes is like Powers.
func (r *Roles) Deletes(actor string) bool { return Plays(actor, r.Deletion) }

// In reports whether an actor plays the part of this name, one of Parts.
func (r *Roles) In(part, actor string) bool {
	switch part {
	case "power":
		return r.Powers(actor)
	case "remediation":
		return r.Remediates(actor)
	case "healthcheck":
		return r.Checks(actor)
	case "deletion":
		return r.Deletes(actor)
	case "tenancy":
		return Plays(actor, r.Tenancy)
	default:
		return part == "fencer" && r.Agent(actor)
	}
}

// Tested reports whether an actor is a process under test.
func (r *Roles) Tested(actor string) bool {
	central := r.central()
	return r.Agent(actor) || slices.ContainsFunc(central[:], func(name string) bool { return Plays(actor, name) })
}

// UnderTest reports whether an actor is a process of the story, whatever part it plays.
func (r *Roles) UnderTest(actor string) bool {
	return r.Tested(actor) || slices.ContainsFunc(r.Others, func(name string) bool {
		return Plays(actor, name) || onHost(actor, name)
	})
}

// central are the processes under test that run once in a cluster, or "".
func (r *Roles) central() [5]string {
	return [...]string{r.Power, r.Remediation, r.HealthCheck, r.Deletion, r.Tenancy}
}

// Blameless reports whether an event was certainly caused by no process under test. An event
// without a known actor may have been.
func (r *Roles) Blameless(e *history.Event) bool { return e.Actor != "" && !r.Tested(e.Actor) }

// CutsShort reports whether e ends a Machine by force, past the deletion that had asked its host
// for something and can't take that back any more.
func (r *Roles) CutsShort(e, asked *history.Event) bool {
	return e.Kind == history.MachineDeleted && r.Blameless(e) && e.Host == asked.Host && r.Deletes(asked.Actor)
}

// MakesEmpty reports whether a NodeCreated is of a Node that a user has made, or a controller has
// made anew: it stands for no boot before a kubelet has written to it.
func (r *Roles) MakesEmpty(e *history.Event) bool { return ByUser(e) || r.Tested(e.Actor) }

// Plays reports whether an actor is the controller of this name, or one of its processes.
func Plays(actor, name string) bool {
	return name != "" && (actor == name || history.ControllerOf(actor) == name)
}

// Same reports whether two actors are processes of one controller.
func Same(a, b string) bool { return a != "" && history.ControllerOf(a) == history.ControllerOf(b) }

// MayTouch reports whether an actor may remove or rewrite an annotation that
// setter set (seeds 000 and 001: clients touch only their own). The plain reboot
// annotation is also the power controller's, which removes every one from a host
// that is deprovisioned; and the remediation controller's are its own key, and the
// mark that it is done with (seed 002).
func (r *Roles) MayTouch(actor, setter string, e *history.Event, unmanaged bool) bool {
	if Same(actor, setter) {
		return true
	}
	keyed, reboot := RebootRequest(e)
	switch {
	case reboot && Plays(actor, r.Power):
		return e.Kind == history.AnnotationRemoved && (!keyed || unmanaged)
	case r.Agent(actor):
		return e.Key == ExternalAnnotation
	case Plays(actor, r.Remediation):
		return e.Key == RemediationAnnotation || e.Key == ExternalAnnotation
	}
	return false
}

// PlacedOn are annotations as they stand, by object and key, with the event that
// set each first and the value that it has.
type PlacedOn map[[2]string]standing

type standing struct {
	Set   history.Event
	Value string
}

// Observe takes in an annotation event and returns what stood before.
func (p PlacedOn) Observe(e *history.Event) (before standing, had bool) {
	at := [2]string{e.Object, e.Key}
	before, had = p[at]
	switch {
	case e.Kind == history.AnnotationRemoved:
		delete(p, at)
	case had:
		p[at] = standing{before.Set, e.Value}
	default:
		p[at] = standing{*e, e.Value}
	}
	return before, had
}
