package scenarios

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Feature is something that a plan can ask for and a world may lack: an operation by
// its name, an event by its kind, what a fault of a BMC needs, or one of those below.
type Feature string

// Features beside operations, events and needs.
const (
	// FeatureDeviations are a schedule's, of steps of the simulator, and FeatureDeeds those of steps that are named by what
	// is done.
	FeatureDeviations Feature = "deviations"
	FeatureDeeds      Feature = "deviations of deeds"
	// FeatureReplicas are several processes of a controller, which elect a leader.
	FeatureReplicas Feature = "replicas"
	// FeaturePrograms are executables in the place of controllers.
	FeaturePrograms Feature = "program"
	// FeaturePods are Pods that real kubelets run as controllers.
	FeaturePods Feature = "pods"
	// FeatureControllerLinks are cuts of controllers' links, to the API server and to BMCs.
	FeatureControllerLinks Feature = "controllerLinks"
	// FeatureStaleLists and FeatureLateRequests are what a crash can leave behind: old lists, and requests that are on
	// their way when it comes at once.
	FeatureStaleLists   Feature = "staleBy"
	FeatureLateRequests Feature = "lateBy"
	// FeatureIronic is an Ironic that owns the BMCs.
	FeatureIronic Feature = "ironic"
	// FeatureStops are Pods that take their time to stop.
	FeatureStops Feature = "stops"
	// FeatureBMC is somebody else's program in the place of the BMCs.
	FeatureBMC Feature = "bmc"
	// FeatureOutOfService is a cluster that acts on the taint of that name.
	FeatureOutOfService Feature = "outOfService"
	// FeatureForeignFields are those of a system's own definitions.
	FeatureForeignFields Feature = "foreign"
	// FeaturePausedWatchdog is the watchdog of a host that is paused, and goes on waiting.
	FeaturePausedWatchdog Feature = "watchdog of a paused host"
	// FeatureControllerClocks are clocks of controllers' own, FeatureClockRates clocks that run fast or slow.
	FeatureControllerClocks Feature = "controllerClocks"
	FeatureClockRates       Feature = "clockRates"
)

// Capabilities are what a world can do, as data. It can do everything that it doesn't
// lack.
type Capabilities struct {
	// World is what scenarios and the command line call it, Title what sentences do.
	World, Title string
	// Lacks says in a clause why there is no such feature.
	Lacks map[Feature]string
}

// Need is a feature that something in the rule of a fault, such as an effect, needs.
type Need struct {
	What  string
	Needs Feature
}

// Needs tell what a plan needs that the engine knows only the name of. It may be nil.
type Needs struct {
	// Fault is what the rule of a fault needs.
	Fault func(rule json.RawMessage) []Need
}

// use is a place where a plan asks for a feature.
type use struct {
	// path is the field in the file, what says it to people; part is what of it asks.
	path, what, part string
	feature          Feature
}

// because says why a world lacks the feature.
func (u *use) because(why string) string {
	if u.part != "" {
		return u.part + ": " + why
	}
	return why
}

// Refuse returns every reason why the world can't perform a plan.
func (c *Capabilities) Refuse(plan *Plan, needs Needs) []string {
	var reasons []string
	for _, u := range append(uses(&plan.Spec, needs), deviating(plan)...) {
		if why, lacks := c.Lacks[u.feature]; lacks {
			reasons = append(reasons, u.what+": "+u.because(why))
		}
	}
	return reasons
}

func deviating(plan *Plan) []use {
	var all []use
	for i, d := range plan.Deviations {
		feature := FeatureDeviations
		if NamesDeed(d.Step) {
			feature = FeatureDeeds
		}
		all = append(all, use{path: fmt.Sprintf("deviations[%d]", i), what: "deviation " + d.String(), feature: feature})
	}
	return all
}

