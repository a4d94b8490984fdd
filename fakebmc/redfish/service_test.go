package redfish_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
	"github.com/fencelab/fencelab/fakebmc/wall"
)

const (
	managerURL = "/redfish/v1/Managers/node-1"
	mediaURL   = managerURL + "/VirtualMedia/Cd"
	eventsURL  = "/redfish/v1/EventService/SSE"
)

func goldenJSON(t *testing.T, name string, data []byte) {
	t.Helper()
	var indented bytes.Buffer
	if err := json.Indent(&indented, data, "", "  "); err != nil {
		t.Fatal(err)
	}
	golden(t, name+".json", indented.Bytes())
}

// until waits for the in-memory host, which goes through its states on a clock.
func (r *rig) until(want fakebmc.PowerState) {
	r.t.Helper()
	var p fakebmc.PowerState
	eventually(r.t, func() string { return fmt.Sprintf("the host is %s, want %s", p, want) }, func() bool {
		p, _ = r.hosts[0].PowerState()
		return p == want
	})
}

func TestEveryAdvertisedResetIsExecuted(t *testing.T) {
	r := newRig(t, redfish.Config{}, "node-1")
	for _, step := range []struct {
		reset fakebmc.ResetType
		final fakebmc.PowerState
		boots int
		nmis  int
	}{
		{"ForceOff", "Off", 1, 0}, {"PushPowerButton", "On", 2, 0}, {"Nmi", "On", 2, 1}, {"PowerCycle", "On", 3, 1},
		{"GracefulRestart", "On", 4, 1}, {"ForceRestart", "On", 5, 1}, {"PushPowerButton", "Off", 5, 1}, {"On", "On", 6, 1},
		{"GracefulShutdown", "Off", 6, 1},
	} {
		if got := r.do("POST", resetURL, resetBody(step.reset)); got.status != 204 {
			t.Errorf("%s: %d %s", step.reset, got.status, got.body)
		}
		eventually(t, said("%s has led to no boot %d", step.reset, step.boots), func() bool { return r.hosts[0].Boots() >= step.boots })
		r.until(step.final)
		if b, n := r.hosts[0].Boots(), r.hosts[0].Nmis(); b != step.boots || n != step.nmis {
			t.Errorf("after %s: %d boots and %d interrupts, want %d and %d", step.reset, b, n, step.boots, step.nmis)
		}
	}
}

// fourResets is a system that does nothing beyond the contract.
type fourResets struct{ fakebmc.System }

