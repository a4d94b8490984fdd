package lab

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/processtest"
	"github.com/fencelab/fencelab/fakebmc/wall"
	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/lab/hosts"
	"github.com/fencelab/fencelab/lab/record"
	"github.com/fencelab/fencelab/lab/runner"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/play"
)

// TestProcesses runs the contract of processes on the lab's: real managers, a real API
// server, and the gates between them.
func TestProcesses(t *testing.T) {
	b, _ := bench(t, false)
	r := &hearing{b: b, ears: make(map[string]*ears)}
	b.procs.runner = r
	world := &real{b: b, runner: r}
	processtest.Run(t, func(t *testing.T) processtest.World {
		t.Parallel()
		return world
	})
}

// real is a processtest.World.
type real struct {
	b      *Backend
	runner *hearing
	mu     sync.Mutex // guards b.procs.processes
}

func (w *real) Start(t *testing.T, r controllers.Registration, replicas int) (started []processtest.Process) {
	t.Helper()
	all := []string{"get", "list", "watch", "create", "update", "patch"}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "fencelab-" + r.Name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets", "events"}, Verbs: all},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: all},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: all},
	}}
	if err := w.b.plane.admin.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	if err := w.b.grant(r); err != nil {
		t.Fatal(err)
	}
	lease := ""
	if replicas > 1 {
		lease = r.Name
	}
	for n := 1; n <= replicas; n++ {
		p := &proc{b: w.b, name: history.Process(r.Name, n), controller: controllers.Selection{Registration: r}, lease: lease}
		w.mu.Lock()
		w.b.procs.processes = append(w.b.procs.processes, p)
		w.mu.Unlock()
		if err := p.start(); err != nil {
			t.Fatal(err)
		}
		started = append(started, realProcess{p, w.runner.of(p.name)})
	}
	return started
}

func (w *real) do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *real) Create(t *testing.T, obj client.Object) {
	w.do(t, w.b.plane.admin.Create(t.Context(), obj.DeepCopyObject().(client.Object)))
}

func (w *real) Update(t *testing.T, obj client.Object) {
	w.do(t, w.b.plane.admin.Update(t.Context(), obj.DeepCopyObject().(client.Object)))
}

func (w *real) Delete(t *testing.T, obj client.Object) {
	w.do(t, client.IgnoreNotFound(w.b.plane.admin.Delete(t.Context(), obj.DeepCopyObject().(client.Object))))
}

func (w *real) Get(t *testing.T, obj client.Object) {
	w.do(t, w.b.plane.admin.Get(t.Context(), client.ObjectKeyFromObject(obj), obj))
}

func (w *real) Until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("within two minutes it doesn't come to pass that %s", what)
		}
	}
}

func (w *real) Pass(_ *testing.T, d time.Duration) { time.Sleep(d) }

// realProcess is a processtest.Process.
type realProcess struct {
	*proc
	ears *ears
}

func (p realProcess) Crash(effect int, after bool) {
	crash := &scenarios.CrashOp{Occurrence: effect, Point: scenarios.CrashBefore}
	if after {
		crash.Point = scenarios.CrashAfter
	}
	p.arm(crash)
}

func (p realProcess) Deafen() { p.ears.deafen() }
func (p realProcess) Relist() { p.ears.relist() }
func (p realProcess) End()    { p.end() }

// hearing runs controllers in this process, as inProcess does, and keeps their ears for the test,
// which deafens them.
type hearing struct {
	b *Backend

	mu   sync.Mutex
	ears map[string]*ears // by process
}

func (r *hearing) of(process string) *ears {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ears[process] == nil {
		r.ears[process] = new(ears)
	}
	return r.ears[process]
}

func (r *hearing) Start(ctx context.Context, name string, c controllers.Selection, lease string, through gate.Way) (runner.Incarnation, error) {
	return runner.InProcess{Plane: r.b.plane.controlPlane, Set: r.b.set}.Start(ctx, name, c, lease, func(next http.RoundTripper) http.RoundTripper {
		return listening{r.of(name), through(next)}
	})
}

func (*hearing) Logs() []play.Artifact { return nil }

// ears control the watches of a process: their events pass here.
type ears struct {
	mu   sync.Mutex
	deaf chan struct{} // closed when it is over; nil otherwise
	open []io.Closer
}

func (e *ears) deafen() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deaf = make(chan struct{})
	for _, watch := range e.open {
		_ = watch.Close()
	}
	e.open = nil
}

func (e *ears) relist() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.deaf)
	e.deaf = nil
}

// listening is the transport of a process with ears.
type listening struct {
	ears *ears
	next http.RoundTripper
}

// RoundTrip holds watches while the process is deaf, and then answers that the version which it
// has seen last is too old to go on from.
func (l listening) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	if !slices.Contains([]string{"1", "true"}, query.Get("watch")) {
		return l.next.RoundTrip(request)
	}
	l.ears.mu.Lock()
	deaf := l.ears.deaf
	l.ears.mu.Unlock()
	if deaf != nil {
		select {
		case <-deaf:
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
		if query.Get("sendInitialEvents") == "" {
			const gone = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}`
			return &http.Response{
				StatusCode: http.StatusGone, Status: fmt.Sprint(http.StatusGone), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
				Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(gone)),
			}, nil
		}
	}
	response, err := l.next.RoundTrip(request)
	if err == nil {
		l.ears.mu.Lock()
		if l.ears.deaf == nil {
			l.ears.open = append(l.ears.open, response.Body)
		} else {
			_ = response.Body.Close()
		}
		l.ears.mu.Unlock()
	}
	return response, err
}

// serveBMCs returns the BMCs of machines in memory that are on, and the stream that they record
// to.
func serveBMCs(t *testing.T, names ...string) (*hosts.BMCs, *record.Stream) {
	t.Helper()
	clock := wall.Clock()
	s := record.NewStream(clock.Now)
	b, err := hosts.NewBMCs(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	machines := make(map[string]hosts.Machine)
	for _, name := range names {
		machines[name] = hosts.Memory{Clock: clock}.One()
	}
	if err := b.Serve(clock, names, machines); err != nil {
		t.Fatal(err)
	}
	return b, s
}
