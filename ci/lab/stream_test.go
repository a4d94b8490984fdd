package lab

import (
	"testing"
	"time"

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
