package sim

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/kube"
)

// TestRefusalEndsTheRun: a request that the API server doesn't model ends a run, even when the
// caller hides the error.
func TestRefusalEndsTheRun(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := scenarios.Compile(&scenarios.Scenario{
		Metadata: scenarios.Metadata{Name: "refusal"},
		Spec: scenarios.Spec{
			Topology:    scenarios.Topology{Hosts: []scenarios.Host{{Name: "worker-1"}}},
			Controllers: []scenarios.Controller{{Name: "reboot"}},
		},
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	b := s.Backend()
	if _, err := b.Start(context.Background(), plan); err != nil {
		t.Fatal(err)
	}
	listen := func(history.Event) bool { return false }
	if _, err := b.Advance(time.Second, listen); err != nil {
		t.Fatal(err)
	}
	_, _ = b.store.Patch("somebody", s.kinds.node, client.ObjectKey{Name: "worker-1"}, false, types.ApplyYAMLPatchType, []byte(`{}`))
	var unmodelled *kube.Unmodelled
	if _, err := b.Advance(2*time.Second, listen); !errors.As(err, &unmodelled) {
		t.Errorf("after a request that isn't modelled the run goes on: %v", err)
	}
}
