package objects

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// TestChecks: what a health check says is recorded when it changes, whoever changes it and by
// whatever way; what a controller reports is no change.
func TestChecks(t *testing.T) {
	told := &scenarios.HealthCheck{UnhealthyAfter: scenarios.Duration(5 * time.Second), NodeStartupTimeout: scenarios.Duration(time.Minute)}
	first := func() *clusterv1.MachineHealthCheck { return healthCheck(told) }
	edited := func(edit func(*clusterv1.MachineHealthCheck)) *clusterv1.MachineHealthCheck {
		check := first()
		check.Generation = 2
		edit(check)
		return check
	}
	machine := func(name string, edit func(*clusterv1.Machine)) *clusterv1.Machine {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: Cluster}}}
		m.Spec.ClusterName = Cluster
		if edit != nil {
			edit(m)
		}
		return m
	}
	broken := func(m *clusterv1.Machine) {
		m.Status.Conditions = []metav1.Condition{{Type: "Broken", Status: metav1.ConditionTrue}}
	}
	minds := func(c *clusterv1.MachineHealthCheck) {
		c.Spec.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{{Type: "Broken", Status: metav1.ConditionTrue}}
	}
	type change struct{ before, after metav1.Object }
	for name, test := range map[string]struct {
		changes []change
		// want are kinds, objects, keys and a part of the values of the events.
		want []string
	}{
		"the story's own": {[]change{{nil, first()}, {nil, machine("a", nil)}}, nil},
		"paused": {[]change{{nil, first()}, {first(), edited(func(c *clusterv1.MachineHealthCheck) {
			c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		})}}, []string{`check-changed MachineHealthCheck/fencelab  "paused":true`}},
		"only reported on":   {[]change{{nil, first()}, {first(), func() metav1.Object { c := first(); c.Status.ExpectedMachines = new(int32); return c }()}}, nil},
		"gone":               {[]change{{nil, first()}, {first(), nil}}, []string{`check-changed MachineHealthCheck/fencelab  `}},
		"of another cluster": {[]change{{nil, first()}, {nil, machine("a", func(m *clusterv1.Machine) { m.Spec.ClusterName = "other" })}}, []string{`check-changed MachineHealthCheck/fencelab a "leavesOut":["a"]`}},
		"selected again": {[]change{{nil, first()}, {nil, machine("a", func(m *clusterv1.Machine) { m.Labels = nil })}, {machine("a", func(m *clusterv1.Machine) { m.Labels = nil }), machine("a", nil)}},
			[]string{`check-changed MachineHealthCheck/fencelab a "leavesOut":["a"]`, `check-changed MachineHealthCheck/fencelab a {"unhealthy":`}},
		"left out and gone":       {[]change{{nil, first()}, {nil, machine("a", func(m *clusterv1.Machine) { m.Labels = nil })}, {machine("a", nil), nil}}, []string{`check-changed MachineHealthCheck/fencelab a "leavesOut":["a"]`, `check-changed MachineHealthCheck/fencelab a {"unhealthy":`}},
		"a condition not minded":  {[]change{{nil, first()}, {nil, machine("a", broken)}}, nil},
		"minded from now on":      {[]change{{nil, first()}, {nil, machine("a", broken)}, {first(), edited(minds)}}, []string{`check-changed MachineHealthCheck/fencelab  "ofMachine":true`, `machine-condition Machine/a Broken True`}},
		"minded since it is so":   {[]change{{nil, first()}, {nil, machine("a", nil)}, {machine("a", nil), machine("a", broken)}, {first(), edited(minds)}}, []string{`check-changed MachineHealthCheck/fencelab  "ofMachine":true`, `machine-condition Machine/a Broken True`}},
		"a condition that passes": {[]change{{nil, edited(minds)}, {nil, machine("a", broken)}, {machine("a", broken), machine("a", nil)}}, []string{`check-changed MachineHealthCheck/fencelab  "ofMachine":true`, `machine-condition Machine/a Broken True`, `machine-condition Machine/a Broken `}},
	} {
		t.Run(name, func(t *testing.T) {
			names := NamesOf(&scenarios.Topology{}, told)
			var got []history.Event
			for _, c := range test.changes {
				some := c.after
				if some == nil {
					some = c.before
				}
				kind, err := KindsOf(controllers.Default()).Of(some.(client.Object))
				if err != nil {
					t.Fatal(err)
				}
				names.Changes(kind, c.before, c.after, func(e history.Event) {
					if e.Kind == history.CheckChanged || e.Kind == history.MachineCondition {
						got = append(got, e)
					}
				})
			}
			if len(got) != len(test.want) {
				t.Fatalf("events %v, want %q", got, test.want)
			}
			for i, e := range got {
				head := string(e.Kind) + " " + e.Object + " " + e.Key + " "
				part, ok := strings.CutPrefix(test.want[i], head)
				if !ok || !strings.Contains(e.Value, part) {
					t.Errorf("event %d is %s%s, want %s", i, head, e.Value, test.want[i])
				}
			}
		})
	}
}
