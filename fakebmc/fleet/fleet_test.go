package fleet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/wall"
)

// run starts a fleet, waits until it is ready, and returns what it says and a
// function that ends it.
func run(t *testing.T, o Options) (ready string, stop func() error) {
	t.Helper()
	r, w := io.Pipe()
	o.Ready = w
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		err := Run(ctx, o)
		w.CloseWithError(io.EOF)
		ended <- err
	}()
	var said bytes.Buffer
	lines := len(o.Hosts) + o.Fake + 1
	if o.Admin != "" {
		lines++
	}
	one := make([]byte, 1)
	for strings.Count(said.String(), "\n") < lines {
		if _, err := r.Read(one); err != nil {
			t.Fatalf("the fleet ended: %v", <-ended)
		}
		said.Write(one)
	}
	return said.String(), func() error { cancel(); return <-ended }
}

func do(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// column is a host's cell of the table.
func column(ready, host string, n int) string {
	for line := range strings.Lines(ready) {
		if f := strings.Fields(line); len(f) > n && f[0] == host {
			return f[n]
		}
	}
	return ""
}

func TestRun(t *testing.T) {
	var records bytes.Buffer
	ready, stop := run(t, Options{
		Hosts: []Host{{Name: "given", System: memory.New(wall.Clock(), memory.Timing{}, false)}}, Fake: 2,
		Admin: ":0", Records: &records, Rules: []fakebmc.Rule{{Name: "twice", Preset: "on-ignored", When: fakebmc.Selector{Host: "given"}}},
	})
	given, fake := column(ready, "given", 1), column(ready, "fake-2", 1)
	admin := strings.TrimSuffix(column(ready, "(admin)", 1), "/v1/hosts")
	reset := func(system, body string) int {
		status, _ := do(t, "POST", system+"/Actions/ComputerSystem.Reset", body)
		return status
	}
	if got := reset(given, `{"ResetType": "On"}`); got != 204 {
		t.Errorf("the ignored On: %d", got)
	}
	if _, body := do(t, "GET", given, ""); !strings.Contains(body, `"PowerState":"Off"`) {
		t.Errorf("after the ignored On: %s", body)
	}
	if _, body := do(t, "GET", fake, ""); !strings.Contains(body, `"PowerState":"On"`) {
		t.Errorf("a host in memory: %s", body)
	}

	// The admin API.
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v1/presets", "", 200, "dell-redundant-off-409"},
		{"GET", "/v1/hosts", "", 200, "on-ignored"},
		{"POST", "/v1/hosts/fake-*/rules", `{"name": "lie", "effect": {"report": "Off"}}`, 201, "lie"},
		{"POST", "/v1/hosts/fake-*/rules", `{"name": "lie", "effect": {"report": "Off"}}`, 409, "one of this name"},
		{"POST", "/v1/hosts/fake-*/rules", `{"name": "two"}, {"name": "three"}`, 400, "effect is empty"},
		{"POST", "/v1/hosts/fake-*/rules", `{"name": "a", "effect": {"hang": true}}, {"name": "b", "effect": {"hang": true}}`, 400, "there are 2; send one at a time"},
		{"POST", "/v1/hosts/nobody/rules", `{"name": "lie", "effect": {"report": "Off"}}`, 404, "no host"},
		{"POST", "/v1/hosts/*/rules", `{"name": "none", "when": {"via": "ipmi"}, "effect": {"hang": true}}`, 409, "by IPMI, which is not served"},
		{"POST", "/v1/hosts/*/rules", `{"name": "twice", "effect": {"hang": true}}`, 409, "one of this name"},
	} {
		if status, body := do(t, c.method, admin+c.path, c.body); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, status, body)
		}
	}
	if _, body := do(t, "GET", fake, ""); !strings.Contains(body, `"PowerState":"Off"`) {
		t.Errorf("with the lie: %s", body)
	}
	if status, _ := do(t, "DELETE", admin+"/v1/hosts/fake-*/rules/lie", ""); status != 204 {
		t.Errorf("removing it: %d", status)
	}
	if status, _ := do(t, "DELETE", admin+"/v1/hosts/fake-*/rules/lie", ""); status != 404 {
		t.Errorf("removing it twice: %d", status)
	}
	if _, body := do(t, "GET", fake, ""); !strings.Contains(body, `"PowerState":"On"`) {
		t.Errorf("without the lie: %s", body)
	}

	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := http.Get(fake); err == nil {
		t.Error("it serves after its end")
	}
	var n int
	for dec := json.NewDecoder(&records); dec.More(); n++ {
		var r fakebmc.Record
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
	}
	if n != 5 {
		t.Errorf("%d records, want 5", n)
	}
}

