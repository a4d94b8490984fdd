package hosts

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/wall"
	"github.com/fencelab/fencelab/lab/record"
	"github.com/fencelab/fencelab/scenarios/history"
)

// serveModels returns the BMCs of machines in memory that are on, and the stream that they record
// to.
func serveModels(t *testing.T, names ...string) (*BMCs, *record.Stream) {
	t.Helper()
	clock := wall.Clock()
	s := record.NewStream(clock.Now)
	b, err := NewBMCs(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	machines := make(map[string]Machine)
	for _, name := range names {
		machines[name] = Memory{clock}.One()
	}
	if err := b.Serve(clock, names, machines); err != nil {
		t.Fatal(err)
	}
	return b, s
}

// ask sends a reset, or a read, as a client with a name, or as a stranger.
func ask(ctx context.Context, b *BMCs, client, host string, reset fakebmc.ResetType) error {
	url, method, body := b.URLs[host].JoinPath("redfish/v1/Systems", host), http.MethodGet, ""
	if reset != "" {
		url, method, body = url.JoinPath("Actions/ComputerSystem.Reset"), http.MethodPost, `{"ResetType":"`+string(reset)+`"}`
	}
	request, err := http.NewRequestWithContext(ctx, method, url.String(), strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.SetBasicAuth(BMCUser, b.Password)
	wire := http.DefaultTransport
	if client != "" {
		wire = b.Transport(client)
	}
	response, err := wire.RoundTrip(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func TestEventsOfABMCNameTheClient(t *testing.T) {
	const one, two = "worker-1", "worker-2"
	b, s := serveModels(t, one, two)
	rule := func(host, name string, when fakebmc.Selector, effect fakebmc.Effect) {
		t.Helper()
		if err := b.ByName[host].AddRule(fakebmc.Rule{Name: name, When: when, Effect: effect}); err != nil {
			t.Fatal(err)
		}
	}
	rule(one, "read", fakebmc.Selector{Method: http.MethodGet}, fakebmc.Effect{Delay: fakebmc.Duration(time.Nanosecond)})
	rule(two, "late", fakebmc.Selector{Reset: []fakebmc.ResetType{fakebmc.ResetForceOff}}, fakebmc.Effect{Delay: fakebmc.Duration(300 * time.Millisecond)})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(ask(t.Context(), b, "reboot", one, ""))
	must(ask(t.Context(), b, "", one, ""))
	must(ask(t.Context(), b, "other", one, fakebmc.ResetForceRestart))
	must(ask(t.Context(), b, "reboot", one, fakebmc.ResetForceOff))
	if by := b.Asker(one, fakebmc.ResetForceOff); by != "reboot" {
		t.Errorf("the ForceOff is %q's", by)
	}
	must(ask(t.Context(), b, "", one, fakebmc.ResetOn))
	// Its client gives up before the BMC is done with it.
	impatient, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- ask(impatient, b, "reboot", two, fakebmc.ResetForceOff) }()
	patient(t, "the slow request reaches its BMC", func() bool { return len(b.ByName[two].Pending()) > 0 })
	cancel()
	if <-gone == nil {
		t.Error("a client that gave up has an answer")
	}
	b.received(two, fakebmc.ClientRestore, fakebmc.ResetOn)

	want := []string{
		"bmc-fault worker-1 read by reboot", "bmc-fault worker-1 read by ", "bmc-command worker-1 ForceRestart by other",
		"bmc-command worker-1 ForceOff by reboot", "bmc-command worker-1 On by ", "bmc-command worker-2 ForceOff by reboot",
		"bmc-command worker-2 On by restore", "bmc-fault worker-2 late by reboot",
	}
	told := func() (got []string) {
		for _, e := range s.Pending() {
			if e.Kind.Layer() == history.BMC {
				fault, _, _ := strings.Cut(e.Value, ":")
				got = append(got, strings.Join([]string{string(e.Kind), e.Host, fault, "by " + e.Actor}, " "))
			}
		}
		return got
	}
	patient(t, "the BMC has told of the slow request", func() bool { return len(told()) >= len(want) })
	for i, got := range told() {
		if i >= len(want) || !strings.HasPrefix(got, want[i]) || strings.HasSuffix(want[i], " by ") && got != want[i] {
			t.Errorf("event %d is %q", i, got)
		}
	}
}

// patient waits for something that does not take long, but on a busy machine.
func patient(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// TestRequestsUnderWayAreKept ends a run while a BMC holds a request back.
func TestRequestsUnderWayAreKept(t *testing.T) {
	b, _ := serveModels(t, "worker-1")
	if err := b.ByName["worker-1"].AddRule(fakebmc.Rule{Name: "held-back", Effect: fakebmc.Effect{Delay: fakebmc.Duration(time.Hour)}}); err != nil {
		t.Fatal(err)
	}
	cut := make(chan error, 1)
	go func() { cut <- ask(t.Context(), b, "reboot", "worker-1", "") }()
	patient(t, "the request reaches its BMC", func() bool { return len(b.ByName["worker-1"].Pending()) > 0 })
	said, err := b.Close()
	if err != nil {
		t.Fatal(err)
	}
	if <-cut == nil {
		t.Error("the request was answered")
	}
	if requests := said[0]; requests.Name != "bmc.jsonl" || !bytes.Contains(requests.Data, []byte(`"rules":["held-back"]`)) {
		t.Errorf("no trace of the request in %s", requests.Data)
	}
}
