package scenarios

import (
	"encoding/json"
	"fmt"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Capabilities describes as data what a world can do: everything that it doesn't list as lacking.
type Capabilities struct {
	// World is the world's name in scenarios and on the command line, and Title its name in
	// sentences.
	World, Title string
	// Lacks says in a clause why there is no such feature.
	Lacks map[Feature]string
}

// Need is a feature that something in the rule of a fault, such as an effect, needs.
type Need struct {
	What  string
	Needs Feature
}

// Needs finds the demands of a plan that the engine knows only by name. It may be nil.
type Needs struct {
	// Fault returns the demands of a fault's rule.
	Fault func(rule json.RawMessage) []Need
}

// Use is a place where a plan asks for a feature.
type Use struct {
	// Path is the field in the file, and what describes it to people. Part names the part of it
	// that makes the demand.
	Path, what, part string
	Feature          Feature
}

// Because says why a world lacks the feature.
func (u *Use) Because(why string) string {
	if u.part != "" {
		return u.part + ": " + why
	}
	return why
}

// Refuse returns every reason why the world can't perform a plan.
func (c *Capabilities) Refuse(plan *Plan, needs Needs) []string {
	var reasons []string
	for _, u := range append(Uses(&plan.Spec, needs), deviating(plan)...) {
		if why, lacks := c.Lacks[u.Feature]; lacks {
			reasons = append(reasons, u.what+": "+u.Because(why))
		}
	}
	return reasons
}

func deviating(plan *Plan) []Use {
	var all []Use
	for i, d := range plan.Deviations {
		feature := FeatureDeviations
		if NamesDeed(d.Step) {
			feature = FeatureDeeds
		}
		all = append(all, Use{Path: fmt.Sprintf("deviations[%d]", i), what: "deviation " + d.String(), Feature: feature})
	}
	return all
}

// Uses are all features that a story asks for, in the order of the file.
func Uses(spec *Spec, needs Needs) []Use {
	var all []Use
	for i, h := range spec.Topology.Hosts {
		if h.Role != "" {
			all = append(all, Use{Path: fmt.Sprintf("spec.topology.hosts[%d].role", i), what: "a member of the API server's store on " + h.Name, Feature: FeatureQuorum})
		}
		if first := spec.Topology.Namesake(i); first != nil {
			field := "nodeName"
			if h.NodeName == "" {
				field = "name"
			}
			what := fmt.Sprintf("Node %s of %s and of %s", h.Node(), first.Name, h.Name)
			all = append(all, Use{Path: fmt.Sprintf("spec.topology.hosts[%d].%s", i, field), what: what, Feature: FeatureNamesakes})
		}
		if h.Off {
			all = append(all, Use{Path: fmt.Sprintf("spec.topology.hosts[%d].off", i), what: h.Name + ", which is off at first", Feature: FeatureSpares})
		}
	}
	if spec.Topology.Ironic != nil {
		all = append(all, Use{Path: "spec.topology.ironic", what: "an Ironic that owns the BMCs", Feature: FeatureIronic})
	}
	if spec.Topology.Workload.Stops != "" {
		all = append(all, Use{Path: "spec.topology.workload.stops", what: "a workload that takes its time to stop", Feature: FeatureStops})
	}
	if spec.Topology.Workload.Volume != nil {
		all = append(all, Use{Path: "spec.topology.workload.volume", what: "a volume that is attached to its host", Feature: FeatureVolume})
	}
	if spec.Topology.BMC != nil {
		all = append(all, Use{Path: "spec.topology.bmc", what: "a program in the place of the BMCs", Feature: FeatureBMC})
	}
	for i, c := range spec.Controllers {
		if c.Replicas > 1 {
			what := fmt.Sprintf("%d processes of the controller %s", c.Replicas, c.Name)
			all = append(all, Use{Path: fmt.Sprintf("spec.controllers[%d].replicas", i), what: what, Feature: FeatureReplicas})
		}
	}
	for i, c := range spec.Controllers {
		if first := spec.FirstOf(&c); first != c.Name {
			all = append(all, Use{Path: fmt.Sprintf("spec.controllers[%d].name", i), what: "another controller " + first, Feature: FeatureSeveral})
		}
		if len(c.Hosts) > 0 {
			all = append(all, Use{Path: fmt.Sprintf("spec.controllers[%d].hosts", i), what: "the controller " + c.Name + " on a host", Feature: FeaturePlaces})
		}
		if c.Via == ViaIPMI {
			all = append(all, Use{Path: fmt.Sprintf("spec.controllers[%d].via", i), what: "IPMI as the protocol of the controller " + c.Name, Feature: FeatureIPMI})
		}
		if c.Program != nil {
			what := fmt.Sprintf("the program of the controller %s", c.Name)
			all = append(all, Use{Path: fmt.Sprintf("spec.controllers[%d].program", i), what: what, Feature: FeaturePrograms})
		}
		if c.Pods != nil {
			all = append(all, Use{Path: fmt.Sprintf("spec.controllers[%d].pods", i), what: "the Pods of the controller " + c.Name, Feature: FeaturePods})
		}
	}
	for i := range spec.Steps {
		s := &spec.Steps[i]
		path, number := fmt.Sprintf("spec.steps[%d]", i), fmt.Sprintf("step %d: ", i+1)
		event := func(path string, t Trigger) {
			all = append(all, Use{Path: path + ".event", what: fmt.Sprintf("step %d", i+1), part: t.Event, Feature: Feature(t.Event)})
		}
		event(path+".when", s.When)
		several, field := s.When.List()
		for j, t := range several {
			event(fmt.Sprintf("%s.when.%s[%d]", path, field, j), t)
		}
		if s.Do == nil {
			continue
		}
		set := s.Do.set()
		if len(set) != 1 {
			continue // which is an error in the file
		}
		o, what := set[0], number+s.Do.String()
		path += ".do." + o.name
		all = append(all, Use{Path: path, what: what, Feature: Feature(o.name)})
		for _, feature := range o.asks(s.Do, spec) {
			all = append(all, Use{Path: path, what: what, Feature: feature})
		}
		if s.Do.AddFault != nil && needs.Fault != nil {
			for _, need := range needs.Fault(s.Do.AddFault.Rule) {
				if need.Needs != FeatureIPMIClient || !spec.SpeaksIPMI() {
					all = append(all, Use{Path: path + ".rule", what: what, part: need.What, Feature: need.Needs})
				}
			}
		}
	}
	return all
}

// Features are all that plans can ask for, but for the needs of faults.
func Features() []Feature {
	features := []Feature{FeatureReplicas, FeatureSeveral, FeatureQuorum, FeatureNamesakes, FeatureSpares, FeaturePlaces, FeatureIronic, FeatureIPMI, FeatureStops, FeatureVolume, FeatureBMC, FeaturePrograms, FeaturePods, FeatureDeviations, FeatureDeeds}
	for _, name := range Operations() {
		features = append(features, Feature(name))
		switch name {
		case "cut":
			features = append(features, FeatureControllerLinks)
		case "pause":
			features = append(features, FeaturePausedWatchdog)
		case "create":
			features = append(features, FeatureVolumes)
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
