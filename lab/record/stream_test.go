package record

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// TestStoryBeginsWhereTheTopologySays starts the workload on the right host, and on another: there
// it would be another story.
func TestStoryBeginsWhereTheTopologySays(t *testing.T) {
	for host, begins := range map[string]bool{"worker-1": true, "worker-2": false} {
		s := NewStream(func() time.Duration { return time.Second })
		plan := &scenarios.Plan{}
		plan.Spec.Topology.Hosts = []scenarios.Host{{Name: "worker-1"}, {Name: "worker-2"}}
		plan.Spec.Topology.Workload.Host = "worker-1"
		s.Await(plan, nil)
		for _, name := range []string{"worker-1", "worker-2"} {
			s.Now(history.Event{Kind: history.NodeReady, Host: name, Object: "Node/" + name})
		}
		s.Now(history.Event{Kind: history.WorkloadStarted, Host: host})
		_, _, err := s.take(time.Second)
		if (err == nil) != begins {
			t.Errorf("the workload starts on %s: error %v", host, err)
		}
	}
}

// TestStoryWaitsUntilAgentsHear brings up all that a story needs, the agent's hearing last.
func TestStoryWaitsUntilAgentsHear(t *testing.T) {
	s := NewStream(func() time.Duration { return time.Second })
	plan := &scenarios.Plan{}
	plan.Spec.Topology.Hosts = []scenarios.Host{{Name: "worker-1"}}
	s.Await(plan, []controllers.Selection{{Registration: controllers.Registration{Name: "watchdog", Place: controllers.EveryHost}}})
	s.Now(history.Event{Kind: history.NodeReady, Host: "worker-1", Object: "Node/worker-1"})
	s.Now(history.Event{Kind: history.ControllerStarted, Host: "worker-1", Actor: "worker-1.watchdog"})
	if n := begun(s); n != 0 {
		t.Error("the story begins although the agent has not heard the API server")
	}
	s.Heard("worker-1.watchdog")
	s.Heard("worker-1.watchdog")
	if n := begun(s); n != 1 {
		t.Errorf("the story began %d times", n)
	}
}

// begun is how often the story began.
func begun(s *Stream) (n int) {
	for _, e := range s.Pending() {
		if e.Kind == history.RunStarted {
			n++
		}
	}
	return n
}

// TestStoryWaitsForGroundwork: the finalizers of Machines and the announcements of agents come
// before what a story does.
func TestStoryWaitsForGroundwork(t *testing.T) {
	deletion := controllers.Selection{Registration: controllers.Registration{Name: "ours", Plays: controllers.Deletion}}
	announcing := controllers.Selection{Registration: controllers.Registration{Name: "agent", Place: controllers.EveryHost, Announces: "promise"}}
	machine, node := &clusterv1.Machine{}, &corev1.Node{}
	machine.Name, machine.Namespace, node.Name = "worker-1", "fence", "worker-1"
	withFinalizer, withPromise := machine.DeepCopy(), node.DeepCopy()
	withFinalizer.Finalizers, withPromise.Annotations = []string{"fencelab.dev/deletion"}, map[string]string{"promise": "30s"}
	for name, c := range map[string]struct {
		chosen []controllers.Selection
		world  []client.Object
		laid   bool
	}{
		"nothing to wait for":         {nil, []client.Object{machine, node}, true},
		"no finalizer yet":            {[]controllers.Selection{deletion}, []client.Object{machine, node}, false},
		"a finalizer":                 {[]controllers.Selection{deletion}, []client.Object{withFinalizer, node}, true},
		"no announcement yet":         {[]controllers.Selection{announcing}, []client.Object{machine, node}, false},
		"an announcement":             {[]controllers.Selection{announcing}, []client.Object{machine, withPromise}, true},
		"only the announcement":       {[]controllers.Selection{deletion, announcing}, []client.Object{machine, withPromise}, false},
		"both of them are waited for": {[]controllers.Selection{deletion, announcing}, []client.Object{withFinalizer, withPromise}, true},
	} {
		t.Run(name, func(t *testing.T) {
			world := fake.NewClientBuilder().WithScheme(api.NewScheme()).WithObjects(c.world...).Build()
			if laid, err := isLaid(t.Context(), world, c.chosen); laid != c.laid || err != nil {
				t.Errorf("laid: %t, error: %v", laid, err)
			}
			s := NewStream(func() time.Duration { return time.Second })
			s.Await(&scenarios.Plan{}, c.chosen)
			if s.waiting[groundwork] != (len(c.chosen) > 0) {
				t.Errorf("the story waits for %v", s.waiting)
			}
			s.laid()
			if s.waiting[groundwork] {
				t.Error("the story waits for the groundwork that was laid")
			}
		})
	}
}