func TestOnlyWhatIsExecutedIsAdvertised(t *testing.T) {
	host := memory.New(wall.Clock(), memory.Timing{}, true)
	server, err := redfish.NewServer(redfish.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	url, err := server.Listen(":0", fakebmc.New("node-1", fourResets{host}, wall.Clock()))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, url: url, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	got := r.do("GET", systemURL, "")
	if !bytes.Contains(got.body, []byte(`"ResetType@Redfish.AllowableValues":["On","ForceOn","ForceOff","GracefulShutdown","ForceRestart"]`)) {
		t.Errorf("%s", got.body)
	}
	for _, reset := range []fakebmc.ResetType{"GracefulRestart", "Nmi", "PowerCycle", "FullPowerCycle", "PushPowerButton"} {
		if got := r.do("POST", resetURL, resetBody(reset)); got.status != 400 || got.message() != "ActionParameterValueNotInList" {
			t.Errorf("%s: %d %s", reset, got.status, got.message())
		}
	}
	if got := r.do("PATCH", systemURL, `{"Boot": {"BootSourceOverrideTarget": "Pxe"}}`); got.status != 400 || got.message() != "PropertyUnknown" {
		t.Errorf("boot override: %d %s", got.status, got.message())
	}
	if got := r.do("GET", managerURL+"/VirtualMedia", ""); got.status != 404 {
		t.Errorf("virtual media: %d", got.status)
	}
}

func TestBootOverrideOnceIsConsumedAtBoot(t *testing.T) {
	r := newRig(t, redfish.Config{}, "node-1")
	boot := func() (enabled, target any) {
		b := r.do("GET", systemURL, "").json(t)["Boot"].(map[string]any)
		return b["BootSourceOverrideEnabled"], b["BootSourceOverrideTarget"]
	}
	set := `{"Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}}`
	if got := r.do("PATCH", systemURL, set); got.status != 204 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if e, target := boot(); e != "Once" || target != "Pxe" {
		t.Errorf("set: %v %v", e, target)
	}
	r.do("POST", resetURL, resetBody("ForceOff"))
	r.until("Off")
	if e, _ := boot(); e != "Once" {
		t.Errorf("consumed by a power-off")
	}
	r.do("POST", resetURL, resetBody("On"))
	if e, target := boot(); e != "Disabled" || target != "None" {
		t.Errorf("after the boot: %v %v", e, target)
	}
	if by := r.hosts[0].BootedBy(); by.Target != "Pxe" {
		t.Errorf("booted by %+v", by)
	}
	r.until("On")
	r.do("PATCH", systemURL, strings.Replace(set, "Once", "Continuous", 1))
	r.do("POST", resetURL, resetBody("ForceRestart"))
	if e, target := boot(); e != "Continuous" || target != "Pxe" {
		t.Errorf("continuous, after a boot: %v %v", e, target)
	}
}

func TestPatch(t *testing.T) {
	r := newRig(t, redfish.Config{}, "node-1")
	tag := r.do("GET", systemURL, "").header.Get("ETag")
	for _, c := range []struct {
		name, body, match string
		status            int
		message           string
	}{
		{"unknown property", `{"Color": "red"}`, "", 400, "PropertyUnknown"},
		{"unknown inner property", `{"Boot": {"Color": "red"}}`, "", 400, "PropertyUnknown"},
		{"read-only property", `{"PowerState": "Off"}`, "", 400, "PropertyUnknown"},
		{"wrong type", `{"PowerRestorePolicy": 1}`, "", 400, "PropertyValueTypeError"},
		{"wrong value", `{"PowerRestorePolicy": "Sometimes"}`, "", 400, "PropertyValueNotInList"},
		{"wrong target", `{"Boot": {"BootSourceOverrideTarget": "Floppy"}}`, "", 400, "PropertyValueNotInList"},
		{"wrong action", `{"PowerRestorePolicy": "AlwaysOn", "HostWatchdogTimer": {"TimeoutAction": "OEM"}}`, "", 400, "PropertyValueNotInList"},
		{"malformed", `{`, "", 400, "MalformedJSON"},
		{"another case", `{"powerRestorePolicy": "AlwaysOn"}`, "", 400, "PropertyUnknown"},
		{"another case, inside", `{"Boot": {"BOOTSOURCEOVERRIDETARGET": "Pxe"}}`, "", 400, "PropertyUnknown"},
		{"twice", `{"PowerRestorePolicy": "AlwaysOn", "PowerRestorePolicy": "AlwaysOff"}`, "", 400, "PropertyDuplicate"},
		{"null", `null`, "", 400, "UnrecognizedRequestBody"},
		{"no object", `[]`, "", 400, "UnrecognizedRequestBody"},
		{"a null policy", `{"PowerRestorePolicy": null}`, "", 400, "PropertyValueTypeError"},
		{"a null object", `{"HostWatchdogTimer": null}`, "", 400, "PropertyValueTypeError"},
		{"a null inside", `{"Boot": {"BootSourceOverrideTarget": null}}`, "", 400, "PropertyValueTypeError"},
		{"stale tag", `{"PowerRestorePolicy": "AlwaysOn"}`, `W/"0123456789abcdef.0123456789abcdef"`, 412, "PreconditionFailed"},
		{"right tag", `{"PowerRestorePolicy": "AlwaysOn"}`, tag, 204, ""},
		{"the same tag again", `{"PowerRestorePolicy": "LastState"}`, tag, 412, "PreconditionFailed"},
		{"any tag", `{"HostWatchdogTimer": {"FunctionEnabled": true, "TimeoutAction": "PowerDown"}}`, "*", 204, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var header []string
			if c.match != "" {
				header = []string{"If-Match", c.match}
			}
			if got := r.do("PATCH", systemURL, c.body, header...); got.status != c.status || got.message() != c.message {
				t.Errorf("%d %s, want %d %s", got.status, got.message(), c.status, c.message)
			}
		})
	}
	if p := r.bmcs[0].RestorePolicy(); p != fakebmc.AlwaysOn {
		t.Errorf("restore policy %s", p)
	}
	if w := r.bmcs[0].Watchdog(); !w.Enabled || w.Action != fakebmc.ResetForceOff {
		t.Errorf("watchdog %+v", w)
	}
	// A change of the power state makes no tag stale that was read before it.
	tag = r.do("GET", systemURL, "").header.Get("ETag")
	r.do("POST", resetURL, resetBody("ForceOff"))
	r.until("Off")
	if got := r.do("POST", resetURL, resetBody("On"), "If-Match", tag); got.status != 204 {
		t.Errorf("a reset with the tag of the state before: %d %s", got.status, got.message())
	}
	if got := r.do("POST", resetURL, resetBody("ForceOff"), "If-Match", `"x"`); got.status != 412 {
		t.Errorf("a reset with another tag: %d", got.status)
	}
}

