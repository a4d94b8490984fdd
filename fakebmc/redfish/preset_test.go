package redfish_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
)

// scripts show each preset to a client over HTTP. A step is one of
//
//	+10s           time passes
//	get            of the system
//	off, on, ...   a reset, see stepResets
//	boot           a PATCH of the boot override
//	login          a session, which the next steps use (so does a failed one: they use none)
//	basic          no session any more
//	manager        a Manager.Reset
//	task           a look at the Location of the last answer
//	registry       a look at the Base registry's file
//	watchdog       a host watchdog of 10 s that powers off is fed once
//
// prefixed with match/ it carries If-Match with the system's ETag, with any/ one
// that any resource matches, with identity/ an Accept-Encoding.
var scripts = map[string]string{
	"powering-off-while-running":      "get off get +59s get +1s get +2s get",
	"off-too-early":                   "get off get +59s get +1s get +2s get",
	"on-after-off":                    "off +2s get +58s get +2s get",
	"on-for-ever":                     "off +1s get +1s get +3600s get",
	"openbmc-off-while-running":       "get off get +2s get",
	"cray-slow-power":                 "off get +5s get +3s get on +45s get +1s get +4s get",
	"force-off-in-progress":           "off get +179s get +1s get +2s get",
	"openbmc-stuck-shutdown":          "shutdown get +299s get +1s get +2s get",
	"guest-ignores-acpi":              "shutdown get +3600s get off +2s get",
	"slow-shutdown":                   "shutdown +20s get +30s off +2s get",
	"dell-redundant-off-409":          "off off +2s off shutdown get",
	"ilo-power-is-off-400":            "off +2s off restart get",
	"idrac10-on-409-after-off":        "off +2s on +59s on +1s on +4s get",
	"on-ignored":                      "off +2s on +10s get on on +4s get",
	"off-ignored":                     "off +10s get restart off +10s get",
	"swallowed-in-transition":         "off on +2s get on off +4s get",
	"idrac8-graceful-restart-is-hard": "graceful-restart get +20s get",
	"reset-types-listed-not-executed": "types restart shutdown graceful-restart off",
	"idrac-sys518-busy":               "off off off off +2s get",
	"session-limit":                   "login login login",
	"session-dropped":                 "login get off get login off get",
	"idrac8-basic-only":               "login get basic get",
	"idrac10-session-only":            "get off login get off",
	"ami-etag-required":               "boot match/boot off",
	"idrac10-etag-rejected":           "match/off any/off match/boot off",
	"cimc-login-without-location":     "login get",
	"idrac10-task-404":                "off task task task +2s task",
	"slow-bmc":                        "get +14s +1s off +15s",
	"hung-bmc":                        "get +600s off",
	"dies-after-requests":             "get*20 off +1s get +119s get",
	"openbmc-restart-powers-on":       "off get +59s get +1s get +4s get",
	"openbmc-restart-forgets":         "get +30s get +59s get +1s get",
	"ac-loss":                         "get +179s get +1s get +4s get",
	"openbmc-watchdog-resets":         "watchdog +9s get +1s get +2s get",
	"openbmc-watchdog-powers-on":      "watchdog +10s get +2s get +8s get +4s get",
	"amt-empty-after-transition":      "get off get +2s get +10s get",
	"hpe-no-boot-change-in-post":      "boot off +2s boot on boot +4s boot",
	"supermicro-no-licence":           "get off get",
	"no-managed-by":                   "managers",
	"shared-nic-dark-when-off":        "off get +2s get on +60s get",
	"lpar-error-state":                "get +60s get off get +2s get",
	"dell-lockdown":                   "manager get",
	"late-answer":                     "off +2s on +4s +6s get",
	"hpe-406-identity":                "identity/registry registry identity/get",
	"second-master":                   "off +2s get +57s get +1s get +4s get",
	"lost-answer":                     "off get +2s off get",
	"reset-twice":                     "off +2s on +2s get +1s get +2s get",
	"polled-every-30s":                "off +2s get +28s get +2s get",
	"wrong-host":                      "off get +2s get",
	"error-bursts":                    "get get off get boot get",
	"resets-by-itself":                "get +29s get +1s get +600s get",
	"cycle-ends-off":                  "cycle +2s get +600s get",
	"gateway-time-out":                "get off",
	"login-redirects":                 "login login get",
	"reset-of-the-bmc-powers-on":      "off +2s get manager +10s get +4s get",
	"shared-supply":                   "get off +2s get",
	"target-before-enabled":           "enable boot",
}

