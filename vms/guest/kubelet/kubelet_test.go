package kubelet

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// TestStatus: the Node's status is written where it doesn't say what it should, and else not again.
func TestStatus(t *testing.T) {
	saying := func(ready, boot string) *node {
		return &node{Status: nodeStatus{Conditions: []condition{{Type: "MemoryPressure", Status: "False"}, {Type: "Ready", Status: ready}}, NodeInfo: &nodeInfo{BootID: boot}}}
	}
	var stored *node // nil: there is none
	written := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case stored == nil:
			w.WriteHeader(http.StatusNotFound)
			return
		case r.Method == http.MethodPatch && r.URL.Path == "/api/v1/nodes/worker-1/status":
			written++
			stored = saying("True", "this")
		}
		if err := json.NewEncoder(w).Encode(stored); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	k, err := New(&evidence.Kubelet{Server: server.URL}, Machine{Name: "worker-1", Boot: "this"}, nil, nil, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what     string
		stored   *node
		reported time.Duration // ago
		want     int
		missing  bool
	}{
		{"it says so", saying("True", "this"), 0, 0, false},
		{"it was taken for dead", saying("Unknown", "this"), 0, 1, false},
		{"it tells of an earlier boot", saying("True", "earlier"), 0, 1, false},
		{"it says nothing yet", &node{}, 0, 1, false},
		{"long ago", saying("True", "this"), 2 * reportInterval, 1, false},
		{"it was deleted", nil, 0, 0, true},
	} {
		stored, written, k.reported = c.stored, 0, time.Now().Add(-c.reported)
		for range 3 { // it is written once
			if err := k.syncStatus(context.Background()); isStatus(err, http.StatusNotFound) != c.missing || !c.missing && err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
		}
		if written != c.want {
			t.Errorf("%s: the status was written %d times, want %d", c.what, written, c.want)
		}
	}
}
