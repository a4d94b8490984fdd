package hosts

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
	"github.com/fencelab/fencelab/fakebmc/wall"
	"github.com/fencelab/fencelab/lab/record"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/model"
	"github.com/fencelab/fencelab/vms/guest/evidence"
	"github.com/fencelab/fencelab/vms/network"
)

// newModel returns a host that is off, and what happened to it when it is asked.
func newModel(t *testing.T, timings scenarios.HostTimings) (*modelled, *record.Stream) {
	t.Helper()
	s := record.NewStream(wall.Clock().Now)
	all := OpenModels(context.Background(), timings, s, func(string, fakebmc.ResetType) string { return "reboot" })
	t.Cleanup(func() {
		if _, err := all.Close(); err != nil {
			t.Error(err)
		}
	})
	// Nothing listens there: its kubelet complains, and tries again.
	m, err := all.Add(&scenarios.Host{Name: "worker-1"}, nil, &evidence.Kubelet{Server: "https://127.0.0.1:1", Lease: time.Second, Status: time.Second, Pods: time.Second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m.(*modelled), s
}

// count returns the number of events of a kind so far.
func count(s *record.Stream, kind history.Kind) (n int) {
	for _, e := range s.Pending() {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// TestModelIsASystem holds a model on this machine's clock against the contract of what a
// BMC controls.
func TestModelIsASystem(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCELAB_E2E") == "quick" || os.Getenv("FENCELAB_REQUIRE_LAB") == "" {
		t.Skip("it runs with make e2e")
	}
	ms := func(n int) scenarios.Duration { return scenarios.Duration(time.Duration(n) * time.Millisecond) }
	systemtest.Run(t, func(t *testing.T, on bool) systemtest.Fixture {
		m, s := newModel(t, scenarios.HostTimings{Boot: ms(400), SoftOff: ms(200), HardOff: ms(100)})
		if on {
			if err := m.SwitchOn(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		m.woken = true
		return systemtest.Fixture{
			System: m, Advance: func(d time.Duration) { <-time.After(d) }, // real time is waited for
			Step: 20 * time.Millisecond, Limit: 3 * time.Second, Hold: 500 * time.Millisecond, Real: true,
			Boots: func() int { return count(s, history.BootStarted) },
		}
	})
}

// server answers, and counts what arrives.
type server struct{ arrived atomic.Int32 }

func (s *server) RoundTrip(*http.Request) (*http.Response, error) {
	s.arrived.Add(1)
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
}

// TestModelsKubeletGoesItsHostsWay looks at what becomes of a kubelet's requests while the host's
// links are cut, while it is paused, and when its boot has ended.
func TestModelsKubeletGoesItsHostsWay(t *testing.T) {
	const patience = 3 * time.Second
	there, back := network.Link{From: "host/worker-1", To: "api"}, network.Link{From: "api", To: "host/worker-1"}
	for _, c := range []struct {
		name string
		do   func(*modelled)
		undo func(*modelled)
		// arrives, and is answered, of a request on an open connection and of the next one.
		arrives, answered []bool
		// later says that the first is answered once that is undone.
		later bool
	}{
		{"nothing is wrong", func(*modelled) {}, func(*modelled) {}, []bool{true, true}, []bool{true, true}, false},
		{"no request arrives", func(m *modelled) { m.all.Cut(there) }, func(m *modelled) { m.all.Restore(there) }, []bool{false, false}, []bool{false, false}, true},
		{"no answer arrives", func(m *modelled) { m.all.Cut(back) }, func(m *modelled) { m.all.Restore(back) }, []bool{true, false}, []bool{false, false}, true},
		{"all is cut", func(m *modelled) { m.all.Cut(network.All("host/worker-1")...) }, func(m *modelled) { m.all.RestoreAll(nil) }, []bool{false, false}, []bool{false, false}, true},
		{"the host is paused", func(m *modelled) { m.all.do(m.host.Pause) }, func(m *modelled) { m.all.do(m.host.Resume) }, []bool{false, false}, []bool{false, false}, true},
		{"the power is gone", func(m *modelled) { m.all.do(func() { m.host.LosePower("") }) }, func(*modelled) {}, []bool{false, false}, []bool{false, false}, false},
		{"the kubelet is killed", func(m *modelled) { m.all.do(func() { m.obey(evidence.StopKubelet) }) }, func(*modelled) {}, []bool{false, false}, []bool{false, false}, false},
		{"another host is cut off", func(m *modelled) { m.all.Cut(network.All("host/worker-2")...) }, func(*modelled) {}, []bool{true, true}, []bool{true, true}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			// open is the end of a connection that is open, of a host that runs.
			open := func(t *testing.T) (*modelled, *server, func() error) {
				m, _ := newModel(t, scenarios.HostTimings{Boot: scenarios.Duration(time.Second)})
				if err := m.SwitchOn(t.Context()); err != nil {
					t.Fatal(err)
				}
				s := new(server)
				wire := m.life.wire(s)
				ask := func() error {
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					defer cancel()
					request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api", nil)
					if err != nil {
						t.Fatal(err)
					}
					_, err = wire.RoundTrip(request)
					return err
				}
				if err := ask(); err != nil {
					t.Fatal(err)
				}
				s.arrived.Store(0)
				return m, s, ask
			}
			synctest.Test(t, func(t *testing.T) {
				m, s, ask := open(t)
				c.do(m)
				for i := range 2 {
					err := ask()
					if arrived := s.arrived.Swap(0) > 0; arrived != c.arrives[i] || (err == nil) != c.answered[i] {
						t.Errorf("request %d: arrived is %t, and the answer %v; want %t and %t", i+1, arrived, err, c.arrives[i], c.answered[i])
					}
				}
			})
			synctest.Test(t, func(t *testing.T) {
				m, _, ask := open(t)
				c.do(m)
				time.AfterFunc(patience/2, func() { c.undo(m) })
				if err := ask(); (err == nil) != (c.later || c.answered[0]) {
					t.Errorf("a request that was under way when it ended: %v", err)
				}
			})
		})
	}
}

// TestModelsKubeletIsKilled: what a kubelet of a boot that is over does has no effect, and what
// one of a paused host does has it when the host goes on.
func TestModelsKubeletIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := newModel(t, scenarios.HostTimings{Boot: scenarios.Duration(time.Second), SoftOff: scenarios.Duration(time.Second)})
		if err := m.SwitchOn(t.Context()); err != nil {
			t.Fatal(err)
		}
		first := m.life
		if started, err := first.Start("uid", "exclusive"); !started || err != nil {
			t.Errorf("start: %t, %v", started, err)
		}
		if started, err := first.Start("uid", "exclusive"); started || err != nil {
			t.Errorf("start again: %t, %v", started, err)
		}
		// Killed alone it leaves the workload, which the next one finds.
		m.all.do(func() { m.obey(evidence.StopKubelet); m.obey(evidence.StartKubelet) })
		first.Stop("uid")
		if _, err := first.Start("other", "other"); !errors.Is(err, errLifeOver) {
			t.Errorf("a killed kubelet starts a workload: %v", err)
		}
		if running := m.life.Running(); len(running) != 1 || count(s, history.WorkloadStopped) != 0 {
			t.Errorf("running is %q", running)
		}
		m.all.do(m.host.Pause)
		began := time.Now()
		time.AfterFunc(time.Minute, func() { m.all.do(m.host.Resume) })
		m.life.Stop("uid")
		if count(s, history.WorkloadStopped) != 1 || time.Since(began) != time.Minute {
			t.Errorf("a paused host has stopped its workload %d times after %s", count(s, history.WorkloadStopped), time.Since(began))
		}
		// A shutdown has the kubelet stop what runs, and then the power goes.
		if _, err := m.life.Start("uid", "exclusive"); err != nil {
			t.Error(err)
		}
		if err := m.Reset(fakebmc.ResetGracefulShutdown); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if count(s, history.WorkloadStopped) != 2 || count(s, history.PowerOff) != 0 {
			t.Error("a shutdown doesn't begin with its workloads")
		}
		time.Sleep(2 * time.Second)
		if state, err := m.PowerState(); state != fakebmc.Off || err != nil {
			t.Errorf("after the shutdown it is %s, %v", state, err)
		}
	})
}

var _ model.Software = (*modelled)(nil)
