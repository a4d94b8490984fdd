package redfish_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stmcginnis/gofish"
	standard "github.com/stmcginnis/gofish/redfish"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
	"github.com/fencelab/fencelab/fakebmc/wall"
)

// The mockups are made by hand, in the shapes of services that reports describe: long names and
// jobs of a vendor's; a slash at the end of every path; resets that an ActionInfo lists, and a
// manager that can't be reset; and a small one of open firmware, also in the short form of the
// directory. The shapes are of one file each: a settings object that takes the boot override, also
// one that is only linked; names with percent signs; drives that are changed by PATCH; targets that
// no schema has; blades and baseboards beside the system; and what some leave out.
var mockups = []struct {
	name, system, manager, sessions string
	resets                          []string // that the mockup lists and a host in memory executes
}{
	{"embedded", "/Systems/System.Embedded.1", "/Managers/Manager.Embedded.1", "/Sessions", []string{"On", "ForceOff", "ForceRestart", "GracefulShutdown", "PushPowerButton", "Nmi", "PowerCycle"}},
	{"slashes", "/Systems/1", "/Managers/1", "/SessionService/Sessions", []string{"On", "ForceOff", "GracefulShutdown", "ForceRestart", "Nmi", "PushPowerButton", "GracefulRestart"}},
	{"action-info", "/Systems/1", "", "/SessionService/Sessions", []string{"On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "Nmi", "ForceOn"}},
	{"open", "/Systems/system", "/Managers/bmc", "/SessionService/Sessions", []string{"On", "ForceOff", "ForceOn", "ForceRestart", "GracefulRestart", "GracefulShutdown", "PowerCycle", "Nmi"}},
	{"settings-object", "/Systems/System.Embedded.1", "/Managers/Manager.Embedded.1", "/Sessions", []string{"On", "ForceOff", "ForceRestart", "GracefulRestart", "GracefulShutdown", "PushPowerButton", "Nmi", "PowerCycle"}},
	{"self", "/Systems/Self", "/Managers/Self", "/SessionService/Sessions", []string{"ForceRestart", "On", "ForceOff", "GracefulShutdown", "GracefulRestart"}},
	{"settings-missing", "/Systems/Node0", "/Managers/BMC", "/SessionService/Sessions", everyListed},
	{"media-by-patch", "/Systems/1", "/Managers/1", "/SessionService/Sessions", []string{"On", "Nmi", "GracefulShutdown", "GracefulRestart", "ForceOn", "ForceOff", "ForceRestart"}},
	{"own-targets", "/Systems/1", "/Managers/1", "/SessionService/Sessions", []string{"On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "Nmi", "ForceOn"}},
	{"rackmount", "/Systems/437AB1138R2", "/Managers/BMC", "/SessionService/Sessions", []string{"On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "Nmi", "ForceOn", "PushPowerButton"}},
	{"blades", "/Systems/Blade1", "/Managers/EnclosureManager", "/SessionService/Sessions", everyListed},
	{"no-events", "/Systems/0", "/Managers/iMC", "/SessionService/Sessions", []string{"On", "ForceOn", "ForceOff", "ForceRestart", "GracefulShutdown", "GracefulRestart", "PushPowerButton", "Nmi", "PowerCycle"}},
	{"serial-ids", "/Systems/WZP0000A1BC", "/Managers/IMC", "/SessionService/Sessions", []string{"On", "ForceOff", "GracefulShutdown", "ForceRestart", "Nmi", "PowerCycle"}},
	{"baseboard", "/Systems/System_0", "/Managers/BMC_0", "/SessionService/Sessions", everyListed},
	{"short", "/Systems/system", "/Managers/bmc", "/SessionService/Sessions", []string{"On", "ForceOff", "ForceOn", "ForceRestart", "GracefulRestart", "GracefulShutdown", "PowerCycle", "Nmi"}},
}

var everyListed = []string{"On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "Nmi", "PowerCycle", "PushPowerButton"}

const v1 = "/redfish/v1"

// mockupDir is the directory of a mockup, which is made of the one file of a shape.
func mockupDir(t testing.TB, name string) string {
	t.Helper()
	file := filepath.Join("testdata/shapes", name+".json")
	if _, err := os.Stat(file); err == nil {
		return systemtest.Shape(t, file)
	}
	return filepath.Join("testdata/mockups", name)
}

// mockupRig serves one host that looks like a mockup.
func mockupRig(t *testing.T, name string, cfg redfish.Config, options ...fakebmc.Option) *rig {
	t.Helper()
	return mockupRigOf(t, mockupDir(t, name), cfg, options...)
}

// mockupRigOf serves one that looks like the mockup in a directory.
func mockupRigOf(t *testing.T, dir string, cfg redfish.Config, options ...fakebmc.Option) *rig {
	t.Helper()
	m, err := redfish.LoadMockup(dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Mockup = m
	r := &rig{t: t, user: [2]string{cfg.Username, cfg.Password}, seen: make(chan fakebmc.Record, 1000)}
	h := memory.New(wall.Clock(), memory.Timing{}, true)
	options = append(options, m.Locate(), fakebmc.OnRequest(func(rec fakebmc.Record) { r.seen <- rec }))
	r.hosts, r.bmcs = []*memory.Host{h}, []*fakebmc.BMC{fakebmc.New("node-1", h, wall.Clock(), options...)}
	if r.server, err = redfish.NewServer(cfg); err != nil {
		t.Fatal(err)
	}
	if r.url, err = r.server.Listen("127.0.0.1:0", r.bmcs[0]); err != nil {
		t.Fatal(err)
	}
	r.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	t.Cleanup(func() {
		if err := r.server.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// TestMockups: each resource is what the mockup's file says, but for what is alive, which is true.
func TestMockups(t *testing.T) {
	for _, m := range mockups {
		t.Run(m.name, func(t *testing.T) {
			r := mockupRig(t, m.name, redfish.Config{})
			seen := 0
			dir := mockupDir(t, m.name)
			err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
				if err != nil || filepath.Base(file) != "index.json" {
					return err
				}
				at := strings.TrimPrefix(filepath.Dir(file), dir)
				if m.name == "short" {
					at = v1 + at
				}
				data, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				var want map[string]any
				if err := json.Unmarshal(data, &want); err != nil {
					return err
				}
				for _, path := range []string{at, at + "/"} { // as clients ask
					got := r.do("GET", path, "").json(t)
					for key, value := range want {
						switch key {
						case "DeliveryRetryAttempts", "DeliveryRetryIntervalSeconds", "Members", "Members@odata.count", "Boot", "HostWatchdogTimer", "Actions", "ServerSentEventUri", "Parameters", "PowerRestorePolicy":
							continue // what is alive is judged below
						}
						if a, b := mustJSON(t, got[key]), mustJSON(t, value); a != b {
							t.Errorf("%s has %s %s, want %s", path, key, a, b)
						}
					}
				}
				seen++
				return nil
			})
			if err != nil || seen < 12 {
				t.Fatalf("%d resources were seen: %v", seen, err)
			}
			for _, unknown := range []string{v1 + "/Systems/node-1", v1 + "/AccountService", v1 + "/Systems/nobody"} {
				if got := r.do("GET", unknown, ""); got.status != http.StatusNotFound {
					t.Errorf("%s, which the mockup has not, answers %d", unknown, got.status)
				}
			}

			system, power := v1+m.system, func() any { return r.do("GET", v1+m.system, "").json(t)["PowerState"] }
			actions := inSystem(r.do("GET", system, "").json(t), "Actions", "#ComputerSystem.Reset").(map[string]any)
			listed := actions["ResetType@Redfish.AllowableValues"]
			if info, ok := actions["@Redfish.ActionInfo"].(string); ok {
				listed = r.do("GET", info, "").json(t)["Parameters"].([]any)[0].(map[string]any)["AllowableValues"]
			}
			if got, want := mustJSON(t, listed), mustJSON(t, m.resets); got != want {
				t.Errorf("it allows %s, want %s", got, want)
			}
			reset := actions["target"].(string)
			if got := r.do("POST", reset, resetBody("ForceOff")); got.status >= 300 {
				t.Fatalf("ForceOff: %d %s", got.status, got.body)
			}
			eventually(t, said("the host is not off"), func() bool { return power() == "Off" })
			for _, refused := range []string{"Suspend", "Pause"} {
				if got := r.do("POST", reset, resetBody(fakebmc.ResetType(refused))); got.status != http.StatusBadRequest {
					t.Errorf("%s, which it doesn't list or can't do, answers %d", refused, got.status)
				}
			}
			if !slices.Contains(m.resets, "PushPowerButton") {
				if got := r.do("POST", reset, resetBody("PushPowerButton")); got.status != http.StatusBadRequest {
					t.Errorf("PushPowerButton, which it doesn't list, answers %d", got.status)
				}
			}
			if got := r.do("PATCH", v1+m.system+"/Processors", "{}"); got.status != http.StatusMethodNotAllowed {
				t.Errorf("a change of what is not alive answers %d", got.status)
			}
			manager := v1 + "/Managers/1/Actions/Manager.Reset"
			want := http.StatusNotFound
			if m.manager != "" {
				manager, want = v1+m.manager+"/Actions/Manager.Reset", http.StatusNoContent
			}
			if got := r.do("POST", manager, resetBody("ForceRestart")); got.status != want {
				t.Errorf("a reset of the manager answers %d, want %d", got.status, want)
			}
		})
	}
}

func inSystem(o map[string]any, keys ...string) any {
	var v any = o
	for _, key := range keys {
		v = v.(map[string]any)[key]
	}
	return v
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestMockupSettings: what the mockup's system has of the settings is alive; what it hasn't stays
// away.
func TestMockupSettings(t *testing.T) {
	r := mockupRig(t, "embedded", redfish.Config{}, fakebmc.UUID("11111111-2222-3333-4444-555555555555"))
	system := v1 + "/Systems/System.Embedded.1"
	if got := r.do("PATCH", system, `{"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}`); got.status != http.StatusNoContent {
		t.Fatalf("a boot override answers %d %s", got.status, got.body)
	}
	got := r.do("GET", system, "").json(t)
	if target, order := inSystem(got, "Boot", "BootSourceOverrideTarget"), inSystem(got, "Boot", "BootOrder"); target != "Pxe" || mustJSON(t, order) != `["Boot0001","Boot0003"]` {
		t.Errorf("it boots from %v once, then %v", target, order)
	}
	if got["UUID"] != "11111111-2222-3333-4444-555555555555" || got["PowerRestorePolicy"] != nil || got["SerialNumber"] != "SERIAL-1" {
		t.Errorf("the UUID is %v, the policy %v, the serial number %v", got["UUID"], got["PowerRestorePolicy"], got["SerialNumber"])
	}
	bios := mockupRig(t, "slashes", redfish.Config{}).do("GET", v1+"/Systems/1/Bios/", "")
	if bios.header.Get("X-Acme") != "yes" || bios.header.Get("ETag") == `W/"1"` || bios.header.Get("Allow") != "GET, HEAD" {
		t.Errorf("headers: %v", bios.header)
	}
}

// TestMockupRules: rules name the mockup's paths, and those that it hasn't are refused.
func TestMockupRules(t *testing.T) {
	r := mockupRig(t, "embedded", redfish.Config{})
	r.rule(`{"when": {"path": "/redfish/v1/Systems/System.Embedded.1"}, "effect": {"refuse": {"status": 503}}}`)
	if got := r.do("GET", v1+"/Systems/System.Embedded.1", ""); got.status != http.StatusServiceUnavailable {
		t.Errorf("the system answers %d", got.status)
	}
	r.rule(`{"name": "ignored", "when": {"reset": ["ForceOff"]}, "effect": {"ignore": true}}`)
	if got := r.do("POST", v1+"/Systems/System.Embedded.1/Actions/ComputerSystem.Reset", resetBody("ForceOff")); got.status >= 300 || r.hosts[0].Boots() != 1 {
		t.Errorf("a ForceOff that is ignored answers %d", got.status)
	}
	if state, err := r.hosts[0].PowerState(); err != nil || state != fakebmc.On {
		t.Errorf("the host is %s, %v", state, err)
	}
}

// TestMockupGofish: a client of somebody's follows the mockup's links, logs in where they lead, and
// switches the host off and on.
func TestMockupGofish(t *testing.T) {
	for _, m := range mockups {
		t.Run(m.name, func(t *testing.T) {
			r := mockupRig(t, m.name, account)
			client, err := gofish.ConnectContext(t.Context(), gofish.ClientConfig{Endpoint: r.url, Username: account.Username, Password: account.Password, HTTPClient: r.client})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Logout()
			find := func() (*standard.ComputerSystem, error) {
				systems, err := client.Service.Systems()
				if i := slices.IndexFunc(systems, func(s *standard.ComputerSystem) bool { return strings.TrimSuffix(s.ODataID, "/") == v1+m.system }); i >= 0 {
					return systems[i], err
				}
				return nil, fmt.Errorf("no system %s in %v: %w", m.system, systems, err)
			}
			system, err := find()
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range []struct {
				reset standard.ResetType
				want  standard.PowerState
			}{{"ForceOff", "Off"}, {"On", "On"}} {
				if err := system.Reset(step.reset); err != nil {
					t.Fatalf("%s: %v", step.reset, err)
				}
				eventually(t, said("%s has no effect", step.reset), func() bool {
					now, err := find()
					return err == nil && now.PowerState == step.want
				})
			}
			sessions, err := client.Service.Sessions()
			if err != nil || len(sessions) != 1 || !strings.HasPrefix(sessions[0].ODataID, v1+m.sessions+"/") {
				t.Errorf("sessions %v, %v", sessions, err)
			}
			if cpus, err := system.Processors(); err != nil || len(cpus) != 1 || cpus[0].TotalCores != 16 {
				t.Errorf("processors %v, %v", cpus, err)
			}
		})
	}
}

// TestNoMockup: a directory that is none, or can't be what a host looks like, is refused with the
// reason and the file.
func TestNoMockup(t *testing.T) {
	whole := func(change func(files map[string]string)) string {
		files := make(map[string]string)
		const dir = "testdata/mockups/open"
		err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			data, err := os.ReadFile(file)
			files[strings.TrimPrefix(file, dir+"/")] = string(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		change(files)
		to := t.TempDir()
		for name, text := range files {
			file := filepath.Join(to, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		return to
	}
	replace := func(file, old, new string) func(map[string]string) {
		return func(files map[string]string) {
			if !strings.Contains(files[file], old) {
				t.Fatalf("%s has no %s", file, old)
			}
			files[file] = strings.ReplaceAll(files[file], old, new)
		}
	}
	for _, c := range []struct{ name, dir, want string }{
		{"nothing", t.TempDir(), "neither redfish/v1/index.json nor index.json"},
		{"not there", "/nowhere", "neither redfish/v1/index.json nor index.json"},
		{"no JSON", whole(func(files map[string]string) { files["redfish/v1/Systems/system/index.json"] = "{" }), "redfish/v1/Systems/system/index.json: unexpected EOF"},
		{"no systems", whole(replace("redfish/v1/index.json", `"Systems"`, `"Servers"`)), "leads to no Systems"},
		{"no reset", whole(replace("redfish/v1/Systems/system/index.json", "#ComputerSystem.Reset", "#ComputerSystem.Restart")), "none of its 1 systems has the action ComputerSystem.Reset"},
		{"no login", whole(func(files map[string]string) {
			replace("redfish/v1/index.json", `"Sessions"`, `"Logins"`)(files)
			replace("redfish/v1/SessionService/index.json", `"Sessions"`, `"Logins"`)(files)
		}), "no Links.Sessions, without which nobody can log in"},
		{"two values", whole(func(files map[string]string) { files["redfish/v1/Systems/system/index.json"] += "{}" }), "redfish/v1/Systems/system/index.json: something comes after the resource"},
		{"null", whole(func(files map[string]string) { files["redfish/v1/Systems/system/index.json"] = "null" }), "redfish/v1/Systems/system/index.json: it is null"},
		{"no list", whole(replace("redfish/v1/Systems/index.json", "[", `"x", "Others": [`)), "redfish/v1/Systems/index.json: Members is no list of systems"},
		{"a member without a link", whole(replace("redfish/v1/Systems/index.json", `"Members": [`, `"Members": ["x",`)), "redfish/v1/Systems/index.json: member 1 leads to no system"},
		{"a first system that isn't there", whole(replace("redfish/v1/Systems/index.json", `"Members": [`, `"Members": [{"@odata.id": "/redfish/v1/Systems/0"},`)), "redfish/v1/Systems/index.json: it leads to /redfish/v1/Systems/0, and there is no index.json of that"},
		{"no target", whole(replace("redfish/v1/Systems/system/index.json", `"target"`, `"aim"`)), "redfish/v1/Systems/system/index.json: the action ComputerSystem.Reset has no target"},
		{"actions that are none", whole(replace("redfish/v1/Systems/system/index.json", `"Actions": {`, `"Actions": "none", "More": {`)), "redfish/v1/Systems/system/index.json: Actions is no object"},
		{"a boot that is none", whole(replace("redfish/v1/Systems/system/index.json", `"Boot": {`, `"Boot": [], "More": {`)), "redfish/v1/Systems/system/index.json: Boot is no object"},
		{"an action info of texts", whole(func(files map[string]string) {
			replace("redfish/v1/Systems/system/index.json", `"ResetType@Redfish.AllowableValues"`, `"@Redfish.ActionInfo": "/redfish/v1/Systems/system/Info", "Listed"`)(files)
			files["redfish/v1/Systems/system/Info/index.json"] = `{"Parameters": ["ResetType"]}`
		}), "redfish/v1/Systems/system/Info/index.json: parameter 1 is no object"},
		{"too large", whole(func(files map[string]string) {
			files["redfish/v1/Log/index.json"] = `{"Log": "` + strings.Repeat("x", 5<<20) + `"}`
		}), "redfish/v1/Log/index.json has "},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := redfish.LoadMockup(c.dir); err == nil || !strings.Contains(err.Error(), "load the mockup "+c.dir) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestTargetIsResource: a tree that has a resource at the target of an action shows it there, and
// the action works.
func TestTargetIsResource(t *testing.T) {
	dir := mockupDir(t, "baseboard")
	var tree struct {
		Actions map[string]struct{ Target string }
	}
	for _, of := range []string{"Systems/System_0", "Managers/BMC_0"} {
		data, err := os.ReadFile(filepath.Join(dir, v1, of, "index.json"))
		if err == nil {
			err = json.Unmarshal(data, &tree)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, action := range []string{"#ComputerSystem.Reset", "#Manager.Reset"} {
		at := filepath.Join(dir, tree.Actions[action].Target)
		if err := errors.Join(os.MkdirAll(at, 0o755), os.WriteFile(filepath.Join(at, "index.json"), []byte(`{"Id": "`+action+`"}`), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	r := mockupRigOf(t, dir, redfish.Config{})
	for _, action := range []string{"#ComputerSystem.Reset", "#Manager.Reset"} { // the manager's own restart drops connections
		at, reset := tree.Actions[action].Target, map[string]fakebmc.ResetType{"#ComputerSystem.Reset": fakebmc.ResetForceOff, "#Manager.Reset": "ForceRestart"}[action]
		if got := r.do("GET", at, "").json(t); got["Id"] != action {
			t.Errorf("%s shows %v", at, got)
		}
		if got := r.do("POST", at, `{}`); got.message() != "ActionParameterMissing" {
			t.Errorf("%s without a parameter answers %d %s", at, got.status, got.body)
		}
		if got := r.do("POST", at, resetBody(reset)); got.status >= 300 {
			t.Errorf("%s answers %d %s", at, got.status, got.body)
		}
	}
	eventually(t, said("the host is not off"), func() bool { return r.state() == fakebmc.Off })
}

// TestMockupDrive: the mockup's CD drive, wherever it has that, is the host's; its other drives are
// as the mockup says.
func TestMockupDrive(t *testing.T) {
	const image = "http://127.0.0.1:8080/images/boot.iso"
	for name, media := range map[string]string{"slashes": "/Managers/1/VirtualMedia", "embedded": "/Systems/System.Embedded.1/VirtualMedia"} {
		r := mockupRig(t, name, redfish.Config{Media: []string{"http://127.0.0.1:8080/images/"}})
		cd, action := v1+media+"/2", v1+media+"/2/Actions/VirtualMedia."
		inserted := func(want any) {
			t.Helper()
			got := r.do("GET", cd, "").json(t)
			if in, _ := r.hosts[0].Media(); got["Image"] != want || got["Inserted"] != (want != nil) || got["TransferMethod"] != "Stream" || (want != nil) != (in == image) {
				t.Errorf("%s: the drive has %v, and the host %q; want %v", name, got, in, want)
			}
		}
		inserted(nil)
		if got := r.do("POST", action+"InsertMedia", `{"Image": "http://127.0.0.1:9/other.iso"}`); got.status != http.StatusForbidden {
			t.Errorf("%s: an image that isn't allowed answers %d", name, got.status)
		}
		if got := r.do("POST", action+"InsertMedia", `{"Image": "`+image+`"}`); got.status != http.StatusNoContent {
			t.Errorf("%s: an image answers %d %s", name, got.status, got.body)
		}
		inserted(image)
		if got := r.do("POST", v1+media+"/1/Actions/VirtualMedia.InsertMedia", `{"Image": "`+image+`"}`); got.status != http.StatusBadRequest || got.message() != "ActionNotSupported" {
			t.Errorf("%s: the other drive answers %d %s", name, got.status, got.body)
		}
		if got := r.do("POST", action+"EjectMedia", `{}`); got.status != http.StatusNoContent {
			t.Errorf("%s: an ejection answers %d %s", name, got.status, got.body)
		}
		inserted(nil)
	}
}
