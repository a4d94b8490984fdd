package lab_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/ci/lab"
	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
)

// clumsy has a controller whose reconciles panic.
var clumsy = controllers.Module{
	Controllers: []controllers.Registration{{
		Name: "clumsy", For: &api.BareMetalHost{}, Place: controllers.Cluster,
		New: func(controllers.Deps) (reconcile.Reconciler, error) {
			var seen map[string]bool
			return reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
				seen[request.Name] = true
				return reconcile.Result{}, nil
			}), nil
		},
	}},
	Manifests: fstest.MapFS{"role.yaml": {Data: []byte(`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: fencelab-clumsy}
rules:
- {apiGroups: [metal3.io], resources: [baremetalhosts], verbs: [get, list, watch]}
`)}},
}

const panics = `apiVersion: fencelab.dev/v1alpha1
kind: Scenario
metadata: {name: panics, description: A controller panics.}
spec:
  topology: {hosts: [{name: worker-1}]}
  controllers: [{name: clumsy}]
  invariants: [no-panics]
  steps:
  - when: {event: controller-panicked, since: start}
`

// TestPanicInTheLab: a panic of a controller within the lab's process is seen, and judged.
func TestPanicInTheLab(t *testing.T) {
	lab.NeedControlPlane(t)
	set, err := controllers.NewSet(clumsy)
	must(t, err)
	s, err := file.Load("panics.yaml", []byte(panics), objects.VocabularyOf(set))
	must(t, err)
	plan, err := scenarios.Compile(s, 1)
	must(t, err)
	outcome, err := play.Run(t.Context(), plan, lab.New(lab.Options{Hosts: lab.Model, Controllers: set, Log: t.Output()}), nil)
	must(t, err)
	i := slices.IndexFunc(outcome.Results, func(r invariant.Result) bool { return r.Invariant == "no-panics" })
	if i < 0 || outcome.Results[i].Verdict != invariant.Violated || !strings.Contains(outcome.Results[i].Violation.Sentence, "assignment to entry in nil map") ||
		!strings.Contains(outcome.Results[i].Violation.Sentence, "panics_test.go:") {
		t.Errorf("no-panics comes to %+v", outcome.Results)
	}
}
