package sim

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/processtest"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/kube"
)

// TestProcesses runs the contract of processes on simulated ones.
func TestProcesses(t *testing.T) {
	processtest.Run(t, func(t *testing.T) processtest.World { return simulated{open(t, nil, nil)} })
}

// simulated is a processtest.World.
type simulated struct{ st *stage }

func (w simulated) Start(t *testing.T, r controllers.Registration, replicas int) (started []processtest.Process) {
	for n := 1; n <= replicas; n++ {
		p, err := w.st.b.addProcess(controllers.Selection{Registration: r}, n)
		if err != nil {
			t.Fatal(err)
		}
		if replicas > 1 {
			w.st.b.candidate(p, "fencelab-"+r.Name)
		}
		p.restart(startLatency)
		started = append(started, simulatedProcess{w, p})
	}
	return started
}

func (w simulated) kind(t *testing.T, obj client.Object) *kube.Kind {
	kind, err := w.st.b.store.Server().KindOf(obj)
	if err != nil {
		t.Fatal(err)
	}
	return kind
}

func (w simulated) Create(t *testing.T, obj client.Object) {
	if _, err := w.st.b.store.Create(history.User, obj); err != nil {
		t.Fatal(err)
	}
}

func (w simulated) Update(t *testing.T, obj client.Object) {
	if _, err := w.st.b.store.Update(history.User, obj); err != nil {
		t.Fatal(err)
	}
}

func (w simulated) Delete(t *testing.T, obj client.Object) {
	if err := w.st.b.store.Delete(history.User, w.kind(t, obj), client.ObjectKeyFromObject(obj), nil); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

func (w simulated) Get(t *testing.T, obj client.Object) {
	if err := (inStore{w}).get(obj); err != nil {
		t.Fatal(err)
	}
}

func (w simulated) Until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 60_000 {
		if holds() {
			return
		}
		w.st.pass(time.Millisecond)
	}
	t.Fatalf("within a minute it doesn't come to pass that %s", what)
}

func (w simulated) Pass(_ *testing.T, d time.Duration) { w.st.pass(d) }

// simulatedProcess is a processtest.Process.
type simulatedProcess struct {
	w simulated
	*process
}

func (p simulatedProcess) Crash(effect int, after bool) {
	crash := &scenarios.CrashOp{Controller: p.actor.name, Occurrence: effect, Point: scenarios.CrashBefore}
	if after {
		crash.Point = scenarios.CrashAfter
	}
	p.w.st.do(scenarios.Op{Crash: crash})
}

func (p simulatedProcess) Deafen() {
	for _, s := range p.cache.streams {
		s.frozen = true
	}
}

func (p simulatedProcess) Relist() {
	for _, s := range p.cache.streams {
		s.frozen = false
		s.relist()
	}
}

func (p simulatedProcess) End() { p.end() }
