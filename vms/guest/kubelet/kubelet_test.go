package kubelet

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
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

// TestLease: a Lease is read when it isn't known and when it isn't what was written last, and is
// there after each renewal.
func TestLease(t *testing.T) {
	var stored *lease // nil: there is none
	version, away := 0, false
	var asked []string
	store := func(l *lease) {
		version++
		l.Metadata.ResourceVersion = strconv.Itoa(version)
		stored = l
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method)
		var sent lease
		if r.Method != http.MethodGet {
			if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
				t.Error(err)
			}
		}
		code := 0
		switch {
		case away:
			code = http.StatusInternalServerError
		case r.Method == http.MethodPost && stored != nil:
			code = http.StatusConflict
		case r.Method != http.MethodPost && stored == nil:
			code = http.StatusNotFound
		case r.Method == http.MethodPut && sent.Metadata.ResourceVersion != stored.Metadata.ResourceVersion:
			code = http.StatusConflict
		case r.Method != http.MethodGet:
			store(&sent)
		}
		if code != 0 {
			w.WriteHeader(code)
			return
		}
		if err := json.NewEncoder(w).Encode(stored); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	k, err := New(&evidence.Kubelet{Server: server.URL, Lease: time.Second}, Machine{Name: "worker-1"}, nil, nil, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what   string
		before func()
		want   string
	}{
		{"there is none", func() {}, "GET POST"},
		{"it is known", func() {}, "PUT"},
		{"and still is", func() {}, "PUT"},
		{"somebody else wrote it", func() { store(stored) }, "PUT GET PUT"},
		{"it was deleted", func() { stored = nil }, "PUT GET POST"},
		{"nobody answers", func() { away = true }, "PUT"},
		{"nor now", func() {}, "GET"},
		{"what became of the last is not known", func() { away = false }, "GET PUT"},
	} {
		c.before()
		asked = nil
		k.renewLease(context.Background())
		if got := strings.Join(asked, " "); got != c.want {
			t.Errorf("%s: it asked %s, want %s", c.what, got, c.want)
		}
		if !away && (stored == nil || stored.Spec.HolderIdentity != "worker-1" || k.lease == nil || k.lease.Metadata.ResourceVersion != stored.Metadata.ResourceVersion) {
			t.Errorf("%s: afterwards %+v is stored and %+v known", c.what, stored, k.lease)
		}
	}
}
