package redfish_test

import (
	"fmt"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/redfish"
)

const chassisURL = "/redfish/v1/Chassis/node-1"

// TestChassis: the chassis has the power of its host, and a reset of its own that turns that off
// and on. What a rule says of reads and resets goes for both.
func TestChassis(t *testing.T) {
	says := func(t *testing.T, r *rig, want string) {
		t.Helper()
		for _, path := range []string{systemURL, chassisURL} {
			if got := r.do("GET", path, "").json(t)["PowerState"]; fmt.Sprint(got) != want {
				t.Errorf("%s says %v, want %s", path, got, want)
			}
		}
	}
	press := func(r *rig, kind fakebmc.ResetType) reply {
		return r.do("POST", chassisURL+"/Actions/Chassis.Reset", resetBody(kind))
	}
	t.Run("off and on", func(t *testing.T) {
		r := newRig(t, redfish.Config{}, "node-1")
		says(t, r, "On")
		if got := press(r, fakebmc.ResetForceOff); got.status != 204 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		says(t, r, "Off")
		if got := press(r, fakebmc.ResetOn); got.status != 204 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		says(t, r, "On")
		if boots := r.hosts[0].Boots(); boots != 2 {
			t.Errorf("%d boots, want 2", boots)
		}
	})
	t.Run("no operating system to ask", func(t *testing.T) {
		r := newRig(t, redfish.Config{}, "node-1")
		if got := press(r, fakebmc.ResetGracefulShutdown); got.status != 400 || got.message() != "ActionParameterValueNotInList" {
			t.Errorf("%d %s", got.status, got.body)
		}
		says(t, r, "On")
	})
	t.Run("a lie about the power", func(t *testing.T) {
		r := newRig(t, redfish.Config{}, "node-1")
		r.rule(`{"name": "lie", "effect": {"report": "Off"}}`)
		says(t, r, "Off")
	})
	t.Run("a reset that is ignored", func(t *testing.T) {
		r := newRig(t, redfish.Config{}, "node-1")
		r.rule(`{"name": "deaf", "when": {"reset": ["ForceOff"]}, "effect": {"ignore": true}}`)
		if got := press(r, fakebmc.ResetForceOff); got.status != 204 {
			t.Errorf("%d %s", got.status, got.body)
		}
		says(t, r, "On")
	})
	t.Run("a rule for the chassis alone", func(t *testing.T) {
		r := newRig(t, redfish.Config{}, "node-1")
		r.rule(`{"name": "no", "when": {"path": "/redfish/v1/Chassis/*"}, "effect": {"refuse": {"status": 500}}}`)
		if got := r.do("GET", chassisURL, "").status; got != 500 {
			t.Errorf("the chassis answers %d", got)
		}
		if got := r.do("GET", systemURL, "").status; got != 200 {
			t.Errorf("the system answers %d", got)
		}
	})
}

// TestChassisOfAMockup: it has the resets that the mockup's action lists, and its power is what the
// BMC says, too.
func TestChassisOfAMockup(t *testing.T) {
	r := mockupRig(t, "short", redfish.Config{})
	const chassis = v1 + "/Chassis/chassis"
	for kind, want := range map[fakebmc.ResetType]int{fakebmc.ResetForceOff: 400, fakebmc.ResetPowerCycle: 204} {
		if got := r.do("POST", chassis+"/Actions/Chassis.Reset", resetBody(kind)); got.status != want {
			t.Errorf("%s: %d %s, want %d", kind, got.status, got.body, want)
		}
	}
	if boots := r.hosts[0].Boots(); boots != 2 {
		t.Errorf("%d boots, want 2", boots)
	}
	for _, c := range []struct {
		report string
		want   any
	}{{"Off", "Off"}, {"null", nil}} {
		r := mockupRig(t, "short", redfish.Config{})
		r.rule(`{"name": "says-` + c.report + `", "effect": {"report": "` + c.report + `"}}`)
		got := r.do("GET", chassis, "")
		if power := got.json(t)["PowerState"]; power != c.want || got.header.Get("X-Acme") != "yes" {
			t.Errorf("it says %v, with the headers %v; want %v", power, got.header, c.want)
		}
	}
}