func TestVirtualMedia(t *testing.T) {
	r := newRig(t, redfish.Config{Media: []string{"http://127.0.0.1:1/allowed/"}}, "node-1")
	insert := func(image string) reply {
		return r.do("POST", mediaURL+"/Actions/VirtualMedia.InsertMedia", `{"Image": "`+image+`"}`)
	}
	for _, image := range []string{"http://127.0.0.1:1/other.iso", "file:///etc/passwd", "http://127.0.0.1:1/allowed", "http://127.0.0.1:1/allowedx/y",
		"http://127.0.0.1:1/allowed/../secret", "http://127.0.0.1:1/allowed/%2e%2e/secret", "http://127.0.0.1:1@evil.example/allowed/x",
		"http://127.0.0.1:1.evil.example/allowed/x", "https://127.0.0.1:1/allowed/x", "//127.0.0.1:1/allowed/x", "http:127.0.0.1:1/allowed/x", "%",
	} {
		if got := insert(image); got.status != 403 || got.message() != "AccessDenied" {
			t.Errorf("%s: %d %s", image, got.status, got.message())
		}
	}
	if got := insert("http://127.0.0.1:1/allowed/boot.iso"); got.status != 204 {
		t.Errorf("%d %s", got.status, got.body)
	}
	goldenJSON(t, "virtual-media-inserted", r.do("GET", mediaURL, "").body)
	if got := insert("http://127.0.0.1:1/allowed/boot.iso"); got.status != 409 {
		t.Errorf("a second image: %d", got.status)
	}
	if got := r.do("POST", mediaURL+"/Actions/VirtualMedia.EjectMedia", "{}"); got.status != 204 {
		t.Errorf("eject: %d %s", got.status, got.body)
	}
	if got := r.do("GET", mediaURL, "").json(t); got["Inserted"] != false || got["Image"] != nil {
		t.Errorf("after eject: %v", got)
	}
}

// bay is a drive that takes no image.
type bay struct {
	fixed
	err error
}

func (b *bay) Media() (string, error)   { return "", nil }
func (b *bay) InsertMedia(string) error { return b.err }
func (b *bay) EjectMedia() error        { return nil }

