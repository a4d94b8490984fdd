package redfish_test

import (
	"fmt"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
)

// TestAdmission shows each effect that lets only some requests pass: what it
// answers the others, by itself and with a vendor's refuse beside it.
func TestAdmission(t *testing.T) {
	login := func(r *rig) reply {
		return r.do("POST", loginURL, `{"UserName": "admin", "Password": "s3cret"}`, "Authorization", "")
	}
	read := func(r *rig) reply { return r.do("GET", systemURL, "") }
	reset := func(header ...string) func(*rig) reply {
		return func(r *rig) reply { return r.do("POST", resetURL, resetBody("ForceOff"), header...) }
	}
	boot := func(header ...string) func(*rig) reply {
		return func(r *rig) reply {
			return r.do("PATCH", systemURL, `{"Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}}`, header...)
		}
	}
	tagged := []string{"If-Match", "*"}
	for _, c := range []struct {
		name, effect string
		admitted     func(*rig) reply // before
		status       int
		refused      func(*rig) reply
		standard     string
		own          bool // it is not the effect that refuses
	}{
		{"cap", `"cap": 1`, login, 201, login, "503 SessionLimitExceeded", false},
		{"cap above the service's own", `"cap": 2`, login, 201, login, "503 SessionLimitExceeded", true},
		{"expire", `"expire": true`, read, 200, func(r *rig) reply {
			return reset("Authorization", "", "X-Auth-Token", login(r).header.Get("X-Auth-Token"))(r)
		}, "401 NoValidSession", false},
		{"no sessions", `"auth": "basic"`, read, 200, login, "405 OperationNotAllowed", false},
		{"no basic", `"auth": "session"`, login, 201, reset(), "401 NoValidSession", false},
		{"tag required of a change", `"etag": "required"`, boot(tagged...), 204, boot(), "428 PreconditionRequired", false},
		{"tag required of a reset", `"etag": "required"`, reset(tagged...), 204, reset(), "428 PreconditionRequired", false},
		{"tag rejected", `"etag": "reject"`, boot(tagged...), 204, reset(tagged...), "412 PreconditionFailed", false},
	} {
		for _, answer := range []struct {
			name, refuse string
			shown        func(*testing.T, reply) string
			want         string
		}{
			{"standard", "", nil, ""},
			{"vendor's", `, "refuse": {"status": 418, "id": "Vendor.1.0.No", "args": ["you"], "text": "Not today", "retry": "30s", "headers": {"X-Vendor": "yes"}}`,
				func(t *testing.T, got reply) string {
					e := got.json(t)["error"].(map[string]any)
					return fmt.Sprint(got.status, " ", e["code"], " ", e["message"], " ", got.header.Get("Retry-After"), " ", got.header.Get("X-Vendor"))
				}, "418 Vendor.1.0.No Not today 30 yes"},
			{"vendor's body", `, "refuse": {"status": 418, "body": "{\"no\": true}"}`,
				func(_ *testing.T, got reply) string { return fmt.Sprint(got.status, " ", string(got.body)) }, `418 {"no": true}`},
		} {
			t.Run(c.name+"/"+answer.name, func(t *testing.T) {
				cfg := account
				cfg.MaxSessions = 1
				r := newRig(t, cfg, "node-1")
				r.rule(fmt.Sprintf(`{"effect": {%s%s}}`, c.effect, answer.refuse))
				if got := c.admitted(r); got.status != c.status {
					t.Fatalf("%d %s, want %d", got.status, got.body, c.status)
				}
				got := c.refused(r)
				shown, want := fmt.Sprint(got.status, " ", got.message()), c.standard
				if answer.shown != nil && !c.own {
					shown, want = answer.shown(t, got), answer.want
				}
				if shown != want {
					t.Errorf("%s, want %s", shown, want)
				}
				var last fakebmc.Record
				for len(r.seen) > 0 {
					last = <-r.seen
				}
				if last.Executed != fakebmc.Never || last.Answer.Status != got.status {
					t.Errorf("recorded as %+v", last)
				}
			})
		}
	}
}

// TestHeadersAreThoseOfTheRule looks at headers that the server has a value for, too.
func TestHeadersAreThoseOfTheRule(t *testing.T) {
	r := newRig(t, account, "node-1")
	r.rule(`{"effect": {"refuse": {"status": 504, "body": "<html>gateway time-out</html>", "headers": {"Content-Type": "text/html", "OData-Version": "3.0"}}}}`)
	got := r.do("GET", systemURL, "")
	if got.status != 504 || got.header.Get("Content-Type") != "text/html" || got.header.Get("OData-Version") != "3.0" || string(got.body) != "<html>gateway time-out</html>" {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
}

// TestSetLeavesTheRestAlive gives some properties values that no schema allows, and looks at others
// before and after a reset.
func TestSetLeavesTheRestAlive(t *testing.T) {
	r := newRig(t, account, "node-1")
	r.rule(`{"effect": {"set": {"@odata.etag": 7, "Boot/BootSourceOverrideTarget": null, "Oem/Vendor/Odd": [1, "x"]}}}`)
	for _, want := range []string{"On", "Off"} {
		body := r.do("GET", systemURL, "").json(t)
		oem := fmt.Sprint(body["Oem"])
		boot := body["Boot"].(map[string]any)
		if body["@odata.etag"] != 7.0 || boot["BootSourceOverrideTarget"] != nil || boot["BootSourceOverrideEnabled"] != "Disabled" || oem != "map[Vendor:map[Odd:[1 x]]]" || body["PowerState"] != want {
			t.Errorf("%v", body)
		}
		r.do("POST", resetURL, resetBody("ForceOff"))
	}
}
