package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/lab/container"
	"github.com/fencelab/fencelab/lab/door"
	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/lab/hosts"
	"github.com/fencelab/fencelab/lab/record"
	"github.com/fencelab/fencelab/lab/runner"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
)

// TestRefuse holds the requests of a controller against a failAPI.
func TestRefuse(t *testing.T) {
	const machines = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machines"
	for _, c := range []struct {
		op           scenarios.FailAPIOp
		method, path string
		refused      bool
	}{
		{scenarios.FailAPIOp{Verb: "delete", Kind: "Node", Code: 403}, http.MethodDelete, "/api/v1/nodes/worker-1", true},
		{scenarios.FailAPIOp{Verb: "delete", Kind: "Node", Code: 403}, http.MethodGet, "/api/v1/nodes/worker-1", false},
		{scenarios.FailAPIOp{Verb: "delete", Kind: "Node", Code: 403}, http.MethodDelete, "/api/v1/namespaces/default/pods/exclusive", false},
		{scenarios.FailAPIOp{Verb: "get", Code: 500}, http.MethodGet, "/api/v1/nodes/worker-1", true},
		{scenarios.FailAPIOp{Verb: "list", Code: 500}, http.MethodGet, "/api/v1/nodes/worker-1", false},
		{scenarios.FailAPIOp{Verb: "list", Kind: "Machine", Code: 429}, http.MethodGet, machines, true},
		{scenarios.FailAPIOp{Code: 429}, http.MethodGet, machines + "?watch=true&resourceVersion=5", false},
		{scenarios.FailAPIOp{Verb: "patch", Kind: "Machine", Code: 409}, http.MethodPatch, machines + "/worker-1/status", true},
		{scenarios.FailAPIOp{Controller: "reboot", Code: 409}, http.MethodPatch, machines + "/worker-1", false},
		{scenarios.FailAPIOp{Controller: "remediation", Code: 409}, http.MethodPatch, machines + "/worker-1", true},
		{scenarios.FailAPIOp{Code: 404}, http.MethodGet, "/version", false},
	} {
		b := &Backend{
			plan: new(scenarios.Plan), kinds: objects.KindsOf(controllers.Default()), plane: plane{door: door.New(nil, nil)},
			record: &record.Record{Stream: record.NewStream(func() time.Duration { return 0 })},
		}
		l := &life{p: &proc{b: b, name: "remediation"}, up: true}
		c.op.Times = 1
		b.procs.refusals.add(&c.op)
		for i := range 2 {
			err := l.Asked(t.Context(), gate.API(b.kinds)(httptest.NewRequest(c.method, c.path, nil), nil))
			var refusal *gate.Refusal
			if refused := errors.As(err, &refusal); refused != (c.refused && i == 0) || err != nil && !refused {
				t.Errorf("%s: %s %s for the %d. time: %v", &c.op, c.method, c.path, i+1, err)
			}
			if refusal != nil && (refusal.Code != c.op.Code || len(b.record.Pending()) != 1) {
				t.Errorf("%s: refused with %d, and the history has %v", &c.op, refusal.Code, b.record.Pending())
			}
		}
	}
}

// hands is a runner whose controllers the test plays.
type hands struct{ started chan *hand }

type hand struct {
	api  http.RoundTripper
	done chan struct{}
}

func (r hands) Start(_ context.Context, _ string, _ controllers.Selection, _ string, through gate.Way) (runner.Incarnation, error) {
	h := &hand{api: through(roundTrips(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}")), Header: http.Header{}, Request: r}, nil
	})), done: make(chan struct{})}
	r.started <- h
	return h, nil
}

func (hands) Logs() []play.Artifact { return nil }

func (h *hand) Kill() {
	select {
	case <-h.done:
	default:
		close(h.done)
	}
}
func (h *hand) Ended() <-chan struct{}            { return h.done }
func (*hand) Ready() (string, *container.Network) { return "", nil }
func (*hand) Failure() error                      { return errors.New("it ended") }
func (*hand) Pause() error                        { return nil }
func (*hand) Resume() error                       { return nil }

type roundTrips func(*http.Request) (*http.Response, error)

func (f roundTrips) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// act sends an effect, and says whether its caller had an answer.
func (h *hand) act(t *testing.T, effect int) bool {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, fmt.Sprintf("http://api/api/v1/nodes/n-%d", effect), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := h.api.RoundTrip(request)
	if err == nil {
		err = response.Body.Close()
	}
	return err == nil
}

// TestCrashes plays controllers that crash around their effects, and start again.
func TestCrashes(t *testing.T) {
	for name, c := range map[string]struct {
		crash scenarios.CrashOp
		want  []string // of the history, for three effects of each life
		last  int      // which life does them all
	}{
		"before the second": {scenarios.CrashOp{Occurrence: 2, Point: scenarios.CrashBefore}, []string{
			"controller-started", "controller-effect delete Node/n-1", "controller-crashed before delete Node/n-2",
			"controller-started", "controller-effect delete Node/n-1", "controller-effect delete Node/n-2", "controller-effect delete Node/n-3"}, 2},
		"after the second": {scenarios.CrashOp{Occurrence: 2, Point: scenarios.CrashAfter}, []string{
			"controller-started", "controller-effect delete Node/n-1", "controller-effect delete Node/n-2", "controller-crashed after delete Node/n-2",
			"controller-started", "controller-effect delete Node/n-1", "controller-effect delete Node/n-2", "controller-effect delete Node/n-3"}, 2},
		"after each": {scenarios.CrashOp{Each: true, Point: scenarios.CrashAfter}, []string{
			"controller-started", "controller-effect delete Node/n-1", "controller-crashed after delete Node/n-1",
			"controller-started", "controller-effect delete Node/n-1", "controller-crashed after delete Node/n-1"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b, s := serveBMCs(t)
			r := hands{make(chan *hand, 10)}
			backend := &Backend{
				plan: new(scenarios.Plan), kinds: objects.KindsOf(controllers.Default()), ctx: t.Context(), record: &record.Record{Stream: s},
				plane: plane{door: door.New(s, gate.API(nil))}, hosts: hosts.Hosts{BMCs: b}, procs: running{runner: r},
			}
			p := &proc{b: backend, name: "remediation"}
			p.arm(&c.crash)
			if err := p.start(); err != nil {
				t.Fatal(err)
			}
			for life := 1; life <= 2; life++ {
				h := <-r.started
				alive := true
				for effect := 1; effect <= 3; effect++ {
					answered := h.act(t, effect)
					if answered && !alive {
						t.Errorf("a dead process had an answer to its effect %d", effect)
					}
					alive = alive && answered
				}
				if alive != (life == c.last) {
					t.Errorf("life %d is over: %t", life, !alive)
				}
			}
			p.stop()
			var got []string
			for _, e := range s.Pending() {
				got = append(got, strings.TrimSpace(string(e.Kind)+" "+e.Value+e.Note))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("the history has\n%q, want\n%q", got, c.want)
			}
		})
	}
}