// onlyIPMI are shown by ipmi.TestPresets: HTTP doesn't show them.
var onlyIPMI = []string{"ipmi-reset-when-off", "ipmi-off-while-booting", "ipmi-cycle-answers-first"}

var stepResets = map[string]fakebmc.ResetType{
	"off": "ForceOff", "on": "On", "shutdown": "GracefulShutdown", "restart": "ForceRestart",
	"graceful-restart": "GracefulRestart", "cycle": "PowerCycle",
}

// TestPresetsOnTheWire plays each script with and without its preset: the two
// must differ, and the golden transcript says how.
func TestPresetsOnTheWire(t *testing.T) {
	rows := map[int]bool{}
	var all strings.Builder
	for _, p := range fakebmc.Presets() {
		rows[p.Row] = true
		if slices.Contains(onlyIPMI, p.Name) {
			continue
		}
		script, ok := scripts[p.Name]
		if !ok {
			t.Errorf("%s has no script", p.Name)
			continue
		}
		with, without := play(t, script, p.Name), play(t, script, "")
		if with == without {
			t.Errorf("%s shows nothing:\n%s", p.Name, with)
		}
		fmt.Fprintf(&all, "%d %s: %s\n%s\n", p.Row, p.Name, p.Summary, with)
	}
	for row := 1; row <= 52; row++ {
		if !rows[row] {
			t.Errorf("row %d of the catalogue has no preset", row)
		}
	}
	golden(t, "presets.txt", []byte(all.String()))
}

// stage is a server of two hosts on virtual time, and one client.
type stage struct {
	t       *testing.T
	clk     *systemtest.Clock
	hosts   [2]*memory.Host
	bmc     *fakebmc.BMC
	rig     *rig
	hung    chan fakebmc.Record
	session []string // the headers of the session in use
	last    reply    // the last answer
	waiting []*pendingRequest
	out     strings.Builder
}

type pendingRequest struct {
	step   string
	seq    uint64 // 0 hangs
	answer chan string
}

func play(t *testing.T, script, preset string) string {
	t.Helper()
	return perform(t, script, preset).out.String()
}

