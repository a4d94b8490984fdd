package file

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// Vocabulary is the names that a scenario can use beyond those of this package:
// the controllers, and what they and the BMCs understand. main puts it together.
type Vocabulary struct {
	Controllers map[string]ControllerVocabulary
	// Kinds are the kinds of objects of the API server.
	Kinds scenarios.Kinds
	// Fault returns a pointer to a new rule of a BMC fault. If it has a method
	// Validate() error, that is asked too. A rule that has a field name gets
	// the name of its fault there.
	Fault func() any
	// CheckPatch says what is wrong with a merge patch of an object of a kind; it
	// may be nil.
	CheckPatch func(kind string, merge json.RawMessage) error
	// CheckField says what is wrong with the JSONPath of a field of objects of a kind; it
	// may be nil.
	CheckField func(kind, path string) error
	// CheckFault says what is wrong with a rule of the BMC of one of the hosts, and
	// DoubtFault what is only odd; both may be nil.
	CheckFault func(rule any, host string, hosts []string) error
	DoubtFault func(rule any) []string
	// PowerRestores are a BMC's possible reactions to the return of AC power; it may be nil.
	PowerRestores []string
	// Worlds are the known worlds, nil if unknown, and Needs finds the demands of a plan on one.
	Worlds []scenarios.Capabilities
	Needs  scenarios.Needs
	// Strategies has the strategies of searches by name; nil if unknown.
	Strategies map[string]Strategy
	// Judged returns the times by which guarantees judge a story; it may be nil.
	Judged func(*scenarios.Spec) any
	// Requests describes the requests of modules, by their kinds: stories need not repeat them.
	Requests map[string]scenarios.Request
	// Values are the values of events that have a closed set of them.
	Values map[history.Kind][]string
	// Annotations are set by controllers. CheckAnnotation reports an odd value of one, and
	// CheckHeeded one that no controller of fencelab's acts on, though it is of a domain whose
	// annotations are acted on. All may be nil.
	Annotations     []string
	CheckAnnotation func(key, value string) error
	CheckHeeded     func(key string) error
}

// Strategy says of a strategy whether it ends by itself without a number of schedules, whether it
// combines deviations, so that a depth means something, and whether it learns.
type Strategy struct{ Ends, Combines, Learns bool }

// ControllerVocabulary holds the words that scenarios may use about one controller.
type ControllerVocabulary struct {
	// Settings returns a pointer to a new settings struct that holds the
	// defaults; nil when there is nothing to set. If it has a method
	// Validate() error, that is asked too, and so is Hosts() for a field of them that names hosts.
	Settings func() any
	// Facts and Actions are the names that an overlay's when and then can use. Without actions the
	// controller takes no overlay.
	Facts, Actions []string
	// CheckRule says what is wrong with an overlay rule whose names are right,
	// such as the value of a fact; it may be nil.
	CheckRule func(scenarios.Rule) error
	// Kinds are the kinds of objects in the controller's cache; nil if unknown.
	Kinds []string
	// EveryHost says that a process of it runs on each host.
	EveryHost bool
	// Plays is the part by which the guarantees judge the controller; empty for those
	// that they know by name, and for none.
	Plays string
	// Brought says that a module has brought it.
	Brought bool
	// StandIn says that the controller takes part without being listed.
	StandIn bool
	// ForVolumes says that it takes part only where the workload has a volume.
	ForVolumes bool
}

// controller has the words about a controller by its name in a story, which may have several.
func (v *Vocabulary) controller(name string) ControllerVocabulary {
	if c, exact := v.Controllers[name]; exact {
		return c
	}
	return v.Controllers[history.ControllerOf(name)]
}

// objectPattern matches the names of objects whose kinds satisfy has.
func (v *Vocabulary) objectPattern(has func(*scenarios.Kind) bool) string {
	name := strings.Trim(dnsLabelPattern, "^$")
	various, single := v.Kinds.Names(func(k *scenarios.Kind) bool { return has(k) && k.Named != scenarios.AfterCluster }), v.Kinds.Names(func(k *scenarios.Kind) bool { return has(k) && k.Named == scenarios.AfterCluster })
	all := []string{fmt.Sprintf("(%s)/%s", strings.Join(various, "|"), name)}
	for _, kind := range single {
		all = append(all, kind+"/"+scenarios.ClusterName)
	}
	return "^(" + strings.Join(all, "|") + ")$"
}

// worlds returns the names of the known worlds, nil if unknown.
func (v *Vocabulary) worlds() []string {
	var names []string
	for _, world := range v.Worlds {
		names = append(names, world.World)
	}
	return names
}
