package steps

import (
	"slices"
	"strings"

	"github.com/fencelab/fencelab/sim/model"
)

// Object is the object of a step: an API object, or something of the world.
type Object struct {
	// Kind is an API kind, or Host, BMC, Process, Queue or Request.
	Kind string
	// Name is its name; "" stands for all objects of the kind.
	Name string
}

// Deed is the action of a step.
type Deed struct {
	Verb   string
	On     Object
	Effect bool
	// By is the deliverer, nil for a deed that is no delivery.
	By deliverer
	// Request names the request that is worked on, "" for none.
	Request string
	// Answers is the place of the agent on another host that it is done to answer, "" for none.
	Answers string
	// Node is the Node of a Host.
	Node string
	// Watched says that somebody watches Leases.
	Watched bool
	// Whole says that it touches all of the agents that take part: see Step.
	Whole bool
}

// Footprint is what a step reads and writes when nothing goes wrong with it. A resource
// is a path, and stands for all below it:
//
//	api/KIND/NAME   an object in the API server
//	watch/KIND      the order in which the watchers of a kind learn of its changes
//	process/NAME    a controller process; its parts are cache; queue, the order in which requests
//	                will be taken; workers, and which are free; memory of its reconciles; effects,
//	                and how many
//	host/NAME       a host with its kubelet
//	kubelet/NODE    what a kubelet knows of its Node and of its Pods
//	agent/HOST      an agent; its parts are life, whether it runs; published, which its answers
//	                read; step, all else that its Steps know
//	power           which hosts are on
//	watchdog/HOST   until when a watchdog waits
//	bmc/NAME        a BMC with its rules
//	storage         who has access to the volume
//
// A step that may touch either of two things has both, so the footprint is an upper bound: steps
// that it calls independent are so, and others may be, too.
type Footprint struct{ Reads, Writes []string }

// Outcome is a set of what may come of a step, and often doesn't.
type Outcome uint8

// The members of an Outcome.
const (
	// NodeWritten: a kubelet's renewal of its Lease also writes its Node.
	NodeWritten Outcome = 1 << iota
	// Answered: an agent that has asked a peer gets an answer, and goes on.
	Answered
	// Published: the Step of an agent changes what the agent's answers read.
	Published
	// Queued: a request comes into the queue, at once or for later.
	Queued
	// Freed: a reconcile ends, and a request waits for its worker.
	Freed
	// Fired: a watchdog resets its host, and doesn't wait on because it was fed.
	Fired
)

// May returns all that may come of the step beside what always does.
func (s Step) May() Outcome {
	switch agent := strings.HasPrefix(s.Place, PlaceAgent); {
	case s.Class == ClassKubelet && s.Verb == Renews && !s.Watched:
		return NodeWritten
	case s.Class == ClassWatchdog && s.Verb == model.Resets:
		return Fired
	case s.Whole || s.Class == ClassStart:
	case s.goesOn():
		return Queued | Freed
	case s.Class == ClassDeliver:
		return Queued
	case !agent:
	case s.Answers == "" && !s.asks():
		return Published
	case s.Answers == "" || !s.asks() && s.Answers != PlaceAgents:
		return Answered | Published
	}
	return 0
}

// goesOn reports whether the reconcile of a process goes on behind the step, up to its next call.
func (s Step) goesOn() bool {
	return strings.HasPrefix(s.Place, PlaceProcess) && (s.Class == ClassTimeout || s.Class.Sends() && s.Class != ClassLate)
}

// asks reports whether the step brings an agent's question to a peer.
func (s Step) asks() bool { return s.Class == ClassPeer && s.Object.Name != "" }

// Lists is the verb of a delivery that brings a cache to the present state of a kind.
const Lists = "list"

// Renews is the verb of a kubelet's renewal of its Lease, in which it also sees to its Node.
const Renews = "renew"

// The places of actors.
const (
	PlaceProcess = "process/"
	PlaceHost    = "host/"
	PlaceAgent   = "agent/"
	PlaceBMC     = "bmc/"
	PlaceStorage = "storage"
	// PlaceAgents is that of all agents.
	PlaceAgents = "agent"
)

// Footprint returns what the step reads and writes, whatever comes of it.
func (s Step) Footprint() Footprint { return s.FootprintOf(s.May()) }