func TestShared(t *testing.T) {
	ready, stop := run(t, Options{Fake: 3, Shared: true, Username: "admin", Password: "s3cret", IPMI: ":0", TLS: true})
	defer stop()
	a, b := column(ready, "fake-1", 1), column(ready, "fake-3", 1)
	if strings.TrimSuffix(a, "fake-1") != strings.TrimSuffix(b, "fake-3") || !strings.HasPrefix(a, "https://127.0.0.1:") {
		t.Errorf("%s", ready)
	}
	if column(ready, "fake-1", 2) == column(ready, "fake-2", 2) {
		t.Errorf("%s", ready)
	}
}

// TestChanges lets a host come, with the rules from the start, and go.
func TestChanges(t *testing.T) {
	r, w := io.Pipe()
	changes, ended, warned := make(chan Change), make(chan error, 1), make(chan string, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		err := Run(ctx, Options{Shared: true, Changes: changes, Ready: w, Admin: ":0",
			Warn:  func(text string) { warned <- text },
			Rules: []fakebmc.Rule{{Name: "lie", Effect: fakebmc.Effect{Report: "Paused"}}, {Name: "later", When: fakebmc.Selector{Host: "x"}, Effect: fakebmc.Effect{Hang: true}}}})
		w.CloseWithError(io.EOF)
		ended <- err
	}()
	said := bufio.NewScanner(r)
	next := func() []string {
		if !said.Scan() {
			t.Fatalf("the fleet ended: %v", <-ended)
		}
		return strings.Fields(said.Text())
	}
	next() // the header
	admin := next()[1]
	if text := <-warned; !strings.Contains(text, `rule "later" would never fire`) {
		t.Errorf("it warns %s", text)
	}
	const uuid = "0b0c4f0e-55f5-4a52-9e3a-3c7f1a3c7d5e"
	host := memory.New(wall.Clock(), memory.Timing{}, true)
	changes <- Change{Host: Host{Name: "late", UUID: uuid, System: host}}
	came := next()
	url := came[len(came)-1]
	if came[0] != "late" || !strings.HasSuffix(url, "/redfish/v1/Systems/"+uuid) {
		t.Errorf("it says %v", came)
	}
	if status, body := do(t, "GET", url, ""); status != 200 || !strings.Contains(body, `"PowerState":"Paused"`) {
		t.Errorf("the new host: %d %s", status, body)
	}
	if _, body := do(t, "GET", admin, ""); !strings.Contains(body, `"late"`) {
		t.Errorf("the admin API knows %s", body)
	}
	for range 2 { // the second time it isn't there
		changes <- Change{Host: Host{Name: "late"}, Gone: true}
		if gone := next(); gone[0] != "late" {
			t.Errorf("it says %v", gone)
		}
		if status, _ := do(t, "GET", url, ""); status != 404 {
			t.Errorf("the host that is gone: %d", status)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if p, err := host.PowerState(); err != nil || p != fakebmc.On {
		t.Errorf("the host that is gone is %s, %v", p, err)
	}
}

// TestTruth compares what a client is told with what the admin API says is the case,
// and looks at it as often as it likes without changing what the client is told.
func TestTruth(t *testing.T) {
	ready, stop := run(t, Options{Fake: 1, Admin: ":0", Timing: memory.Timing{},
		Rules: []fakebmc.Rule{{Name: "early", Preset: "off-too-early"}, {Name: "once", When: fakebmc.Selector{Method: "GET", Count: 1, Skip: 1}, Effect: fakebmc.Effect{Report: "Paused"}}}})
	defer stop()
	type truth struct {
		Actual, Reported string
		Boots            int
		Internal         struct {
			Up    bool
			Reset *struct{ Type, Report string }
			Rules []string
		}
		Log []fakebmc.Record
	}
	host := column(ready, "fake-1", 1)
	look := func() (s truth) {
		t.Helper()
		status, body := do(t, "GET", column(ready, "(admin)", 1)+"/fake-1", "")
		if err := json.Unmarshal([]byte(body), &s); status != 200 || err != nil {
			t.Fatalf("%d %v %s", status, err, body)
		}
		return s
	}
	told := func(want string) {
		t.Helper()
		if s := look(); s.Reported != want || s.Actual != "On" || s.Boots != 1 {
			t.Errorf("%+v, want %s", s, want)
		}
		if _, body := do(t, "GET", host, ""); !strings.Contains(body, `"PowerState":"`+want+`"`) {
			t.Errorf("the client is told %s, want %s", body, want)
		}
	}
	told("On")
	told("Paused")
	told("On")
	if status, body := do(t, "POST", host+"/Actions/ComputerSystem.Reset", `{"ResetType": "ForceOff"}`); status != 204 {
		t.Errorf("%d %s", status, body)
	}
	told("Off")
	s := look()
	if s.Internal.Reset == nil || s.Internal.Reset.Type != "ForceOff" || s.Internal.Reset.Report != "Off" || !s.Internal.Up || len(s.Internal.Rules) != 2 {
		t.Errorf("internal: %+v", s.Internal)
	}
	if len(s.Log) != 5 {
		t.Fatalf("%d records", len(s.Log))
	}
	if r := s.Log[4]; r.Actual != fakebmc.On || r.Answer.PowerState != fakebmc.Off || r.Received > r.Executed || r.Executed > r.Answered {
		t.Errorf("the lie is recorded as %+v", r)
	}
	if status, _ := do(t, "GET", column(ready, "(admin)", 1)+"/nobody", ""); status != 404 {
		t.Errorf("nobody: %d", status)
	}
}

func TestRunRefuses(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "no host"},
		{Options{Changes: make(chan Change)}, "one address"},
		{Options{Changes: make(chan Change), Shared: true, IPMI: ":0"}, "no IPMI"},
		{Options{Fake: -1}, "no host in memory"},
		{Options{Fake: maxFake + 1}, "from 0 to"},
		{Options{Fake: 1, Listen: "0.0.0.0:0"}, "not loopback"},
		{Options{Fake: 1, Admin: "0.0.0.0:0"}, "loopback"},
		{Options{Fake: 1, Listen: "127.0.0.1"}, "port"},
		{Options{Fake: 1, Listen: "127.0.0.1:http"}, "port"},
		{Options{Fake: 1, IPMI: ":0"}, "user name and a password"},
		{Options{Fake: 1, Rules: []fakebmc.Rule{{Name: "a", Preset: "b"}}}, "no preset"},
		{Options{Fake: 2, Rules: []fakebmc.Rule{{Name: "a", When: fakebmc.Selector{Host: "worker-*"}, Effect: fakebmc.Effect{Hang: true}}}}, `when.host "worker-*" is none of fake-1, fake-2`},
		{Options{Fake: 1, AnyPassword: true, IPMI: ":0"}, "IPMI can't accept any password"},
		{Options{Hosts: []Host{{Name: "fake-1", System: memory.New(wall.Clock(), memory.Timing{}, true)}}, Fake: 1}, "two bmcs"},
	} {
		if err := Run(t.Context(), c.o); err == nil || !strings.Contains(err.Error(), c.want) && c.o.Fake >= 0 {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
}

// TestAdminAnswersToLoopbackNamesOnly: a page that resolves to loopback is refused.
func TestAdminAnswersToLoopbackNamesOnly(t *testing.T) {
	ready, stop := run(t, Options{Fake: 1, Admin: ":0"})
	defer stop()
	req, err := http.NewRequest("GET", column(ready, "(admin)", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "evil.example"
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 403 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// TestAdminRefusesRulesForNoHost: a rule for none of the hosts that it is sent to is refused, and
// one for some of them is taken.
func TestAdminRefusesRulesForNoHost(t *testing.T) {
	ready, stop := run(t, Options{Fake: 2, Admin: ":0"})
	defer stop()
	for host, want := range map[string]int{"fake-9": 409, "fake-2": 201} {
		rule := fmt.Sprintf(`{"name": "x", "when": {"host": %q}, "effect": {"hang": true}}`, host)
		if status, body := do(t, "POST", column(ready, "(admin)", 1)+"/fake-*/rules", rule); status != want {
			t.Errorf("for %s it answers %d %s", host, status, body)
		}
	}
}
