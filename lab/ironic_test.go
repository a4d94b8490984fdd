package lab

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/lab/hosts"
)

// TestWayToIronic: a program knows its own ways to the BMCs and calls nodes as it likes. Ironic
// hears of the ways that it was given, and what it then does is done in the program's name.
func TestWayToIronic(t *testing.T) {
	b, _ := serveBMCs(t, "worker-1")
	var told string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPatch:
			told = string(body)
			_, _ = w.Write(body)
		case r.Method == http.MethodGet && r.URL.Path == "/v1/nodes/c0ffee":
			_, _ = io.WriteString(w, `{"uuid": "c0ffee", "name": "default~worker-1"}`)
		case r.Method == http.MethodPut:
			w.WriteHeader(http.StatusAccepted)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	endpoint, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := &ironicOwner{
		bmcs: b, since: func() time.Duration { return 0 }, endpoint: endpoint, asked: make(map[string]commission),
		hosts: map[string]string{"default~worker-1": "worker-1"}, ways: map[string]string{"worker-1": "127.0.0.1:40001"},
	}
	way, err := o.serve(gate.Everything{}, "operator", map[string]string{"worker-1": "127.0.0.1:50001"})
	if err != nil {
		t.Fatal(err)
	}
	defer way.Close()
	ask := func(method, path, body string) string {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, way.URL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		data, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}

	const said, meant = `{"redfish_address":"http://127.0.0.1:50001"}`, `{"redfish_address":"http://127.0.0.1:40001"}`
	if answer := ask(http.MethodPatch, "/v1/nodes/c0ffee", said); told != meant || answer != said {
		t.Errorf("Ironic was told %s and the program %s, want %s and %s", told, answer, meant, said)
	}

	ask(http.MethodPut, "/v1/nodes/unknown/states/power", `{"target": "power off"}`)
	ask(http.MethodPut, "/v1/nodes/c0ffee/states/power", `{"target": "power off"}`)
	reset, err := http.NewRequestWithContext(context.Background(), http.MethodPost,
		b.URLs["worker-1"].String()+"/redfish/v1/Systems/worker-1/Actions/ComputerSystem.Reset", strings.NewReader(`{"ResetType": "ForceOff"}`))
	if err != nil {
		t.Fatal(err)
	}
	reset.SetBasicAuth(hosts.BMCUser, b.Password)
	reset.Header.Set("Content-Type", "application/json")
	response, err := (&toBMC{o, "worker-1"}).RoundTrip(reset)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if by := b.Asker("worker-1", fakebmc.ResetForceOff); by != "operator" {
		t.Errorf("Ironic has reset the host in the name of %q (%s), want the operator's", by, response.Status)
	}
}
