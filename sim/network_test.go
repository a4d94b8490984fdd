package sim_test

import (
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim"
)

// TestOneWay cuts one direction between a host and the API server. A kubelet that is not heard
// still hears, and stops unwanted Pods. One that hears nothing is heard once more: its next
// renewal takes effect, and it doesn't know.
func TestOneWay(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	const host = "host/worker-1"
	played := func(link scenarios.LinkOp) (notReady time.Duration, stopped bool) {
		t.Helper()
		story := *scenario(t, "cut-off-host")
		story.Spec.Steps = []scenarios.Step{
			{Do: &scenarios.Op{Cut: &link}},
			{When: scenarios.Trigger{Event: string(history.NodeNotReady), Host: "worker-1"}, Do: &scenarios.Op{Delete: &scenarios.ObjectOp{Object: "Node/worker-1"}}},
			{When: scenarios.Trigger{Event: string(history.WorkloadStarted), Host: "worker-2"}},
		}
		story.Spec.Controllers, story.Spec.HealthCheck = nil, nil
		plan, err := scenarios.Compile(&story, 1)
		if err != nil {
			t.Fatal(err)
		}
		var cut time.Duration
		for _, e := range playOn(t, s, plan).History.Events() {
			switch e.Kind {
			case history.LinkCut:
				cut = e.At
			case history.NodeNotReady:
				if notReady == 0 {
					notReady = e.At - cut
				}
			case history.WorkloadStopped:
				stopped = true
			case history.Healed:
				return notReady, stopped
			}
		}
		return notReady, stopped
	}
	dead, stopped := played(scenarios.LinkOp{Host: "worker-1"})
	if stopped {
		t.Error("a host that is cut off stopped its workload")
	}
	mute, stopped := played(scenarios.LinkOp{From: host, To: scenarios.API})
	if !stopped || mute != dead {
		t.Errorf("a host that hears and isn't heard was not Ready after %s, want %s; it stopped its workload: %t", mute, dead, stopped)
	}
	deaf, stopped := played(scenarios.LinkOp{From: scenarios.API, To: host})
	if stopped || deaf <= dead || deaf > dead+2*time.Second {
		t.Errorf("a host that is heard and hears nothing was not Ready after %s, want one Lease after %s; it stopped its workload: %t", deaf, dead, stopped)
	}
	if both, _ := played(scenarios.LinkOp{Between: []string{scenarios.API, host}}); both != dead {
		t.Errorf("with both directions cut the host was not Ready after %s, want %s", both, dead)
	}
}
