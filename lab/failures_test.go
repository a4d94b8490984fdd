package lab_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/lab"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
)

// failing has a controller whose reconciles panic, and one whose end in an error.
var failing = controllers.Module{
	Controllers: []controllers.Registration{{
		Name: "clumsy", For: &api.BareMetalHost{}, Place: controllers.Cluster,
		New: func(controllers.Deps) (reconcile.Reconciler, error) {
			var seen map[string]bool
			return reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
				seen[request.Name] = true
				return reconcile.Result{}, nil
			}), nil
		},
	}, {
		Name: "helpless", For: &api.BareMetalHost{}, Place: controllers.Cluster,
		New: func(controllers.Deps) (reconcile.Reconciler, error) {
			return reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{}, fmt.Errorf("look after %s: nobody said how", request.Name)
			}), nil
		},
	}},
	Manifests: fstest.MapFS{"role.yaml": {Data: []byte(role("clumsy") + "---\n" + role("helpless"))}},
}

func role(of string) string {
	return `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: fencelab-` + of + `}
rules:
- {apiGroups: [metal3.io], resources: [baremetalhosts], verbs: [get, list, watch]}
`
}

// playFailing plays a story that waits for an event of a controller.
func playFailing(t *testing.T, controller, event string, processes bool) *play.Outcome {
	t.Helper()
	lab.NeedControlPlane(t)
	set, err := controllers.NewSet(failing)
	must(t, err)
	s, err := file.Load("failing.yaml", []byte(`apiVersion: fencelab.dev/v1alpha1
kind: Scenario
metadata: {name: failing, description: A controller fails.}
spec:
  topology: {hosts: [{name: worker-1}]}
  controllers: [{name: `+controller+`}]
  invariants: [no-panics]
  steps:
  - when: {event: `+event+`, since: start}
`), objects.VocabularyOf(set))
	must(t, err)
	plan, err := scenarios.Compile(s, 1)
	must(t, err)
	outcome, err := play.Run(t.Context(), plan, lab.New(lab.Options{Hosts: lab.Model, Controllers: set, Processes: processes, Log: t.Output(), Shelf: shelf}), nil)
	must(t, err)
	return outcome
}

// ways lists how the lab can run controllers: within this process or in one of their own.
var ways = map[string]bool{lab.InProcess: false, lab.AsProcess: true}

// TestPanicInTheLab: a panic of a controller is seen, and judged.
func TestPanicInTheLab(t *testing.T) {
	for way, processes := range ways {
		t.Run(way, func(t *testing.T) {
			outcome := playFailing(t, "clumsy", "controller-panicked", processes)
			i := slices.IndexFunc(outcome.Results, func(r invariant.Result) bool { return r.Invariant == "no-panics" })
			if i < 0 || outcome.Results[i].Verdict != invariant.Violated || !strings.Contains(outcome.Results[i].Violation.Sentence, "assignment to entry in nil map") ||
				!strings.Contains(outcome.Results[i].Violation.Sentence, "failures_test.go:") {
				t.Errorf("no-panics comes to %+v", outcome.Results)
			}
		})
	}
}

// TestErrorInTheLab: what a reconcile returns is seen.
func TestErrorInTheLab(t *testing.T) {
	for way, processes := range ways {
		t.Run(way, func(t *testing.T) {
			outcome := playFailing(t, "helpless", "controller-error", processes)
			i := slices.IndexFunc(outcome.History.Events(), func(e history.Event) bool { return e.Kind == history.ControllerError })
			if i < 0 {
				t.Fatal("no error is seen")
			}
			if e := outcome.History.Events()[i]; e.Actor != "helpless" || e.Object != "worker-1" || e.Value != "look after worker-1: nobody said how" {
				t.Errorf("seen is %+v", e)
			}
		})
	}
}
