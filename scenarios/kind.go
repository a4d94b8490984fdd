package scenarios

import (
	"slices"
)

// Kind is a kind of API objects, and what scenarios do with objects of it.
type Kind struct {
	// Name is the kind's, such as BareMetalHost.
	Name string
	// Named says how its objects are named.
	Named Naming
	// Custom says that a CustomResourceDefinition defines it, so that it can be missing as
	// a whole.
	Custom bool
	// Annotated, Changed and Made say what users do to its objects: they set annotations,
	// patch and delete, and create.
	Annotated, Changed, Made bool
	// Obstacle says that users make its objects to keep controllers from their work. A story that
	// stops early takes those back that it would have deleted.
	Obstacle bool
	// Heartbeat says that its objects are written all the time, so that a write is no
	// effect that a crash could be counted by.
	Heartbeat bool
	// Fixed has the fields of its spec that nothing acts on once an object is there, each with a
	// sentence that refuses a change.
	Fixed map[string]string
	// Unmade says that the topology has none of its objects, so that who creates one gives its
	// content. A Node is its kubelet's.
	Unmade bool
}

// Naming says what the objects of a kind are called.
type Naming int

// The objects of a kind are called as their users like, like the hosts, like the hosts'
// Nodes or Machines, or, where there is only one, like the cluster. Only users make what
// they name.
const (
	Freely Naming = iota
	AfterHost
	AfterNode
	AfterMachine
	AfterCluster
)

// Kinds are the kinds of objects of an API server.
type Kinds []Kind

// Names returns the sorted names of the kinds that satisfy has.
func (all Kinds) Names(has func(*Kind) bool) []string {
	var names []string
	for i := range all {
		if k := &all[i]; has(k) {
			names = append(names, k.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Get returns the kind of a name; an unknown one has no properties.
func (all Kinds) Get(name string) Kind {
	for _, k := range all {
		if k.Name == name {
			return k
		}
	}
	return Kind{Name: name}
}

// AnyKind, IsCustom and those below select kinds by what there is to them, and by what users do
// to their objects.
func AnyKind(*Kind) bool       { return true }
func IsCustom(k *Kind) bool    { return k.Custom }
func IsAnnotated(k *Kind) bool { return k.Annotated }
func IsChanged(k *Kind) bool   { return k.Changed }
func IsMade(k *Kind) bool      { return k.Made }
func IsWritten(k *Kind) bool   { return !k.Heartbeat }
