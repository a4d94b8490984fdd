package objects

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// Vocabulary returns the names that scenario files may use: the registered controllers with their
// settings, facts and actions, and the faults of fakebmc.
func Vocabulary() file.Vocabulary { return VocabularyOf(controllers.Default()) }

// VocabularyOf is the Vocabulary of a set of controllers, which may bring kinds that
// users make and change.
func VocabularyOf(set *controllers.Set) file.Vocabulary {
	kinds := KindsOf(set)
	vocabulary := file.Vocabulary{
		Controllers: make(map[string]file.ControllerVocabulary),
		Fault:       func() any { return new(fakebmc.Rule) },
		Kinds:       kinds.Vocabulary(),
		CheckPatch:  kinds.checkPatch,
		Judged: func(spec *scenarios.Spec) any {
			chosen, err := Controllers(set, spec)
			if err != nil {
				return nil // whoever reads the controllers says so
			}
			return Timings(spec, chosen)
		},
		CheckField: kinds.checkField,
		CheckFault: func(rule any, host string, hosts []string) error {
			return rule.(*fakebmc.Rule).Fits(host, hosts)
		},
		Needs: Needs,

		PowerRestores: texts(fakebmc.RestorePolicies()),
		DoubtFault:    func(rule any) []string { return rule.(*fakebmc.Rule).Doubts() },
		Values: map[history.Kind][]string{
			history.BMCCommand: texts(fakebmc.ResetTypes()),
			history.ProvisioningState: texts([]api.ProvisioningState{
				api.StateProvisioned, api.StateExternallyProvisioned, api.StateDeprovisioning, api.StateAvailable, api.StateDetached,
			}),
		},
		Annotations: []string{api.RebootAnnotation, api.RemediationRebootAnnotation, api.ExternalRemediationAnnotation, api.DeletionRebootAnnotation},
		CheckHeeded: func(key string) error {
			heeded := []string{api.ExternalRemediationAnnotation, api.HostAnnotation, api.PoweredOffForRemediationAnnotation, api.DetachedAnnotation}
			domain, _, _ := strings.Cut(key, "/")
			if domain != api.GroupVersion.Group && !strings.HasSuffix(domain, "."+api.GroupVersion.Group) || api.IsRebootAnnotation(key) || slices.Contains(heeded, key) {
				return nil
			}
			if meant := phrase.Nearest(key, heeded); meant != "" {
				return fmt.Errorf("no controller of fencelab's acts on %s: did you mean %s?", key, meant)
			}
			return fmt.Errorf("no controller of fencelab's acts on %s: leave it out, or write worlds: [lab] in spec for a system under test that does", key)
		},
		CheckAnnotation: func(key, value string) error {
			if !api.IsRebootAnnotation(key) {
				domain, _, _ := strings.Cut(key, "/")
				external, _, _ := strings.Cut(api.ExternalRemediationAnnotation, "/")
				if meant := phrase.Nearest(domain, []string{api.RebootAnnotation, external}); meant != "" && meant != domain {
					return fmt.Errorf("%s means nothing to any controller: did you mean %s?", domain, meant)
				}
				return nil
			}
			_, err := api.ParseRebootMode(value)
			return err
		},
	}
	vocabulary.Requests = make(map[string]scenarios.Request)
	for kind, r := range set.Requests() { // order does not matter: each by itself
		vocabulary.Requests[kind] = scenarios.Request(r)
	}
	for _, r := range set.All() {
		v := file.ControllerVocabulary{
			Settings: r.Settings, Facts: r.Facts, Actions: r.Actions, StandIn: r.StandIn(), ForVolumes: r.ForVolumes,
			CheckRule: func(rule scenarios.Rule) error {
				return r.CheckOverlay([]controllers.Rule{{When: rule.When, Then: rule.Then}})
			},
			EveryHost: r.Place == controllers.EveryHost,
			Plays:     string(r.Plays),
			Brought:   set.Brought(r.Name),
		}
		if r.Announces != "" {
			vocabulary.Annotations = append(vocabulary.Annotations, r.Announces)
		}
		if r.FeedsWatchdog { // it resets its host by not feeding the watchdog
			v.Plays = cmp.Or(v.Plays, string(controllers.Fencer))
		}
		for _, obj := range r.Cached() {
			if _, dynamic := obj.(*unstructured.Unstructured); !dynamic && !slices.Contains(v.Kinds, kindOf(obj)) {
				v.Kinds = append(v.Kinds, kindOf(obj))
			}
		}
		vocabulary.Controllers[r.Name] = v
	}
	return vocabulary
}

// Needs finds the demands of plans on worlds that the engine doesn't know itself.
var Needs = scenarios.Needs{Fault: FaultNeeds}

// FaultNeeds returns the demands of a fault's rule on its BMC's world.
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
