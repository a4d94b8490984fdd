package objects

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// Vocabulary is what scenario files may speak of: the registered controllers
// with their settings, facts and actions, and the faults of fakebmc.
func Vocabulary() scenarios.Vocabulary { return VocabularyOf(controllers.Default()) }

// VocabularyOf is the Vocabulary of a set of controllers, which may bring kinds that
// users make and change.
func VocabularyOf(set *controllers.Set) scenarios.Vocabulary {
	vocabulary := scenarios.Vocabulary{
		Controllers: make(map[string]scenarios.ControllerVocabulary),
		Fault:       func() any { return new(fakebmc.Rule) },
		Kinds:       set.Kinds(),
		CheckPatch: func(kind string, merge json.RawMessage) error {
			return checkPatch(set, kind, merge)
		},
		CheckFault: func(rule any, host string, hosts []string) error {
			return rule.(*fakebmc.Rule).Fits(host, hosts)
		},
		Needs:      Needs,
		DoubtFault: func(rule any) []string { return rule.(*fakebmc.Rule).Doubts() },
		Values: map[history.Kind][]string{
			history.BMCCommand: texts(fakebmc.ResetTypes()),
			history.ProvisioningState: texts([]api.ProvisioningState{
				api.StateProvisioned, api.StateExternallyProvisioned, api.StateDeprovisioning, api.StateAvailable,
			}),
		},
		Annotations: []string{api.RebootAnnotation, api.RemediationRebootAnnotation, api.ExternalRemediationAnnotation},
		CheckAnnotation: func(key, value string) error {
			if !api.IsRebootAnnotation(key) {
				domain, _, _ := strings.Cut(key, "/")
				external, _, _ := strings.Cut(api.ExternalRemediationAnnotation, "/")
				if meant := history.Nearest(domain, []string{api.RebootAnnotation, external}); meant != "" && meant != domain {
					return fmt.Errorf("%s means nothing to any controller: did you mean %s?", domain, meant)
				}
				return nil
			}
			_, err := api.ParseRebootMode(value)
			return err
		},
	}
	for _, r := range set.All() {
		v := scenarios.ControllerVocabulary{
			Settings: r.Settings, Facts: r.Facts, Actions: r.Actions, StandIn: r.StandIn,
			CheckRule: func(rule scenarios.Rule) error {
				return r.CheckOverlay([]controllers.Rule{{When: rule.When, Then: rule.Then}})
			},
			EveryHost: r.Place == controllers.EveryHost,
			Plays:     string(r.Plays),
		}
		if r.For != nil {
			v.Kinds = append(v.Kinds, kindOf(r.For))
		}
		for _, w := range r.Watches {
			v.Kinds = append(v.Kinds, kindOf(w.Kind))
		}
		vocabulary.Controllers[r.Name] = v
	}
	return vocabulary
}

// New returns an empty object of a kind that users change, by the name that a
// scenario calls it: Node/worker-1.
func New(set *controllers.Set, object string) (client.Object, error) {
	kind, name, _ := strings.Cut(object, "/")
	var obj client.Object
	switch kind {
	case "BareMetalHost":
		obj = new(api.BareMetalHost)
	case "Machine":
		obj = new(clusterv1.Machine)
	case "MachineHealthCheck":
		obj = new(clusterv1.MachineHealthCheck)
	case "Node":
		obj = new(corev1.Node)
		obj.SetName(name)
		return obj, nil
	default:
		if foreign, namespaced, ok := set.New(kind); ok {
			obj := foreign.(client.Object)
			obj.SetName(name)
			if namespaced {
				obj.SetNamespace(Namespace)
			}
			return obj, nil
		}
		return nil, fmt.Errorf("find %s: users change no objects of this kind", object)
	}
	obj.SetNamespace(Namespace)
	obj.SetName(name)
	return obj, nil
}

// checkPatch finds fields that the kind doesn't have, and values that don't fit.
func checkPatch(set *controllers.Set, kind string, merge json.RawMessage) error {
	obj, err := New(set, kind)
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(merge, obj)
	if err := errors.Join(append(strict, err)...); err != nil {
		return fmt.Errorf("a %s doesn't take it: %w", kind, err)
	}
	return nil
}

// Needs are what plans need of worlds, beside what the engine knows.
var Needs = scenarios.Needs{Fault: FaultNeeds, Controller: controllerNeeds}

// controllerNeeds is what a controller needs of the world that it runs in.
func controllerNeeds(name string) []scenarios.Need {
	if r, err := controllers.Lookup(name); err != nil || r.Place != controllers.EveryHost {
		return nil
	}
	return []scenarios.Need{{What: "it runs on every host", Needs: scenarios.FeatureAgents}}
}

// FaultNeeds is what the rule of a fault needs of the world that its BMC is in.
func FaultNeeds(rule json.RawMessage) []scenarios.Need {
	var parsed fakebmc.Rule
	if json.Unmarshal(rule, &parsed) != nil {
		return nil // whoever reads it in earnest says so
	}
	needs := parsed.Needs()
	var all []scenarios.Need
	for _, need := range slices.Sorted(maps.Keys(needs)) {
		all = append(all, scenarios.Need{What: needs[need], Needs: scenarios.Feature(need)})
	}
	return all
}

func texts[T ~string](values []T) []string {
	var texts []string
	for _, v := range values {
		texts = append(texts, string(v))
	}
	return texts
}

// kindOf is the kind of a typed object: the name of its Go type.
func kindOf(obj client.Object) string { return reflect.TypeOf(obj).Elem().Name() }

// Create returns the object that a user creates: one of the topology, or one with the
// content that the operation gives.
func Create(set *controllers.Set, op *scenarios.CreateOp, topology []client.Object) (client.Object, error) {
	named, err := New(set, op.Object)
	if err != nil {
		return nil, err
	}
	if len(op.With) > 0 {
		name, namespace := named.GetName(), named.GetNamespace()
		if err := json.Unmarshal(op.With, named); err != nil {
			return nil, fmt.Errorf("create %s: %w", op.Object, err)
		}
		named.SetName(name)
		named.SetNamespace(namespace)
		return named, nil
	}
	for _, obj := range topology {
		if reflect.TypeOf(obj) == reflect.TypeOf(named) && client.ObjectKeyFromObject(obj) == client.ObjectKeyFromObject(named) {
			return obj, nil
		}
	}
	return nil, fmt.Errorf("the topology has no %s", op.Object)
}
