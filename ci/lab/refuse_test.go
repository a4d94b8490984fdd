package lab

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fencelab/fencelab/scenarios"
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
		b := &Backend{stream: newStream(func() time.Duration { return 0 })}
		p := &process{b: b, name: "remediation"}
		c.op.Times = 1
		b.refusals.add(&c.op)
		for i := range 2 {
			response := p.refuse(httptest.NewRequest(c.method, c.path, strings.NewReader("{}")))
			if want := c.refused && i == 0; (response != nil) != want {
				t.Errorf("%s: %s %s for the %d. time is refused: %t, want %t", &c.op, c.method, c.path, i+1, response != nil, want)
			}
			if response == nil {
				continue
			}
			var status metav1.Status
			if err := json.NewDecoder(response.Body).Decode(&status); err != nil || response.StatusCode != c.op.Code || status.Reason == "" || len(b.stream.pending) != 1 {
				t.Errorf("%s: the answer is %s with %+v (%v), and the history has %v", &c.op, response.Status, status, err, b.stream.pending)
			}
		}
	}
}