// TestImageThatIsNotInserted: a client learns what is wrong with its URL as its own
// matter, not as a failure of the service.
func TestImageThatIsNotInserted(t *testing.T) {
	const image = "http://127.0.0.1:1/boot.iso"
	host := &bay{}
	server, err := redfish.NewServer(redfish.Config{Media: []string{image}})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	r := &rig{t: t, client: http.DefaultClient}
	if r.url, err = server.Listen("127.0.0.1:0", fakebmc.New("node-1", host, wall.Clock())); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		err     error
		status  int
		message string
	}{
		{fmt.Errorf("its server sends on to /secret: %w", fakebmc.ErrNoImage), 400, "ResourceMissingAtURI"},
		{fmt.Errorf("there is one: %w", fakebmc.ErrConflict), 409, "ResourceInUse"},
		{fmt.Errorf("the disk is far away: %w", fakebmc.ErrUnsupported), 400, "ActionNotSupported"},
		{errors.New("the disk is full"), 500, "InternalError"},
	} {
		host.err = c.err
		got := r.do("POST", mediaURL+"/Actions/VirtualMedia.InsertMedia", `{"Image": "`+image+`"}`)
		if got.status != c.status || got.message() != c.message || !strings.Contains(string(got.body), c.err.Error()) {
			t.Errorf("%v: %d %s", c.err, got.status, got.body)
		}
	}
}

func TestTasks(t *testing.T) {
	w := newRig(t, redfish.Config{}, "node-1")
	w.rule(`{"effect": {"task": {}}}`)
	got := w.do("POST", resetURL, resetBody("ForceOff"))
	monitor := got.header.Get("Location")
	if got.status != 202 || monitor != "/redfish/v1/TaskService/TaskMonitors/node-1-1" {
		t.Fatalf("%d, Location %s", got.status, monitor)
	}
	w.until("Off")
	if got := w.do("GET", monitor, ""); got.status != 204 {
		t.Errorf("the monitor, when it is done: %d", got.status)
	}
	done := w.do("GET", "/redfish/v1/TaskService/Tasks/node-1-1", "")
	if done.json(t)["TaskState"] != "Completed" {
		t.Errorf("%s", done.body)
	}
	goldenJSON(t, "task", done.body)
	if n := w.do("GET", "/redfish/v1/TaskService/Tasks", "").json(t)["Members@odata.count"]; n != 1. {
		t.Errorf("%v tasks", n)
	}
	for _, id := range []string{"node-1-2", "node-1", "node-2-1", "-", "x"} {
		if got := w.do("GET", "/redfish/v1/TaskService/Tasks/"+id, ""); got.status != 404 {
			t.Errorf("task %s: %d", id, got.status)
		}
	}
}

// events opens the stream and returns what it says, one Event a time.
func (r *rig) events() (next func() (map[string]any, error), leave func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", r.url+eventsURL, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := r.client.Do(req)
	if err != nil || resp.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		r.t.Fatalf("%v %+v", err, resp)
	}
	lines := bufio.NewReader(resp.Body)
	if first, err := lines.ReadString('\n'); err != nil || first != ": power events\n" {
		r.t.Fatalf("%v %q", err, first)
	}
	return func() (map[string]any, error) {
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					return nil, err
				}
				if data, ok := strings.CutPrefix(line, "data: "); ok {
					var e map[string]any
					return e, json.Unmarshal([]byte(data), &e)
				}
			}
		}, func() {
			cancel()
			resp.Body.Close()
		}
}

func TestPowerEvents(t *testing.T) {
	r := newRig(t, redfish.Config{}, "node-1", "node-2")
	next, leave := r.events()
	defer leave()
	r.do("POST", resetURL, resetBody("ForceOff"))
	for i, want := range []string{"ResourcePoweringOff", "ResourcePoweredOff"} {
		e, err := next()
		if err != nil {
			t.Fatal(err)
		}
		record := e["Events"].([]any)[0].(map[string]any)
		if record["MessageId"] != "ResourceEvent.1.4."+want || record["OriginOfCondition"].(map[string]any)["@odata.id"] != systemURL {
			t.Errorf("event %d: %v, want %s", i, record, want)
		}
		if i == 1 {
			data, _ := json.Marshal(e)
			goldenJSON(t, "event", data)
		}
	}
	if err := r.server.Close(); err != nil {
		t.Error(err)
	}
	if _, err := next(); err == nil {
		t.Error("the stream goes on after the server")
	}
}