// FootprintOf is Footprint if this comes of the step and nothing else. Whether it does depends on
// nothing but what that footprint has.
func (s Step) FootprintOf(came Outcome) Footprint {
	switch may := s.May(); {
	case may&NodeWritten > came&NodeWritten:
		return Footprint{Reads: []string{s.Object.path(), s.Place}, Writes: []string{s.Place, Object{"Lease", s.Object.Name}.path()}}
	case may&Fired > came&Fired:
		return Footprint{Writes: []string{"watchdog/" + s.Object.Name}}
	}
	var f Footprint
	f.actor(s, came)
	switch s.Class {
	case ClassAPI:
		f.api(s)
	case ClassLate:
		switch s.Object.Kind {
		case "BMC":
			f.bmc(s)
		case "Volume":
			f.volume()
		default:
			f.api(s)
		}
	case ClassStorage:
		f.volume()
	case ClassBMC:
		f.bmc(s)
	case ClassAnswer:
		// The client of the request goes on. Rules may be about any host.
		f.Writes = append(f.Writes, "process")
		f.hosts()
		if s.Object.Kind == "Volume" {
			f.volume()
		}
	case ClassStart:
		f.Reads = append(f.Reads, "api")
		f.Writes = append(f.Writes, s.Place)
	case ClassDeliver:
		if s.Verb == Lists {
			f.Reads = append(f.Reads, s.Object.path())
		}
	case ClassLease:
		f.write(s.Object)
	case ClassPeer:
		switch asked := PlaceAgent + s.Object.Name; {
		case !s.asks():
		case s.Whole:
			f.Writes = append(f.Writes, asked)
		default:
			f.Reads = append(f.Reads, asked+agentLife, asked+agentPublished)
		}
	case ClassKubelet:
		f.Reads = append(f.Reads, "api/Pod", "api/VolumeAttachment")
		f.write(s.Object)
		f.write(Object{"Lease", s.Object.Name})
	case ClassWorkload:
		if s.Object.Kind == "Volume" {
			f.volume()
			f.write(Object{Kind: "Pod"})
			break
		}
		f.write(s.Object)
	case ClassPower, ClassBoot, ClassWatchdog:
		if s.Class == ClassWatchdog && s.Verb != model.Resets {
			f.Writes = append(f.Writes, "watchdog/"+s.Object.Name) // its own agent feeds it
			break
		}
		// BMCs watch the power of hosts; cables may be mixed up. What runs on a host ends with it.
		f.Writes = append(f.Writes, PlaceHost+s.Object.Name, PlaceAgent+s.Object.Name, under("kubelet", s.Node), "watchdog/"+s.Object.Name, "power", "bmc")
	}
	return f
}

// actor adds the actor, which goes on after the step: a reconcile runs until its next call; a host
// runs its kubelet. An agent goes on with its Step, but behind a question to a peer only if that
// answers at once. An answer of its own touches nothing of that (see controllers.Answerer), but
// ends with the agent, counts among its effects, and lets whoever has asked go on with the last
// step of it.
func (f *Footprint) actor(s Step, came Outcome) {
	late := s.May()&Answered != 0 && came&Answered == 0
	switch agent := strings.HasPrefix(s.Place, PlaceAgent); {
	case !s.Whole && strings.HasPrefix(s.Place, PlaceProcess):
		f.process(s, came)
	case !agent || s.Whole:
		f.Writes = append(f.Writes, s.Place)
	case s.Answers != "":
		f.Reads = append(f.Reads, s.Place+agentLife, s.Place+agentPublished)
		if s.Effect {
			f.Writes = append(f.Writes, s.Place+agentStep)
		}
	case !late:
		f.goesOn(s.Place, came)
	}
	if s.Answers != "" && !late {
		f.goesOn(s.Answers, came)
	}
}

