package redfish_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/fakebmc/redfish"
)

// targets collects the targets of all actions in a value, with the actions' names.
func targets(v any, into map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			if action, ok := inner.(map[string]any); ok && strings.HasPrefix(key, "#") {
				if to, ok := action["target"].(string); ok {
					into[to] = key[1:]
				}
			}
			targets(inner, into)
		}
	case []any:
		for _, inner := range v {
			targets(inner, into)
		}
	}
}

// TestTrees: whatever a client is led to in a tree is there: each link, each target of an action,
// each target of a boot override, the settings object, the drive, the subscriptions.
func TestTrees(t *testing.T) {
	for _, m := range mockups {
		t.Run(m.name, func(t *testing.T) {
			to, heard, _ := listener(t)
			r := mockupRig(t, m.name, redfish.Config{Media: []string{"http://127.0.0.1:1/"}, Destinations: []string{to}})
			actions, links := make(map[string]string), 0
			var service, drive map[string]any
			drivePath := ""
			r.walk(func(path string, got reply) {
				links++
				o := got.json(t)
				targets(o, actions)
				switch typ, _ := o["@odata.type"].(string); {
				case strings.HasPrefix(typ, "#EventService."):
					service = o
				case strings.HasPrefix(typ, "#VirtualMedia.") && drive == nil && strings.Contains(mustJSON(t, o["MediaTypes"]), "CD"):
					drive, drivePath = o, path
				}
			})
			if links < 12 || len(actions) == 0 {
				t.Fatalf("%d links and %d actions were followed", links, len(actions))
			}
			for to, name := range actions {
				got := r.do("POST", to, "{}")
				switch got.message() {
				case "ActionParameterMissing", "ActionNotSupported":
				case "":
					if got.status != http.StatusNoContent {
						t.Errorf("%s at %s answers %d %s", name, to, got.status, got.body)
					}
				default:
					t.Errorf("%s at %s answers %d %s", name, to, got.status, got.body)
				}
			}
			r.followBoot(v1 + m.system)
			if drive != nil {
				r.followDrive(drivePath, drive)
			}
			if at, ok := service["Subscriptions"].(map[string]any); ok {
				list := at["@odata.id"].(string)
				created := r.do("POST", list, fmt.Sprintf(`{"Destination": %q}`, to+m.name))
				where := created.header.Get("Location")
				if created.status != http.StatusCreated || !strings.HasPrefix(where, strings.TrimSuffix(list, "/")+"/") || r.do("GET", where, "").status != http.StatusOK {
					t.Fatalf("a subscription answers %d, %s: %s", created.status, where, created.body)
				}
				r.do("POST", resetOf(t, r, v1+m.system), resetBody("ForceOff"))
				if event := next(t, "the event", heard); !strings.HasPrefix(inSystem(event["Events"].([]any)[0].(map[string]any), "OriginOfCondition", "@odata.id").(string), v1+m.system) {
					t.Errorf("it is told %v", event)
				}
				if got := r.do("DELETE", where, ""); got.status != http.StatusNoContent {
					t.Errorf("its end answers %d", got.status)
				}
			}
		})
	}
}

// resetOf is the target of a system's reset.
func resetOf(t *testing.T, r *rig, system string) string {
	t.Helper()
	return inSystem(r.do("GET", system, "").json(t), "Actions", "#ComputerSystem.Reset", "target").(string)
}

// followBoot sets each target that a system lists, where a client is to set it.
func (r *rig) followBoot(system string) {
	t := r.t
	t.Helper()
	o := r.do("GET", system, "").json(t)
	boot, ok := o["Boot"].(map[string]any)
	if !ok {
		return
	}
	places := []string{system}
	if settings, ok := o["@Redfish.Settings"].(map[string]any); ok {
		places = append(places, inSystem(settings, "SettingsObject", "@odata.id").(string))
	}
	listed, _ := boot["BootSourceOverrideTarget@Redfish.AllowableValues"].([]any)
	for _, place := range places {
		for _, target := range append(listed, "None") {
			tag := r.do("GET", place, "").header.Get("ETag")
			got := r.do("PATCH", place, fmt.Sprintf(`{"Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": %q}, "@Redfish.SettingsApplyTime": {"ApplyTime": "OnReset"}}`, target), "If-Match", tag)
			if got.status != http.StatusNoContent {
				t.Errorf("%s at %s, which lists it, answers %d %s", target, place, got.status, got.body)
			}
			for _, at := range places {
				if now := inSystem(r.do("GET", at, "").json(t), "Boot", "BootSourceOverrideTarget"); now != target {
					t.Errorf("%s has %v after %s was set at %s", at, now, target, place)
				}
			}
		}
		if got := r.do("PATCH", place, `{"Boot": {"BootSourceOverrideTarget": "Toaster"}}`); got.status != http.StatusBadRequest {
			t.Errorf("a target that %s doesn't list answers %d", place, got.status)
		}
	}
	if slices.Contains(listed, any("UefiTarget")) {
		r.do("PATCH", places[len(places)-1], `{"Boot": {"BootSourceOverrideTarget": "UefiTarget", "UefiTargetBootSourceOverride": "PciRoot(0x0)/Pci(0x1,0x0)"}}`)
		if now, _ := r.hosts[0].Boot(); now.Target != "UefiTarget" || now.Device != "PciRoot(0x0)/Pci(0x1,0x0)" {
			t.Errorf("the host boots from %+v", now)
		}
	}
}

