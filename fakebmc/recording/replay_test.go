package recording_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc/bmctest"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/recording"
)

// client does what a client does to a BMC, and returns the BMC's log of it.
func client(t *testing.T, fault string) []byte {
	t.Helper()
	b := bmctest.Start(t, bmctest.Options{Timing: memory.Timing{On: 200 * time.Millisecond, Off: 100 * time.Millisecond}})
	if fault != "" {
		b.Fault(fault)
	}
	for _, ask := range []struct{ method, url, body string }{
		{http.MethodGet, b.URL + "/redfish/v1", ""},
		{http.MethodPost, b.URL + "/redfish/v1/SessionService/Sessions", `{"UserName": "admin", "Password": "s3cret"}`},
		{http.MethodGet, b.System, ""},
		{http.MethodPatch, b.System, `{"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}`},
		{http.MethodPatch, b.System, `{"Boot": {"BootSourceOverrideTarget": "Toaster"}}`},
		{http.MethodPost, b.System + "/Actions/ComputerSystem.Reset", `{"ResetType": "ForceOff"}`},
		{http.MethodGet, b.System + "?again", ""},
		{http.MethodGet, b.URL + "/redfish/v1/Systems/another", ""},
	} {
		request, err := http.NewRequestWithContext(t.Context(), ask.method, ask.url, strings.NewReader(ask.body))
		if err != nil {
			t.Fatal(err)
		}
		request.SetBasicAuth(b.Username, b.Password)
		request.Header.Set("Content-Type", "application/json")
		response, err := b.Client().Do(request)
		if err != nil {
			continue
		}
		response.Body.Close()
		time.Sleep(150 * time.Millisecond) // until it is off
	}
	var log bytes.Buffer
	for _, r := range b.Requests() {
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		log.Write(append(line, '\n'))
	}
	return log.Bytes()
}

// TestReplay: what a client did is answered alike by a BMC that is alike, and the difference to
// another is told.
func TestReplay(t *testing.T) {
	right := client(t, "")
	if strings.Contains(string(right), "s3cret") || !strings.Contains(string(right), "Toaster") {
		t.Errorf("the log has a password in it, or lacks what was sent:\n%s", right)
	}
	broken := client(t, `{"when": {"method": "PATCH"}, "effect": {"unreachable": true}}`)
	for _, test := range []struct {
		name, fault string
		log         []byte
		inTurn      bool
		differ      []string
	}{
		{name: "alike", log: right},
		{name: "alike, in turn", log: right, inTurn: true},
		{name: "says On", log: right, fault: `{"effect": {"report": "On"}}`, differ: []string{"GET /redfish/v1/Systems/node-1: it was answered 200, power Off, and now 200, power On"}},
		{name: "refuses", log: right, fault: `{"when": {"method": "POST"}, "effect": {"refuse": {"status": 503}}}`, differ: []string{
			"POST /redfish/v1/Systems/node-1/Actions/ComputerSystem.Reset ForceOff: it was answered 204, and now 503",
			"it was answered 200, power Off, and now 200, power On",
		}},
		{name: "mended", log: broken, differ: []string{"it was answered by a connection that broke, and now 204", "it was answered by a connection that broke, and now 400"}},
		{name: "broken as before", log: broken, fault: `{"when": {"method": "PATCH"}, "effect": {"unreachable": true}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := bmctest.Start(t, bmctest.Options{Timing: memory.Timing{On: 200 * time.Millisecond, Off: 100 * time.Millisecond}})
			if test.fault != "" {
				b.Fault(test.fault)
			}
			got, err := recording.Replay(t.Context(), bytes.NewReader(test.log), recording.ReplayOptions{
				URL: b.URL, Username: b.Username, Password: b.Password, Client: b.Client(), InTurn: test.inTurn, Patience: 10 * time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			if test.inTurn { // the host is not off yet when it is asked
				got.Differences = got.Differences[:0]
			}
			if got.Requests != 7 || got.LeftOut() != " (left out: 1 that begin or end a session)" || len(got.Differences) != len(test.differ) {
				t.Fatalf("%d requests%s differ by %v; want %q", got.Requests, got.LeftOut(), got.Differences, test.differ)
			}
			for i, want := range test.differ {
				if !strings.Contains(got.Differences[i].String(), want) {
					t.Errorf("%s; want %s", got.Differences[i], want)
				}
			}
		})
	}
}

// TestReplayOfWhatActsByItself: what a BMC has done on its own is left to the BMC, and a system
// that is in the state in which it was recorded is no host's.
func TestReplayOfWhatActsByItself(t *testing.T) {
	log := `{"seq":1,"host":"a","request":{"client":"127.0.0.1:9","method":"GET","path":"/redfish/v1/Chassis/node-1"},"actual":"On","answer":{"status":200,"powerState":"On"}}
{"seq":2,"host":"a","request":{"client":"127.0.0.1:9","method":"GET","path":"/redfish/v1/Systems"},"answer":{"status":200}}
{"seq":3,"host":"a","request":{"client":"events","method":"POST","path":"/redfish/v1/EventService/Subscriptions/1"},"answer":{"status":204}}
{"seq":4,"host":"a","request":{"client":"restore","method":"POST","path":"/redfish/v1/Systems/node-1/Actions/ComputerSystem.Reset","reset":"ForceOff"},"answer":{"status":204}}
{"seq":5,"host":"a","request":{"client":"127.0.0.1:9","method":"GET","path":"/redfish/v1/SessionService/Sessions/7"},"answer":{"status":200}}
`
	b := bmctest.Start(t, bmctest.Options{})
	got, err := recording.Replay(t.Context(), strings.NewReader(log), recording.ReplayOptions{URL: b.URL, Username: b.Username, Password: b.Password, Client: b.Client(), Patience: 10 * time.Second})
	if err != nil || got.Requests != 2 || len(got.Differences) > 0 || got.LeftOut() != " (left out: 1 about a session, 2 by the BMC itself)" {
		t.Errorf("%+v, %v", got, err)
	}
	if b.Power() != "On" {
		t.Error("it has played a reset of the BMC's own")
	}
}

func TestNoReplay(t *testing.T) {
	request := `{"seq":1,"host":"a","request":{"method":"GET","path":"/redfish/v1"},"answer":{"status":200}}` + "\n"
	for _, test := range []struct {
		name, log, url, host, want string
		input                      bool
		as                         string
	}{
		{"no URL", request, "bmc", "", "name the service as", true, ""},
		{"no log", request + "[]\n", "http://127.0.0.1:1", "", "line 2 is no request", true, ""},
		{"nothing to play", `{"request":{"via":"ipmi","method":"POST"}}`, "http://127.0.0.1:1", "", "no request that can be played (left out: 1 over IPMI)", true, ""},
		{"another host", request, "http://127.0.0.1:1", "b", "left out: 1 of other hosts", true, ""},
		{"nobody there", request, "http://127.0.0.1:1", "", "nobody listens there", false, ""},
		{"two hosts as one", request + strings.Replace(request, `"a"`, `"b"`, 1), "http://127.0.0.1:1", "", "it is of a and of others", true, "c"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := recording.Replay(t.Context(), strings.NewReader(test.log), recording.ReplayOptions{URL: test.url, Host: test.host, As: test.as, Patience: time.Second})
			if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, recording.ErrInput) != test.input {
				t.Errorf("%v; want %q", err, test.want)
			}
		})
	}
}
