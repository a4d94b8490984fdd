package bmctest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/bmctest"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
)

// ask makes a request of a BMC and returns the status and the body, 0 for no answer.
func ask(t *testing.T, b *bmctest.BMC, method, url, body string) (int, map[string]any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.SetBasicAuth(b.Username, b.Password)
	request.Header.Set("Content-Type", "application/json")
	response, err := b.Client().Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var shown map[string]any
	_ = json.Unmarshal(data, &shown) // an empty body shows nothing
	return response.StatusCode, shown
}

func reset(t *testing.T, b *bmctest.BMC, kind fakebmc.ResetType) int {
	t.Helper()
	status, _ := ask(t, b, http.MethodPost, b.System+fakebmc.ResetAction, `{"ResetType": "`+string(kind)+`"}`)
	return status
}

// TestStart has one BMC that is honest, and one whose answer is lost although it did as it was
// told.
func TestStart(t *testing.T) {
	for _, o := range []bmctest.Options{{}, {Plain: true}, {Host: "worker-7"}} {
		b := bmctest.Start(t, o)
		if status, shown := ask(t, b, http.MethodGet, b.System, ""); status != http.StatusOK || shown["PowerState"] != "On" {
			t.Fatalf("%+v: %d %v", o, status, shown)
		}
		if status := reset(t, b, fakebmc.ResetForceOff); status != http.StatusNoContent || b.Power() != fakebmc.Off {
			t.Errorf("%+v: %d, and the host is %s", o, status, b.Power())
		}
		if reset(t, b, fakebmc.ResetOn); b.Power() != fakebmc.On || b.Boots() != 2 {
			t.Errorf("%+v: the host is %s in its boot %d", o, b.Power(), b.Boots())
		}
		end := b.Fault(`{"when": {"reset": ["ForceOff"]}, "effect": {"unreachable": true, "stage": "executed"}}`)
		if status := reset(t, b, fakebmc.ResetForceOff); status != 0 || b.Power() != fakebmc.Off {
			t.Errorf("%+v: %d, and the host is %s", o, status, b.Power())
		}
		end()
		if status := reset(t, b, fakebmc.ResetOn); status != http.StatusNoContent {
			t.Errorf("%+v: %d after the fault", o, status)
		}
		kinds := []fakebmc.ResetType{}
		for _, r := range b.Requests() {
			if r.Request.ResetType != "" {
				kinds = append(kinds, r.Request.ResetType)
			}
		}
		if want := []fakebmc.ResetType{"ForceOff", "On", "ForceOff", "On"}; !slices.Equal(kinds, want) {
			t.Errorf("%+v: recorded %v, want %v", o, kinds, want)
		}
	}
}

// TestOffAtFirst has a host that is off, and a preset by its name.
func TestOffAtFirst(t *testing.T) {
	b := bmctest.Start(t, bmctest.Options{Off: true})
	b.Fault("on-ignored")
	if status := reset(t, b, fakebmc.ResetOn); status != http.StatusNoContent || b.Power() != fakebmc.Off || b.Boots() != 0 {
		t.Errorf("%d, and the host is %s in its boot %d", status, b.Power(), b.Boots())
	}
}

// fatal is a test that is told to fail.
type fatal struct {
	testing.TB
	said string
}

func (f *fatal) Helper() {}
func (f *fatal) Fatalf(format string, args ...any) {
	f.said = format
	for _, a := range args {
		if err, ok := a.(error); ok {
			f.said = err.Error()
		}
	}
	panic(f)
}

// TestWrongFaults are told to whoever wrote the test.
func TestWrongFaults(t *testing.T) {
	for fault, want := range map[string]string{
		"no-such-preset":                                    "there is no preset",
		`{"effect": {"explode": true}}`:                     "unknown field",
		`{"effect": {"hang": true}`:                         "unexpected end",
		`{"when": {"via": "ipmi"}, "effect": {"cap": 3}}`:   "would never fire",
		`{"when": {"host": "x"}, "effect": {"hang": true}}`: "when.host \"x\" is none of node-1",
	} {
		f := &fatal{TB: t}
		func() {
			defer func() { _ = recover() }()
			bmctest.Start(f, bmctest.Options{Plain: true}).Fault(fault)
		}()
		if !strings.Contains(f.said, want) {
			t.Errorf("%s: %q, want %q", fault, f.said, want)
		}
	}
}

// TestPeers: each host has a BMC, at an address of its own or at one for all, and faults are for
// those whom they name.
func TestPeers(t *testing.T) {
	for _, shared := range []bool{false, true} {
		first := bmctest.Start(t, bmctest.Options{
			Peers: []string{"node-2", "node-3"}, Shared: shared, Media: []string{"http://127.0.0.1:1/"},
			Faults: []string{`{"when": {"host": "node-2"}, "effect": {"report": "Off"}}`, `{"when": {"host": "node-3"}, "effect": {"swap": "node-1"}}`},
		})
		second := first.Peer("node-2")
		if (second.URL == first.URL) != shared || second.IPMI == first.IPMI {
			t.Errorf("shared %t: they are at %s and %s", shared, first.URL, second.URL)
		}
		for b, want := range map[*bmctest.BMC]string{first: "On", second: "Off"} {
			if status, shown := ask(t, b, http.MethodGet, b.System, ""); status != http.StatusOK || shown["PowerState"] != want || b.Power() != fakebmc.On {
				t.Errorf("shared %t: %s answers %d %v", shared, b.System, status, shown["PowerState"])
			}
		}
		if reset(t, first.Peer("node-3"), fakebmc.ResetForceOff); first.Power() != fakebmc.Off {
			t.Errorf("shared %t: the swapped host is %s", shared, first.Power())
		}
		if status, _ := ask(t, second, http.MethodPost, second.URL+"/redfish/v1/Managers/node-2/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia", `{"Image": "http://127.0.0.1:1/x.iso"}`); status != http.StatusNoContent {
			t.Errorf("shared %t: an image answers %d", shared, status)
		}
	}
}

// TestMockup has a host that looks like a recorded BMC.
func TestMockup(t *testing.T) {
	tree := systemtest.Shape(t, "../redfish/testdata/shapes/blades.json")
	b := bmctest.Start(t, bmctest.Options{Mockup: tree, Destinations: []string{"http://127.0.0.1:1/"}})
	if !strings.HasSuffix(b.System, "/redfish/v1/Systems/Blade1") {
		t.Fatalf("the system is at %s", b.System)
	}
	for _, path := range []string{"/redfish/v1/", "/redfish/v1/Chassis/Blade1", "/redfish/v1/Systems/Blade2", "/redfish/v1/Chassis/Blade2", "/redfish/v1/EventService", "/redfish/v1/nowhere"} {
		ask(t, b, http.MethodGet, b.URL+path, "")
	}
	ask(t, b, http.MethodGet, b.System, "")
	reset(t, b, fakebmc.ResetForceOff)
	ask(t, b, http.MethodGet, b.System, "")
}
