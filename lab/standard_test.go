package lab

import (
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/scenarios"
)

// runsThese is a control plane that runs some standard controllers.
type runsThese struct {
	controlPlane
	names []string
}

func (r runsThese) Runs() []string { return r.names }

// TestStandInsFillWhatIsMissing: one runs unless everything that it stands in for does.
func TestStandInsFillWhatIsMissing(t *testing.T) {
	all := []string{cluster.NodeLifecycle, cluster.PodGC, cluster.StatefulSet, cluster.Scheduler, cluster.AttachDetach, cluster.TaintEviction, cluster.Attacher, cluster.DaemonSet, cluster.CSIAddons}
	plan := &scenarios.Plan{Spec: scenarios.Spec{
		Topology:    scenarios.Topology{Hosts: []scenarios.Host{{Name: "worker-1"}}, Workload: scenarios.Workload{Host: "worker-1"}},
		Controllers: []scenarios.Controller{{Name: "reboot"}},
	}}
	for _, test := range []struct {
		runs []string
		want string
	}{
		{nil, "reboot nodelifecycle workload"},
		{all[:1], "reboot workload"},
		{all[:3], "reboot workload"}, // no other binds its Pod
		{all[1:], "reboot nodelifecycle"},
		{all, "reboot"},
	} {
		b := New(Options{})
		b.plan, b.plane.controlPlane = plan, runsThese{names: test.runs}
		chosen, err := b.controllers()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range chosen {
			names = append(names, c.Name)
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("beside %v run %s, want %s", test.runs, got, test.want)
		}
	}
	for _, r := range controllers.Default().All() {
		for _, name := range r.StandsInFor {
			if !slices.Contains(all, name) {
				t.Errorf("%s stands in for %s, which no control plane says that it runs", r.Name, name)
			}
		}
	}
}

// TestListedStandInsAreRefused: a story that lists a stand-in means its settings.
func TestListedStandInsAreRefused(t *testing.T) {
	spec := &scenarios.Spec{Controllers: []scenarios.Controller{{Name: "reboot"}, {Name: "workload"}}}
	for _, o := range []Options{{Cluster: Standard}, {Hosts: Node}} {
		if reasons := o.replaced(controllers.Default(), spec); len(reasons) != 1 || !strings.Contains(reasons[0], "workload") {
			t.Errorf("%+v: %v", o, reasons)
		}
	}
	if reasons := (Options{}).replaced(controllers.Default(), spec); len(reasons) != 0 {
		t.Errorf("where nothing stands in its place: %v", reasons)
	}
}

// TestControlPlane: real nodes need the standard controllers, and have them where they are.
func TestControlPlane(t *testing.T) {
	for _, test := range []struct {
		of   Options
		want string
	}{
		{Options{}, Embedded},
		{Options{Hosts: Node}, Standard},
		{Options{Cluster: Embedded, Hosts: Node}, Standard},
		{Options{Cluster: Kind, Hosts: Node}, Kind},
		{Options{Cluster: Standard, Hosts: Guest}, Standard},
		{Options{Cluster: Kubeconfig, Hosts: Model}, Kubeconfig},
	} {
		if got := test.of.ControlPlane(); got != test.want {
			t.Errorf("a lab of %+v has the control plane %s, want %s", test.of, got, test.want)
		}
	}
}