// followDrive inserts an image by the drive's action, or by PATCH where it has none, and ejects it.
func (r *rig) followDrive(path string, drive map[string]any) {
	t := r.t
	t.Helper()
	const image = "http://127.0.0.1:1/boot.iso"
	insert := func() reply {
		return r.do("PATCH", path, `{"Image": "`+image+`", "Inserted": true, "WriteProtected": true}`)
	}
	eject := func() reply { return r.do("PATCH", path, `{"Image": null, "Inserted": false}`) }
	if actions, ok := drive["Actions"].(map[string]any); ok {
		at := func(name string) string { return inSystem(actions, name, "target").(string) }
		insert = func() reply { return r.do("POST", at("#VirtualMedia.InsertMedia"), `{"Image": "`+image+`"}`) }
		eject = func() reply { return r.do("POST", at("#VirtualMedia.EjectMedia"), "{}") }
	} else {
		for body, want := range map[string]int{
			`{"Image": "http://127.0.0.1:9/x.iso"}`: http.StatusForbidden, `{"Image": "` + image + `", "Inserted": false}`: http.StatusBadRequest,
			`{"Image": 1}`: http.StatusBadRequest, `{"Inserted": null}`: http.StatusBadRequest, `{"Name": "x"}`: http.StatusBadRequest, `{}`: http.StatusNoContent,
		} {
			if got := r.do("PATCH", path, body); got.status != want {
				t.Errorf("%s answers %d, want %d: %s", body, got.status, want, got.body)
			}
		}
	}
	for _, step := range []struct {
		do   func() reply
		want string
	}{{insert, image}, {eject, ""}} {
		if got := step.do(); got.status != http.StatusNoContent {
			t.Errorf("the drive answers %d %s", got.status, got.body)
		}
		in, _ := r.hosts[0].Media()
		if now := r.do("GET", path, "").json(t); in != step.want || now["Inserted"] != (step.want != "") {
			t.Errorf("the host has %q, and the drive shows %v; want %q", in, now, step.want)
		}
	}
}

// TestTreesWithoutEvents: where events may go nowhere, a tree's subscriptions are there and take
// none.
func TestTreesWithoutEvents(t *testing.T) {
	r := mockupRig(t, "self", redfish.Config{})
	if got := r.do("GET", v1+"/EventService/Subscriptions", "").json(t); got["Members@odata.count"] != 0. {
		t.Errorf("it lists %v", got)
	}
	if got := r.do("POST", v1+"/EventService/Subscriptions", `{"Destination": "http://127.0.0.1:1/"}`); got.status != http.StatusForbidden || got.message() != "AccessDenied" {
		t.Errorf("it answers %d %s", got.status, got.body)
	}
}

// TestMockupLogout: the Location of a login is where the mockup has its sessions.
func TestMockupLogout(t *testing.T) {
	r := mockupRig(t, "settings-object", account)
	login := r.do("POST", v1+"/Sessions", `{"UserName": "admin", "Password": "s3cret"}`)
	at := login.header.Get("Location")
	if !strings.HasPrefix(at, v1+"/Sessions/") {
		t.Errorf("a session is at %s", at)
	}
	if got := r.do("DELETE", at, ""); got.status != http.StatusNoContent {
		t.Errorf("its end answers %d", got.status)
	}
}

// TestSettingsMisbehave: rules name the settings object of a tree, as any other path of it.
func TestSettingsMisbehave(t *testing.T) {
	r := mockupRig(t, "self", redfish.Config{})
	const settings, pxe = v1 + "/Systems/Self/SD", `{"Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}}`
	r.rule(`{"when": {"path": "` + settings + `"}, "effect": {"lose": ["Boot/BootSourceOverrideTarget"]}}`)
	if got := r.do("PATCH", settings, pxe); got.status != http.StatusNoContent {
		t.Errorf("it answers %d %s", got.status, got.body)
	}
	if boot, _ := r.hosts[0].Boot(); boot.Target != "None" || boot.Enabled != "Once" {
		t.Errorf("the host boots from %+v", boot)
	}
	r.rule(`{"name": "busy", "when": {"path": "` + settings + `", "method": "PATCH"}, "effect": {"refuse": {"status": 503}}}`)
	if got := r.do("PATCH", settings, pxe); got.status != http.StatusServiceUnavailable || r.do("GET", settings, "").status != http.StatusOK {
		t.Errorf("it answers %d", got.status)
	}
}

// TestUnlisted: a host that rules leave out of the list of systems is there for who knows where.
func TestUnlisted(t *testing.T) {
	count := func(r *rig) any { return r.do("GET", v1+"/Systems", "").json(t)["Members@odata.count"] }
	shared := newRig(t, redfish.Config{}, "node-1", "node-2")
	shared.rule(`{"name": "short", "when": {"host": "node-1"}, "effect": {"unlisted": true}}`)
	if n := count(shared); n != 1. || shared.do("GET", systemURL, "").status != http.StatusOK {
		t.Errorf("%v are listed", n)
	}
	shared.bmcs[0].RemoveRule("short")
	if n := count(shared); n != 2. {
		t.Errorf("then %v are listed", n)
	}
	blades := mockupRig(t, "blades", redfish.Config{})
	blades.rule(`{"effect": {"unlisted": true}}`)
	if n := count(blades); n != 2. {
		t.Errorf("of three blades %v are listed", n)
	}
}
