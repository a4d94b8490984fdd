package scenarios

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is a kind of API objects, and what scenarios do with objects of it.
type Kind struct {
	// Name is the kind's, such as BareMetalHost.
	Name string
	// Named is what its objects are called.
	Named Naming
	// Custom says that a CustomResourceDefinition defines it, so that it can be missing as
	// a whole.
	Custom bool
	// Annotated, Changed and Made say what users do to its objects: they set annotations,
	// patch and delete, and create.
	Annotated, Changed, Made bool
	// Unmade says in a sentence why users don't make what they change.
	Unmade string
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

// kinds are the names of those that have something, sorted.
func (v *Vocabulary) kinds(has func(*Kind) bool) []string {
	var names []string
	for i := range v.Kinds {
		if k := &v.Kinds[i]; has(k) {
			names = append(names, k.Name)
		}
	}
	slices.Sort(names)
	return names
}

// kind is the kind of a name; an unknown one has no properties.
func (v *Vocabulary) kind(name string) Kind {
	for _, k := range v.Kinds {
		if k.Name == name {
			return k
		}
	}
	return Kind{Name: name}
}

func anyKind(*Kind) bool       { return true }
func isCustom(k *Kind) bool    { return k.Custom }
func isAnnotated(k *Kind) bool { return k.Annotated }
func isChanged(k *Kind) bool   { return k.Changed }
func isMade(k *Kind) bool      { return k.Made }

// objectPattern is what objects of the kinds that have something can be called.
func (v *Vocabulary) objectPattern(has func(*Kind) bool) string {
	name := strings.Trim(dnsLabelPattern, "^$")
	various, single := v.kinds(func(k *Kind) bool { return has(k) && k.Named != AfterCluster }), v.kinds(func(k *Kind) bool { return has(k) && k.Named == AfterCluster })
	all := []string{fmt.Sprintf("(%s)/%s", strings.Join(various, "|"), name)}
	for _, kind := range single {
		all = append(all, kind+"/"+ClusterName)
	}
	return "^(" + strings.Join(all, "|") + ")$"
}
