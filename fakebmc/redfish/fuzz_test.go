package redfish

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
)

// handler is a service without a listener, with a host that is on.
func handler(tb testing.TB, m *Mockup) http.Handler {
	tb.Helper()
	clk := &systemtest.Clock{}
	var options []fakebmc.Option
	if m != nil {
		options = append(options, m.Locate())
	}
	b := fakebmc.New("node-1", memory.New(clk, memory.Timing{}, true), clk, options...)
	tb.Cleanup(b.Close)
	s, err := NewServer(Config{Clock: clk, Mockup: m, Media: []string{"http://127.0.0.1:1/"}, Destinations: []string{"http://127.0.0.1:2/"}})
	if err != nil {
		tb.Fatal(err)
	}
	g, err := NewGroup(b)
	if err != nil {
		tb.Fatal(err)
	}
	return s.service(g, b, "127.0.0.1:1")
}

// deadlines is a recorder that takes deadlines, as a connection does.
type deadlines struct{ *httptest.ResponseRecorder }

func (deadlines) SetReadDeadline(time.Time) error  { return nil }
func (deadlines) SetWriteDeadline(time.Time) error { return nil }

// ask has a handler answer a request, and returns the status, 0 for a connection that breaks.
func ask(h http.Handler, method, path, body string) (status int) {
	defer func() {
		if broken := recover(); broken != nil && broken != http.ErrAbortHandler {
			panic(broken)
		}
	}()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "http://127.0.0.1/", strings.NewReader(body))
	r.URL.Path = path
	r.Header.Set("Content-Type", "application/json")
	h.ServeHTTP(deadlines{w}, r)
	return w.Code
}

// aims are the targets of a tree's actions.
var aims = regexp.MustCompile(`"target": *"[^"]*"`)

// FuzzMockup reads bytes as a tree, each path with its resource: whatever they are, they are
// refused or served, and each path, action and change is answered.
func FuzzMockup(f *testing.F) {
	files, err := filepath.Glob("testdata/shapes/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(aims.ReplaceAll(data, []byte(`"target":"/redfish/v1/"`)))                           // which is a resource
		f.Add(bytes.ReplaceAll(data, []byte("#Processor.v1_6_0.Processor"), []byte("Processor"))) // which names no schema
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var tree map[string]json.RawMessage
		if json.Unmarshal(data, &tree) != nil || len(tree) > 100 {
			return
		}
		files := fstest.MapFS{}
		for at, resource := range tree {
			if name := strings.Trim(at, "/") + "/index.json"; fs.ValidPath(name) {
				files[name] = &fstest.MapFile{Data: resource}
			}
		}
		m, err := readMockup(files)
		if err != nil {
			return
		}
		h := handler(t, m)
		for at := range m.resources {
			if got := ask(h, http.MethodGet, at, ""); got != http.StatusOK {
				t.Errorf("%s answers %d", at, got)
			}
			ask(h, http.MethodPatch, at, `{"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}`)
			ask(h, http.MethodPatch, at, `{"Image": "http://127.0.0.1:1/x"}`)
		}
		for at := range m.actions {
			ask(h, http.MethodPost, at, `{"ResetType": "ForceOff"}`)
			ask(h, http.MethodPost, at, `{"Image": "http://127.0.0.1:1/x"}`)
		}
	})
}

// FuzzBodies sends bytes as the body of whatever takes one: it is answered, and not by an error of
// the service's own.
func FuzzBodies(f *testing.F) {
	const system, manager = "/redfish/v1/Systems/node-1", "/redfish/v1/Managers/node-1"
	to := []struct{ method, path string }{
		{http.MethodPatch, system}, {http.MethodPost, system + fakebmc.ResetAction}, {http.MethodPost, manager + "/VirtualMedia/Cd" + insertAction},
		{http.MethodPost, manager + "/VirtualMedia/Cd" + ejectAction}, {http.MethodPost, sessionsPath}, {http.MethodPatch, sessionServicePath},
		{http.MethodPost, subscriptionsPath}, {http.MethodPost, system + clearAction}, {http.MethodPost, "/redfish/v1/Chassis/node-1" + fakebmc.ChassisResetAction},
	}
	for i, body := range []string{
		`{"Boot": {"BootSourceOverrideTarget": "UefiTarget", "UefiTargetBootSourceOverride": "x"}, "HostWatchdogTimer": {"FunctionEnabled": true}}`, `{"ResetType": "On"}`,
		`{"Image": "http://127.0.0.1:1/x", "Inserted": true}`, `{}`, `{"UserName": "a", "Password": "b"}`, `{"SessionTimeout": 60}`,
		`{"Destination": "http://127.0.0.1:2/", "EventTypes": ["Alert"], "OriginResources": [{"@odata.id": "/redfish/v1/Systems/node-1"}], "HttpHeaders": [{"A": "b"}]}`,
		`{"LogEntriesETag": "x"}`, `{"ResetType": null}`,
	} {
		f.Add(uint8(i), body, "$filter=PowerState eq 'On' and not (Id eq 'x')")
	}
	f.Fuzz(func(t *testing.T, which uint8, body, filter string) {
		h := handler(t, nil)
		x := to[int(which)%len(to)]
		if got := ask(h, x.method, x.path, body); got >= http.StatusInternalServerError && got != http.StatusServiceUnavailable {
			t.Errorf("%s %s answers %d to %q", x.method, x.path, got, body)
		}
		if quoted := quotable([]byte(body)); quoted != "" && !json.Valid([]byte(quoted)) {
			t.Errorf("%q is quoted as %q", body, quoted)
		}
		if f, err := parseFilter(filter); err == nil {
			f(object{"PowerState": "On", "Id": 1})
		}
	})
}