// process adds the parts of a process that a step of it touches.
func (f *Footprint) process(s Step, came Outcome) {
	memory := s.Place + "/memory"
	if s.Apart && s.goesOn() {
		memory = under(memory, s.Request)
	}
	switch {
	case s.Class == ClassTimer:
		f.Writes = append(f.Writes, s.Place+"/queue")
	case s.Class == ClassWork:
		f.Reads, f.Writes = append(f.Reads, s.Place+"/cache"), append(f.Writes, s.Place+"/queue", s.Place+"/workers")
		if !s.Apart { // else what it begins has a memory of its own
			f.Writes = append(f.Writes, memory)
		}
	case s.goesOn():
		f.Reads, f.Writes = append(f.Reads, s.Place+"/cache"), append(f.Writes, memory)
		if s.Effect {
			f.Writes = append(f.Writes, s.Place+"/effects")
		}
	case s.Class == ClassDeliver:
		f.Writes = append(f.Writes, s.Place+"/cache")
	default:
		f.Writes = append(f.Writes, s.Place)
	}
	if came&Queued != 0 {
		f.Writes = append(f.Writes, s.Place+"/queue")
	}
	if came&Freed != 0 {
		f.Writes = append(f.Writes, s.Place+"/workers")
	}
}

// goesOn adds an agent that goes on with its Step. [PlaceAgents] stands for all of them: one answer
// may lead to the next.
func (f *Footprint) goesOn(place string, came Outcome) {
	if !strings.HasPrefix(place, PlaceAgent) {
		f.Writes = append(f.Writes, place)
		return
	}
	f.Writes = append(f.Writes, place+agentStep)
	if came&Published != 0 {
		f.Writes = append(f.Writes, place+agentPublished)
	}
}

// The parts of an agent.
const (
	agentLife      = "/life"
	agentPublished = "/published"
	agentStep      = "/step"
)

// hosts adds a change of the power of any host.
func (f *Footprint) hosts() {
	f.Writes = append(f.Writes, "host", "kubelet", PlaceAgents, "watchdog", "power")
}

func (f *Footprint) api(s Step) {
	if !s.Effect {
		f.Reads = append(f.Reads, s.Object.path())
		return
	}
	f.write(s.Object)
	if s.Verb == "evict" {
		f.write(Object{Kind: "PodDisruptionBudget"}) // it may now allow one eviction less
	}
}

// bmc adds a request to a BMC, whose cables may lead to any host.
func (f *Footprint) bmc(s Step) {
	f.Writes = append(f.Writes, PlaceBMC+s.Object.Name)
	if s.Effect {
		f.hosts()
	} else {
		f.Reads = append(f.Reads, "power")
	}
}

// volume adds a change of who has access to the volume, upon which others write to it.
func (f *Footprint) volume() { f.Writes = append(f.Writes, PlaceStorage, "host", "kubelet") }

// write adds a write to the API server.
func (f *Footprint) write(o Object) {
	f.Writes = append(f.Writes, o.path(), "watch/"+o.Kind)
	switch o.Kind { // kubelets watch these kinds
	case "Node":
		f.Writes = append(f.Writes, under("kubelet", o.Name))
	case "Pod", "PodDisruptionBudget":
		f.Writes = append(f.Writes, "kubelet")
	}
}

func (o Object) path() string { return under("api/"+o.Kind, o.Name) }

// under is the resource of that name below another one; without a name it is all of that.
func under(all, name string) string {
	if name == "" {
		return all
	}
	return all + "/" + name
}

// Independent reports whether the two steps can be taken in either order with the same resulting
// state, if both are possible.
func (s Step) Independent(of Step) bool { return !s.Footprint().Meets(of.Footprint()) }

// MayBeIndependent is Independent for steps of which nothing comes that needn't.
func (s Step) MayBeIndependent(of Step) bool { return !s.FootprintOf(0).Meets(of.FootprintOf(0)) }

// Meets reports whether one of two steps with these footprints writes what the other reads or
// writes.
func (f Footprint) Meets(of Footprint) bool {
	return overlap(f.Writes, of.Writes) || overlap(f.Writes, of.Reads) || overlap(f.Reads, of.Writes)
}

// Changes reports whether a step with this footprint writes what another one reads.
func (f Footprint) Changes(other Footprint) bool { return overlap(f.Writes, other.Reads) }

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(x string) bool {
		return slices.ContainsFunc(b, func(y string) bool { return Overlap(x, y) })
	})
}

// Overlap reports whether two resources are the same, or one is a part of the other.
func Overlap(x, y string) bool { return x == y || below(x, y) || below(y, x) }

// below reports whether a resource is a part of another.
func below(part, whole string) bool {
	return len(part) > len(whole) && part[len(whole)] == '/' && strings.HasPrefix(part, whole)
}
