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
}

// Footprint is what a step reads and writes when nothing goes wrong with it. A resource
// is a path, and stands for all below it:
//
//	api/KIND/NAME   an object in the API server
//	watch/KIND      the order in which the watchers of a kind learn of its changes
//	process/NAME    a controller process: its caches, its queue and its reconciles
//	host/NAME       a host with its kubelet
//	kubelet/NODE    what a kubelet knows of its Node and of its Pods
//	agent/HOST      an agent, and the watchdog that it feeds
//	power           which hosts are on
//	bmc/NAME        a BMC with its rules
//	storage         who has access to the volume
//
// A step that may touch either of two things has both, so the footprint is an upper bound: steps
// that it calls independent are so, and others may be, too.
type Footprint struct{ Reads, Writes []string }

// Lists is the verb of a delivery that brings a cache to the present state of a kind.
const Lists = "list"

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

// Footprint returns what the step reads and writes.
func (s Step) Footprint() Footprint {
	// The actor of a step goes on after it: a reconcile runs until its next call, with the caches
	// and the queue of its process; a host runs its kubelet.
	f := Footprint{Writes: []string{s.Place}}
	if s.Answers != "" { // who has asked then goes on
		f.Writes = append(f.Writes, s.Answers)
	}
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
	case ClassDeliver:
		if s.Verb == Lists {
			f.Reads = append(f.Reads, s.Object.path())
		}
	case ClassLease:
		f.write(s.Object)
	case ClassPeer:
		if s.Object.Name != "" {
			f.Writes = append(f.Writes, PlaceAgent+s.Object.Name)
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
			break // its own agent feeds it
		}
		// BMCs watch the power of hosts; cables may be mixed up. What runs on a host ends with it.
		f.Writes = append(f.Writes, PlaceHost+s.Object.Name, PlaceAgent+s.Object.Name, "kubelet", "power", "bmc")
	}
	return f
}

// hosts adds a change of the power of any host.
func (f *Footprint) hosts() {
	f.Writes = append(f.Writes, "host", "kubelet", PlaceAgents, "power")
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
func (s Step) Independent(of Step) bool {
	a, b := s.Footprint(), of.Footprint()
	return !overlap(a.Writes, b.Writes) && !overlap(a.Writes, b.Reads) && !overlap(a.Reads, b.Writes)
}

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
