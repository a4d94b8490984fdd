package lab

import (
	"errors"
	"net/http"
	"strings"
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

// TestStoryBeginsWhereTheTopologySays lets the workload start where it should, and elsewhere:
// there the story that is told would be another.
func TestStoryBeginsWhereTheTopologySays(t *testing.T) {
	for host, begins := range map[string]bool{"worker-1": true, "worker-2": false} {
		s := newStream(func() time.Duration { return time.Second })
		plan := &scenarios.Plan{}
		plan.Spec.Topology.Hosts = []scenarios.Host{{Name: "worker-1"}, {Name: "worker-2"}}
		plan.Spec.Topology.Workload.Host = "worker-1"
		s.await(plan, nil)
		for _, name := range []string{"worker-1", "worker-2"} {
			s.now(history.Event{Kind: history.NodeReady, Host: name, Object: "Node/" + name})
		}
		s.now(history.Event{Kind: history.WorkloadStarted, Host: host})
		_, _, err := s.take(time.Second)
		if (err == nil) != begins {
			t.Errorf("the workload starts on %s: error %v", host, err)
		}
	}
}

// TestEarshot lets an agent ask, and looks when it is known that it hears the answers.
func TestEarshot(t *testing.T) {
	const nodes, machines = "/api/v1/nodes", "/apis/cluster.x-k8s.io/v1beta2/machines"
	for name, c := range map[string]struct {
		asked []string // a path, and what becomes of the request
		heard bool
	}{
		"one look":                      {[]string{nodes, machines}, false},
		"the next look has begun":       {[]string{nodes, machines, nodes}, true},
		"nothing is answered":           {[]string{nodes + " lost", nodes + " lost"}, false},
		"the second look fails":         {[]string{nodes, machines + " lost", nodes}, false},
		"the API server is overwhelmed": {[]string{nodes, machines + " fails", nodes}, false},
		"a look after one that failed":  {[]string{nodes + " lost", nodes, machines, nodes}, true},
		"it watches":                    {[]string{nodes, nodes + "?watch=1"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			heard, answer := false, ""
			h := &earshot{heard: func() { heard = true }, next: roundTrip(func(*http.Request) (*http.Response, error) {
				switch answer {
				case "lost":
					return nil, errors.New("no route to host")
				case "fails":
					return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}, nil
				}
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			})}
			for _, asked := range c.asked {
				path, becomes, _ := strings.Cut(asked, " ")
				answer = becomes
				request, err := http.NewRequest(http.MethodGet, "https://api"+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				if response, err := h.RoundTrip(request); err == nil {
					response.Body.Close()
				}
			}
			if heard != c.heard {
				t.Errorf("heard: %t", heard)
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// TestStoryWaitsUntilAgentsHear brings up all that a story needs, the agent's hearing last.
func TestStoryWaitsUntilAgentsHear(t *testing.T) {
	s := newStream(func() time.Duration { return time.Second })
	plan := &scenarios.Plan{}
	plan.Spec.Topology.Hosts = []scenarios.Host{{Name: "worker-1"}}
	s.await(plan, []controllers.Selection{{Registration: controllers.Registration{Name: "watchdog", Place: controllers.EveryHost}}})
	s.now(history.Event{Kind: history.NodeReady, Host: "worker-1", Object: "Node/worker-1"})
	s.now(history.Event{Kind: history.ControllerStarted, Host: "worker-1", Actor: "worker-1.watchdog"})
	if n := s.count(history.RunStarted); n != 0 {
		t.Error("the story begins although the agent has not heard the API server")
	}
	s.heard("worker-1.watchdog")
	s.heard("worker-1.watchdog")
	if n := s.count(history.RunStarted); n != 1 {
		t.Errorf("the story began %d times", n)
	}
}

// TestStoryWaitsForGroundwork: the finalizers of Machines and the announcements of agents come before what a story does.
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
			b := &Backend{ctx: t.Context(), admin: fake.NewClientBuilder().WithScheme(api.NewScheme()).WithObjects(c.world...).Build()}
			if laid, err := b.laid(c.chosen); laid != c.laid || err != nil {
				t.Errorf("laid: %t, error: %v", laid, err)
			}
			s := newStream(func() time.Duration { return time.Second })
			s.await(&scenarios.Plan{}, c.chosen)
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
