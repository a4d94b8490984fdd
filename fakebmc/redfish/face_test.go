package redfish_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
)

// TestFace: the service without a listener answers at once, later by the BMC's clock, or never, and
// a connection that is lost is an error.
func TestFace(t *testing.T) {
	for _, c := range []struct{ name, rule, method, path, body, want, later string }{
		{name: "read", method: "GET", path: "/redfish/v1/Systems/h", want: `200 "PowerState":"On"`},
		{name: "root", method: "GET", path: "/redfish/v1/", want: "200 RedfishVersion"},
		{name: "login", method: "POST", path: "/redfish/v1/SessionService/Sessions", body: `{"UserName":"a","Password":"b"}`, want: "201 SessionType"},
		{name: "reset", method: "POST", path: "/redfish/v1/Systems/h/Actions/ComputerSystem.Reset", body: `{"ResetType":"ForceOff"}`, want: "204 "},
		{name: "unknown", method: "GET", path: "/redfish/v1/Systems/x", want: "404 error"},
		{name: "stream", method: "GET", path: "/redfish/v1/EventService/SSE", want: "503 error"},
		{name: "too long", method: "POST", path: "/redfish/v1/Systems/h/Actions/ComputerSystem.Reset", body: strings.Repeat(" ", 70<<10), want: "413 error"},
		{name: "delayed", rule: `{"effect": {"delay": "5s"}}`, method: "GET", path: "/redfish/v1/Systems/h", later: `200 "PowerState":"On"`},
		{name: "hangs", rule: `{"effect": {"hang": true}}`, method: "GET", path: "/redfish/v1/Systems/h"},
		{name: "lost", rule: `{"effect": {"unreachable": true}}`, method: "GET", path: "/redfish/v1/Systems/h", want: "unreachable"},
	} {
		clock := &systemtest.Clock{}
		b := fakebmc.New("h", memory.New(clock, memory.Timing{On: time.Second, Off: time.Second, Shutdown: time.Second}, true), clock)
		if c.rule != "" {
			if err := b.AddRule(systemtest.Rules(t, c.rule)[0]); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		f, err := redfish.NewFace(b, clock)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequest(c.method, "http://h"+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		var got string
		f.Do(r, []byte(c.body), func(answer *http.Response, err error) {
			if got = "unreachable"; !errors.Is(err, fakebmc.ErrUnreachable) {
				data, _ := io.ReadAll(answer.Body)
				got = answer.Status + " " + string(bytes.ReplaceAll(data, []byte(": "), []byte(":")))
			}
		})
		for _, want := range []string{c.want, c.later} {
			status, text, _ := strings.Cut(want, " ")
			if !strings.HasPrefix(got, status) || !strings.Contains(got, text) || want == "" && got != "" {
				t.Errorf("%s: answered %.300q, want %q", c.name, got, want)
			}
			if c.later == "" {
				break
			}
			clock.Advance(6 * time.Second)
		}
	}
}
