package sim_test

import (
	"context"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim"
)

// wrongly is a remediation that is asked before each reconcile: for how long to wait, 0 for not at
// all.
func wrongly(t *testing.T, wait func(context.Context, controllers.Deps, reconcile.Request) (time.Duration, error)) *sim.Simulator {
	t.Helper()
	own, err := controllers.Lookup("remediation")
	if err != nil {
		t.Fatal(err)
	}
	wrong := own
	wrong.Name, wrong.Facts, wrong.Actions = "wrong", nil, nil
	wrong.New = func(d controllers.Deps) (reconcile.Reconciler, error) {
		right, err := own.New(d)
		return reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			if left, err := wait(ctx, d, r); left != 0 || err != nil {
				return reconcile.Result{RequeueAfter: left}, err
			}
			return right.Reconcile(ctx, r)
		}), err
	}
	return of(t, wrong)
}

// TestRetoldWrongly: programs that hold in a story, and go by what must not matter, show in its
// retellings.
func TestRetoldWrongly(t *testing.T) {
	for name, c := range map[string]struct {
		wait func(context.Context, controllers.Deps, reconcile.Request) (time.Duration, error)
		want string
	}{
		"right": {func(context.Context, controllers.Deps, reconcile.Request) (time.Duration, error) { return 0, nil }, ""},
		"only the first by name": {func(ctx context.Context, d controllers.Deps, r reconcile.Request) (time.Duration, error) {
			var hosts api.BareMetalHostList
			err := d.Live.List(ctx, &hosts)
			if first := slices.MinFunc(hosts.Items, func(a, b api.BareMetalHost) int { return strings.Compare(a.Name, b.Name) }); first.Name == r.Name {
				return 0, err
			}
			return time.Hour, err
		}, ", hosts renamed"},
		"counts those that are well": {func(ctx context.Context, d controllers.Deps, _ reconcile.Request) (time.Duration, error) {
			var nodes corev1.NodeList
			if err := d.Live.List(ctx, &nodes); err != nil || len(nodes.Items) <= 2 {
				return 0, err
			}
			return time.Hour, nil
		}, ", a bystander added"},
		"a time of its own": {func() func(context.Context, controllers.Deps, reconcile.Request) (time.Duration, error) {
			marked := map[string]time.Time{}
			return func(ctx context.Context, d controllers.Deps, r reconcile.Request) (time.Duration, error) {
				var machine clusterv1.Machine
				if err := d.Live.Get(ctx, r.NamespacedName, &machine); err != nil {
					return 0, err
				}
				if _, is := machine.Annotations[api.ExternalRemediationAnnotation]; !is {
					return 0, nil
				}
				if marked[r.Name].IsZero() {
					marked[r.Name] = d.Steady.Now()
				}
				return max(0, 30*time.Second-d.Steady.Since(marked[r.Name])), nil
			}
		}(), ", 4 times as slow"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planOf(t, "../scenarios/catalog/machine-remediation/cut-off-host.yaml")
			for i := range plan.Spec.Controllers {
				if of := &plan.Spec.Controllers[i]; of.Name == "remediation" {
					of.Name, of.Plays = "wrong", "remediation"
				}
			}
			found := retold(t, wrongly(t, c.wait), plan)
			if c.want == "" && len(found) > 0 || c.want != "" && !slices.ContainsFunc(found, func(l string) bool { return strings.Contains(l, c.want) }) {
				t.Errorf("leads %q, want some with %q", found, c.want)
			}
		})
	}
}

// retold are the leads of a plan that holds, and what they say.
func retold(t *testing.T, s *sim.Simulator, plan *scenarios.Plan) (names []string) {
	t.Helper()
	o, err := play.Run(context.Background(), plan, s.Backend(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if verdict, reason := o.VerdictOfSchedule(); verdict != invariant.Held {
		t.Fatalf("%s itself is %s: %s", plan.Metadata.Name, verdict, reason)
	}
	told, err := s.Retold(context.Background(), plan)
	if err != nil {
		t.Fatal(err)
	}
	for i := range told {
		for _, l := range told[i].Leads(o) {
			names = append(names, l.Name()+": "+l.Mine+", "+l.Reference)
		}
	}
	return names
}

// races are stories whose retellings come out otherwise, and why that is right.
var races = map[string]string{
	"survivors-crash-before-every-write": "how far agents come that die at each write depends on how soon they start again",
	"beside-the-mrc":                     "two fencers race, and one of them looks at intervals that are slower",
	"guard-keeps-the-quorum":             "the health check asks its guard again every 30 s, however slow the rest is",
}

// TestRetoldRight: fencelab's own controllers do the same in retellings, in a
// sample of the catalogue. All are read with run --leads=retold.
func TestRetoldRight(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	played := 0
	err = filepath.WalkDir("../scenarios/catalog", func(path string, d fs.DirEntry, err error) error {
		of := fnv.New32a()
		of.Write([]byte(filepath.Base(path)))
		if err != nil || filepath.Ext(path) != ".yaml" || of.Sum32()%10 != 0 {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		cells, err := file.LoadCells(path, data, objects.Vocabulary(), nil)
		for _, scenario := range cells {
			name := scenario.Metadata.Name
			if scenario.Spec.Expect.Violated != "" || races[name] != "" || len(scenario.Spec.Worlds) > 0 && !slices.Contains(scenario.Spec.Worlds, "sim") {
				continue
			}
			plan, err := scenarios.Compile(scenario, 1)
			if err != nil {
				return err
			}
			played++
			for _, l := range retold(t, s, plan) {
				t.Errorf("%s: %s", name, l)
			}
		}
		return err
	})
	if err != nil || played < 30 {
		t.Errorf("%d stories were told again: %v", played, err)
	}
}