// TestRestartCutsEverything: the BMC goes with its connections, sessions and
// streams; the host stays as it is.
func TestRestartCutsEverything(t *testing.T) {
	cfg := account
	r := newRig(t, cfg, "node-1")
	token := r.do("POST", loginURL, `{"UserName": "admin", "Password": "s3cret"}`).header.Get("X-Auth-Token")
	r.user = [2]string{}
	header := []string{"X-Auth-Token", token}
	r.rule(`{"name": "hang", "when": {"method": "HEAD"}, "effect": {"hang": true}}`)
	hung := make(chan error, 1)
	go func() {
		_, err := r.try(context.Background(), "HEAD", systemURL, "", header...)
		hung <- err
	}()
	for next(t, "record of the request that hangs", r.seen).Request.Method != "HEAD" {
	}
	r.rule(`{"name": "restart", "effect": {"restart": {"downtime": "20ms"}}}`)
	if err := next(t, "end of the hanging request", hung); err == nil {
		t.Error("a hanging request was answered by the restart")
	}
	eventually(t, said("the BMC isn't back from its restart"), func() bool {
		_, err := r.try(t.Context(), "GET", "/redfish/v1", "")
		if err != nil && !severed(err) && !errors.Is(err, io.EOF) { // EOF: it was closed before it had said anything
			t.Fatal(err)
		}
		return err == nil
	})
	if got := r.do("GET", systemURL, "", header...); got.status != 401 {
		t.Errorf("with a session from before the restart: %d", got.status)
	}
	if p, _ := r.hosts[0].PowerState(); p != fakebmc.On || r.hosts[0].Boots() != 1 {
		t.Errorf("the host is %s in boot %d", p, r.hosts[0].Boots())
	}
}

// TestManagerReset: with nothing said about it, a Manager.Reset takes the BMC away for a
// while, and its sessions for good.
func TestManagerReset(t *testing.T) {
	for name, cfg := range map[string]redfish.Config{"with an account": account, "without one": {}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, cfg, "node-1")
			clk := &systemtest.Clock{}
			var err error
			if r.url, err = r.server.Listen(":0", fakebmc.New("node-1", memory.New(clk, memory.Timing{}, true), clk)); err != nil {
				t.Fatal(err)
			}
			token := r.do("POST", loginURL, `{"UserName": "admin", "Password": "s3cret"}`).header.Get("X-Auth-Token")
			header := []string{"Authorization", "", "X-Auth-Token", token}
			if got := r.do("POST", managerURL+"/Actions/Manager.Reset", resetBody("ForceRestart"), header...); got.status != 204 {
				t.Fatalf("%d %s", got.status, got.body)
			}
			clk.Advance(fakebmc.DefaultRestartTime - 1)
			if got, err := r.try(t.Context(), "GET", systemURL, "", header...); !severed(err) {
				t.Errorf("while it restarts: %d, %v", got.status, err)
			}
			clk.Advance(1)
			if got := r.do("GET", systemURL, "", header...); got.status != 401 {
				t.Errorf("the session after the restart: %d", got.status)
			}
			if got := r.do("GET", systemURL, ""); got.status != 200 {
				t.Errorf("after the restart: %d", got.status)
			}
		})
	}
}

func TestRestartCutsStreams(t *testing.T) {
	r := newRig(t, redfish.Config{}, "node-1")
	next, leave := r.events()
	defer leave()
	r.rule(`{"effect": {"restart": {"downtime": "1ms"}}}`)
	if e, err := next(); err == nil {
		t.Errorf("the stream goes on: %v", e)
	}
}

func TestMetadata(t *testing.T) {
	r := newRig(t, account, "node-1")
	got := r.do("GET", "/redfish/v1/$metadata", "", "Authorization", "")
	if got.status != 200 || got.header.Get("Content-Type") != "application/xml; charset=utf-8" {
		t.Errorf("%d %v", got.status, got.header)
	}
	golden(t, "metadata.xml", got.body)
}