// uses are all features that a story asks for, in the order of the file.
func uses(spec *Spec, needs Needs) []use {
	var all []use
	if spec.Topology.Ironic != nil {
		all = append(all, use{path: "spec.topology.ironic", what: "an Ironic that owns the BMCs", feature: FeatureIronic})
	}
	if spec.Topology.Workload.Stops != "" {
		all = append(all, use{path: "spec.topology.workload.stops", what: "a workload that takes its time to stop", feature: FeatureStops})
	}
	if spec.Topology.BMC != nil {
		all = append(all, use{path: "spec.topology.bmc", what: "a program in the place of the BMCs", feature: FeatureBMC})
	}
	for i, c := range spec.Controllers {
		if c.Replicas > 1 {
			what := fmt.Sprintf("%d processes of the controller %s", c.Replicas, c.Name)
			all = append(all, use{path: fmt.Sprintf("spec.controllers[%d].replicas", i), what: what, feature: FeatureReplicas})
		}
	}
	for i, c := range spec.Controllers {
		if c.Program != nil {
			what := fmt.Sprintf("the program of the controller %s", c.Name)
			all = append(all, use{path: fmt.Sprintf("spec.controllers[%d].program", i), what: what, feature: FeaturePrograms})
		}
		if c.Pods != nil {
			all = append(all, use{path: fmt.Sprintf("spec.controllers[%d].pods", i), what: "the Pods of the controller " + c.Name, feature: FeaturePods})
		}
	}
	for i := range spec.Steps {
		s := &spec.Steps[i]
		path, number := fmt.Sprintf("spec.steps[%d]", i), fmt.Sprintf("step %d: ", i+1)
		event := func(path string, t Trigger) {
			all = append(all, use{path: path + ".event", what: fmt.Sprintf("step %d", i+1), part: t.Event, feature: Feature(t.Event)})
		}
		event(path+".when", s.When)
		for j, t := range s.When.AllOf {
			event(fmt.Sprintf("%s.when.allOf[%d]", path, j), t)
		}
		if s.Do == nil {
			continue
		}
		set := s.Do.set()
		if len(set) != 1 {
			continue // which is an error in the file
		}
		o, what := set[0], number+s.Do.String()
		path = join(path+".do", o.name)
		all = append(all, use{path: path, what: what, feature: Feature(o.name)})
		for _, feature := range o.asks(s.Do, spec) {
			all = append(all, use{path: path, what: what, feature: feature})
		}
		if s.Do.AddFault != nil && needs.Fault != nil {
			for _, need := range needs.Fault(s.Do.AddFault.Rule) {
				all = append(all, use{path: path + ".rule", what: what, part: need.What, feature: need.Needs})
			}
		}
	}
	return all
}

// tellable checks that the worlds which are to tell the story can.
func (v *validator) tellable() {
	for _, u := range uses(v.spec, v.vocab.Needs) {
		var others []string
		reason := ""
		for _, world := range v.vocab.Worlds {
			why, lacks := world.Lacks[u.feature]
			switch {
			case !lacks:
				others = append(others, world.World)
			case reason == "" && (len(v.spec.Worlds) == 0 || slices.Contains(v.spec.Worlds, world.World)):
				reason = u.because(why)
			}
		}
		switch {
		case reason == "":
		case len(others) == 0:
			v.bad(u.path, "%s", reason)
		default:
			v.bad(u.path, "%s: write worlds: [%s] in spec", reason, strings.Join(others, ", "))
		}
	}
}

// worlds are the names of those that are known, nil if nobody said.
func (v *Vocabulary) worlds() []string {
	var names []string
	for _, world := range v.Worlds {
		names = append(names, world.World)
	}
	return names
}

// Features are all that plans can ask for, but for the needs of faults.
func Features() []Feature {
	features := []Feature{FeatureReplicas, FeatureIronic, FeatureStops, FeatureBMC, FeaturePrograms, FeaturePods, FeatureDeviations, FeatureDeeds}
	for _, name := range operationNames() {
		features = append(features, Feature(name))
		switch name {
		case "cut":
			features = append(features, FeatureControllerLinks)
		case "pause":
			features = append(features, FeaturePausedWatchdog)
		case "patch":
			features = append(features, FeatureForeignFields, FeatureOutOfService)
		case "crash":
			features = append(features, FeatureStaleLists, FeatureLateRequests)
		case "setClock":
			features = append(features, FeatureControllerClocks, FeatureClockRates)
		}
	}
	for _, layer := range [...]history.Layer{history.World, history.API, history.BMC, history.Controller} {
		for _, kind := range history.Kinds(layer) {
			features = append(features, Feature(kind))
		}
	}
	return features
}

func watchdogWhilePaused(op *HostOp, spec *Spec) []Feature {
	for _, host := range spec.Topology.Hosts {
		if host.Name == op.Host && host.Watchdog > 0 && !host.Softdog {
			return []Feature{FeaturePausedWatchdog}
		}
	}
	return nil
}

// outOfService is the taint by which a person says that a Node's host is off for sure.
const outOfService = "node.kubernetes.io/out-of-service"

// patches is what a patch needs whose fields not every world has, or acts on.
func patches(op *PatchOp, _ *Spec) (features []Feature) {
	if op.Foreign {
		features = append(features, FeatureForeignFields)
	}
	if bytes.Contains(op.Merge, []byte(outOfService)) {
		features = append(features, FeatureOutOfService)
	}
	return features
}

// clocks is what a clock needs that is not just a host's being ahead or behind.
func clocks(op *ClockOp, _ *Spec) (features []Feature) {
	if op.Controller != "" {
		features = append(features, FeatureControllerClocks)
	}
	if op.Drift() != 0 {
		features = append(features, FeatureClockRates)
	}
	return features
}

func pastAndFuture(op *CrashOp, _ *Spec) []Feature {
	var features []Feature
	if op.StaleBy > 0 {
		features = append(features, FeatureStaleLists)
	}
	if op.LateBy > 0 && op.Effect == 0 && !op.Each {
		features = append(features, FeatureLateRequests)
	}
	return features
}
