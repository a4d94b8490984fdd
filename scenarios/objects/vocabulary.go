package objects

import (
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
)

// Vocabulary is what scenario files may speak of: the registered controllers
// with their settings, facts and actions, and the faults of fakebmc.
func Vocabulary() scenarios.Vocabulary {
	vocabulary := scenarios.Vocabulary{
		Controllers: make(map[string]scenarios.ControllerVocabulary),
		Fault:       func() any { return new(fakebmc.Rule) },
	}
	for _, r := range controllers.All() {
		v := scenarios.ControllerVocabulary{
			Settings: r.Settings, Facts: r.Facts, Actions: r.Actions, StandIn: r.StandIn,
			CheckRule: func(rule scenarios.Rule) error {
				return r.CheckOverlay([]controllers.Rule{{When: rule.When, Then: rule.Then}})
			},
			Kinds: []string{kindOf(r.For)},
		}
		for _, w := range r.Watches {
			v.Kinds = append(v.Kinds, kindOf(w.Kind))
		}
		vocabulary.Controllers[r.Name] = v
	}
	return vocabulary
}

// kindOf is the kind of a typed object: the name of its Go type.
func kindOf(obj client.Object) string { return reflect.TypeOf(obj).Elem().Name() }
