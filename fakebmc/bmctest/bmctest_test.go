package bmctest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/bmctest"
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
		"no-such-preset":                                  "there is no preset",
		`{"effect": {"explode": true}}`:                   "unknown field",
		`{"effect": {"hang": true}`:                       "unexpected end",
		`{"when": {"via": "ipmi"}, "effect": {"cap": 3}}`: "would never fire",
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

// failing counts the errors of a test.
type failing struct {
	testing.TB
	errors int
}

func (f *failing) Errorf(string, ...any) { f.errors++ }

// TestReplay: the log of a host that was off is answered alike by one that is off, and not by one
// that is on.
func TestReplay(t *testing.T) {
	log := filepath.Join(t.TempDir(), "bmc.jsonl")
	line := `{"seq":1,"host":"worker-1","request":{"method":"GET","path":"/redfish/v1/Systems/worker-1"},"answer":{"status":200,"powerState":"Off"}}`
	if err := os.WriteFile(log, []byte(line), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, off := range []bool{true, false} {
		f := &failing{TB: t}
		bmctest.Start(f, bmctest.Options{Off: off}).Replay(log)
		if (f.errors == 0) != off {
			t.Errorf("off %t: %d errors", off, f.errors)
		}
	}
}