func perform(t *testing.T, script, preset string) *stage {
	t.Helper()
	st := &stage{t: t, clk: &systemtest.Clock{}, hung: make(chan fakebmc.Record, 100)}
	systems := map[string]fakebmc.System{}
	for i := range st.hosts {
		st.hosts[i] = memory.New(st.clk, memory.Timing{On: 4 * s, Off: 2 * s, Shutdown: 20 * s}, true)
		systems[fmt.Sprintf("node-%d", i+1)] = st.hosts[i]
	}
	st.bmc = fakebmc.New("node-1", st.hosts[0], st.clk, fakebmc.Peers(systems), fakebmc.RestartTime(30*s),
		fakebmc.OnRequest(func(r fakebmc.Record) {
			if r.Answered == fakebmc.Never && r.Request.Method != "" {
				st.hung <- r
			}
		}))
	server, err := redfish.NewServer(redfish.Config{Username: "admin", Password: "s3cret", Clock: st.clk})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	url, err := server.Listen(":0", st.bmc)
	if err != nil {
		t.Fatal(err)
	}
	st.rig = &rig{t: t, url: url, client: &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, DisableCompression: true,
		DialContext: (&net.Dialer{}).DialContext,
	}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, user: [2]string{"admin", "s3cret"}}
	if preset != "" {
		if err := st.bmc.AddRule(fakebmc.Rule{Name: "preset", Preset: preset}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range strings.Fields(script) {
		if name, times, ok := strings.Cut(step, "*"); ok {
			n, err := strconv.Atoi(times)
			if err != nil {
				t.Fatal(err)
			}
			for range n {
				st.play(name, false)
			}
			continue
		}
		st.play(step, true)
	}
	return st
}

func (st *stage) play(step string, shown bool) {
	if d, ok := strings.CutPrefix(step, "+"); ok {
		wait, err := time.ParseDuration(d)
		if err != nil {
			st.t.Fatal(err)
		}
		st.clk.Advance(wait)
		st.collect()
		return
	}
	var answer string
	switch step {
	case "watchdog":
		w := fakebmc.Watchdog{Enabled: true, Action: fakebmc.ResetForceOff, Timeout: 10 * s}
		if err := st.bmc.SetWatchdog(w); err != nil || !st.bmc.FeedWatchdog() {
			st.t.Fatal(err)
		}
		answer = "fed"
	case "basic":
		st.session = nil
		return
	default:
		answer = st.request(step)
	}
	if shown {
		st.line(step, answer)
	}
}

// line is followed by what the answer says in words, if it does.
func (st *stage) line(step, answer string) {
	p, _ := st.hosts[0].PowerState()
	answer, words, _ := strings.Cut(answer, "\n")
	fmt.Fprintf(&st.out, "  %5v  %-18s %-50s host %s, boot %d", st.clk.Now(), step, answer, p, st.hosts[0].Boots())
	if p, _ := st.hosts[1].PowerState(); p != fakebmc.On {
		fmt.Fprintf(&st.out, "; the other host %s", p)
	}
	st.out.WriteByte('\n')
	if words != "" {
		fmt.Fprintf(&st.out, "            %s\n", words)
	}
}

// request sends one and returns what the client sees, or that it waits.
func (st *stage) request(step string) string {
	headers := st.session
	name := step
	if prefix, rest, ok := strings.Cut(step, "/"); ok {
		name = rest
		switch prefix {
		case "match":
			headers = append(slices.Clone(headers), "If-Match", st.rig.do("GET", systemURL, "", st.session...).header.Get("ETag"))
		case "any":
			headers = append(slices.Clone(headers), "If-Match", "*")
		case "identity":
			headers = append(slices.Clone(headers), "Accept-Encoding", "identity")
		}
	}
	method, path, body := "GET", systemURL, ""
	switch name {
	case "get", "types", "managers":
	case "boot":
		method, body = "PATCH", `{"Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}}`
	case "enable":
		method, body = "PATCH", `{"Boot": {"BootSourceOverrideEnabled": "Once"}}`
	case "login":
		method, path, body = "POST", loginURL, `{"UserName": "admin", "Password": "s3cret"}`
		headers, st.session = nil, nil
	case "manager":
		method, path, body = "POST", "/redfish/v1/Managers/node-1/Actions/Manager.Reset", resetBody("ForceRestart")
	case "task":
		path = st.last.header.Get("Location")
	case "registry":
		path = "/redfish/v1/Registries/Base"
	default:
		if stepResets[name] == "" {
			st.t.Fatalf("no such step: %s", step)
		}
		method, path, body = "POST", resetURL, resetBody(stepResets[name])
	}
	known := map[uint64]bool{}
	for _, r := range st.bmc.Pending() {
		known[r.Seq] = true
	}
	done := make(chan string, 1)
	go func() {
		got, err := st.rig.try(context.Background(), method, path, body, headers...)
		if err == nil && name != "task" {
			st.last = got
		}
		done <- st.show(name, got, err)
	}()
	what := "(no answer yet)"
	eventually(st.t, said("%s is neither answered nor waits", step), func() bool {
		select {
		case answer := <-done:
			if name == "login" && st.last.header.Get("X-Auth-Token") != "" {
				st.session = []string{"Authorization", "", "X-Auth-Token", st.last.header.Get("X-Auth-Token")}
			}
			what = answer
			return true
		case <-st.hung:
			what = "(no answer)"
			return true
		default:
		}
		for _, r := range st.bmc.Pending() {
			if !known[r.Seq] {
				st.waiting = append(st.waiting, &pendingRequest{step: step, seq: r.Seq, answer: done})
				return true
			}
		}
		return false
	})
	return what
}

// collect shows the answers that have come with time.
func (st *stage) collect() {
	pending := map[uint64]bool{}
	for _, r := range st.bmc.Pending() {
		pending[r.Seq] = true
	}
	st.waiting = slices.DeleteFunc(st.waiting, func(w *pendingRequest) bool {
		if pending[w.seq] {
			return false
		}
		st.line("  answer to "+w.step, next(st.t, "answer to "+w.step, w.answer))
		return true
	})
}

func (st *stage) show(step string, got reply, err error) string {
	if err != nil {
		return "connection reset"
	}
	answer := fmt.Sprint(got.status)
	switch {
	case got.status == 401 && got.header.Get("WWW-Authenticate") == "":
		answer += " without a challenge"
	case got.header.Get("Retry-After") != "":
		answer += " retry after " + got.header.Get("Retry-After")
	}
	switch {
	case got.header.Get("Content-Type") == "text/html":
		return answer + " with a page of its own"
	case got.status >= 300 && got.status < 400:
		return answer + " to " + got.header.Get("Location")
	case got.status >= 400:
		return answer + got.says(st.t)
	}
	if got.status != 200 && got.status != 201 {
		return answer
	}
	if len(bytes.TrimSpace(got.body)) == 0 {
		return answer + " and nothing"
	}
	body := got.json(st.t)
	switch step {
	case "get":
		if _, ok := body["PowerState"]; !ok {
			return answer + " without PowerState"
		}
		return fmt.Sprintf("%s %v", answer, body["PowerState"])
	case "types":
		return fmt.Sprint(body["Actions"].(map[string]any)["#ComputerSystem.Reset"].(map[string]any)["ResetType@Redfish.AllowableValues"])
	case "managers":
		return fmt.Sprint(body["Links"].(map[string]any)["ManagedBy"])
	case "login":
		return answer + " Location " + got.header.Get("Location")
	}
	return answer
}

// says lists the ids of an error's messages, then a line with their texts. A
// message without a text, as HPE's are, shows its arguments instead.
func (r reply) says(t *testing.T) string {
	t.Helper()
	var m struct {
		Error struct {
			Info []struct {
				MessageId   string
				Message     string
				MessageArgs []string
			} `json:"@Message.ExtendedInfo"`
		}
	}
	if err := json.Unmarshal(r.body, &m); err != nil || len(m.Error.Info) == 0 {
		t.Fatalf("%v, no message in %q", err, r.body)
	}
	ids, texts := "", ""
	for _, i := range m.Error.Info {
		ids += " " + i.MessageId
		if texts += " "; i.Message != "" {
			texts += fmt.Sprintf("%q", i.Message)
		} else {
			texts += fmt.Sprintf("%q", i.MessageArgs)
		}
	}
	return ids + "\n" + strings.TrimSpace(texts)
}

// TestPresetsSayWhatClientsMatch holds the refusals against the strings by which
// clients know them.
func TestPresetsSayWhatClientsMatch(t *testing.T) {
	for _, c := range []struct {
		preset, script string
		status         int
		matches        []string
	}{
		// sushy repeats a request, whatever its method, on these (connector.py).
		{"idrac-sys518-busy", "off", 503, []string{"SYS518"}},
		{"ilo-power-is-off-400", "off +2s off", 400, []string{"iLO", "InvalidOperationForSystemState"}},
		// Ironic takes this for an off when the power state is not to be had, and
		// repeats On and a change of the boot device on those (power.py, management.py).
		{"dell-redundant-off-409", "off +2s off", 409, []string{"already powered off"}},
		{"idrac10-on-409-after-off", "off +2s on", 409, []string{"ActionParameterValueConflict"}},
		{"hpe-no-boot-change-in-post", "off +2s on boot", 400, []string{"UnableToModifyDuringSystemPOST"}},
		// gofish repeats an action without If-Match on 412.
		{"idrac10-etag-rejected", "match/off", 412, nil},
		{"idrac10-etag-rejected", "any/off", 412, nil},
		{"supermicro-no-licence", "off", 403, []string{"OemLicenseNotPassed", "Not licensed to perform this request"}},
	} {
		t.Run(c.preset, func(t *testing.T) {
			// Ironic compares in lower case; sushy's strings have to match as they are.
			st := perform(t, c.script, c.preset)
			if st.last.status != c.status {
				t.Errorf("status %d, want %d", st.last.status, c.status)
			}
			for _, m := range c.matches {
				if body := string(st.last.body); !strings.Contains(body, m) && !strings.Contains(strings.ToLower(body), m) {
					t.Errorf("%q is not in %s", m, body)
				}
			}
		})
	}
}
