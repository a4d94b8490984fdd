package redfish_test

import (
	"net/http"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/wall"
)

// TestBodies: rules select requests by what they say, at any depth, and all else passes.
func TestBodies(t *testing.T) {
	r := newRig(t, redfish.Config{}, "node-1")
	r.rule(`{"when": {"method": "PATCH", "body": {"Boot/BootSourceOverrideTarget": "Pxe", "Boot/BootSourceOverrideEnabled": "*"}}, "effect": {"refuse": {"status": 400}}}`)
	r.rule(`{"name": "timer", "when": {"body": {"HostWatchdogTimer/FunctionEnabled": "true"}}, "effect": {"refuse": {"status": 409}}}`)
	for body, want := range map[string]int{
		`{"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}`: http.StatusBadRequest,
		`{"Boot": {"BootSourceOverrideTarget": "Pxe"}}`:                                      http.StatusNoContent,
		`{"Boot": {"BootSourceOverrideTarget": "Hdd", "BootSourceOverrideEnabled": "Once"}}`: http.StatusNoContent,
		`{"HostWatchdogTimer": {"FunctionEnabled": true}}`:                                   http.StatusConflict,
		`{"HostWatchdogTimer": {"FunctionEnabled": false}}`:                                  http.StatusNoContent,
		`{"HostWatchdogTimer": 1}`:                                                           http.StatusBadRequest,
		`[`:                                                                                  http.StatusBadRequest,
	} {
		if got := r.do("PATCH", systemURL, body); got.status != want {
			t.Errorf("%s answers %d, want %d: %s", body, got.status, want, got.body)
		}
	}
}

// TestLose: a change of which a part doesn't stick is answered as one that did.
func TestLose(t *testing.T) {
	r := newRig(t, redfish.Config{}, "node-1")
	r.rule(`{"effect": {"lose": ["Boot/BootSourceOverrideEnabled", "PowerRestorePolicy"]}}`)
	if got := r.do("PATCH", systemURL, `{"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}, "PowerRestorePolicy": "AlwaysOff"}`); got.status != http.StatusNoContent {
		t.Fatalf("it answers %d: %s", got.status, got.body)
	}
	got := r.do("GET", systemURL, "").json(t)
	if target, enabled := inSystem(got, "Boot", "BootSourceOverrideTarget"), inSystem(got, "Boot", "BootSourceOverrideEnabled"); target != "Pxe" || enabled != "Disabled" || got["PowerRestorePolicy"] == "AlwaysOff" {
		t.Errorf("the target is %v, %v, the policy %v", target, enabled, got["PowerRestorePolicy"])
	}
	if got := r.do("PATCH", systemURL, `{"Boot": {"BootSourceOverrideTarget": "Nowhere"}}`); got.status != http.StatusBadRequest {
		t.Errorf("what is wrong with the rest is not told: %d", got.status)
	}
}

// TestNeighbours: a reset of one host is one of those that share its supply, and of no other.
func TestNeighbours(t *testing.T) {
	clk := wall.Clock()
	hosts, peers := make(map[string]*memory.Host), make(map[string]fakebmc.System)
	for _, name := range []string{"blade-1", "blade-2", "node-3"} {
		hosts[name] = memory.New(clk, memory.Timing{}, true)
		peers[name] = hosts[name]
	}
	b := fakebmc.New("blade-1", hosts["blade-1"], clk, fakebmc.Peers(peers))
	defer b.Close()
	if err := b.AddRule(fakebmc.Rule{Name: "supply", Effect: fakebmc.Effect{Also: "blade-*"}}); err != nil {
		t.Fatal(err)
	}
	answered := make(chan fakebmc.Answer, 1)
	b.Do(b.ResetRequest("somebody", fakebmc.ResetForceOff), func(a fakebmc.Answer) { answered <- a })
	if a := next(t, "the answer", answered); a.Status >= 300 {
		t.Fatalf("it answers %d", a.Status)
	}
	for name, want := range map[string]fakebmc.PowerState{"blade-1": fakebmc.Off, "blade-2": fakebmc.Off, "node-3": fakebmc.On} {
		eventually(t, said("%s is not %s", name, want), func() bool {
			state, err := hosts[name].PowerState()
			return err == nil && state == want
		})
	}
}

// TestRulesThatEnd: a rule that ends with a restart of the BMC is over once it is up again, and the
// others go on.
func TestRulesThatEnd(t *testing.T) {
	h := memory.New(wall.Clock(), memory.Timing{}, true)
	b := fakebmc.New("node-1", h, wall.Clock(), fakebmc.RestartTime(1))
	server, err := redfish.NewServer(redfish.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	url, err := server.Listen("127.0.0.1:0", b)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, url: url, server: server, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}, bmcs: []*fakebmc.BMC{b}}
	r.rule(`{"name": "ill", "when": {"method": "GET", "ends": "restart"}, "effect": {"refuse": {"status": 504}}}`)
	r.rule(`{"name": "odd", "when": {"method": "GET"}, "effect": {"drop": "ETag"}}`)
	if got := r.do("GET", systemURL, ""); got.status != http.StatusGatewayTimeout {
		t.Fatalf("it answers %d", got.status)
	}
	if got := r.do("POST", "/redfish/v1/Managers/node-1/Actions/Manager.Reset", resetBody("ForceRestart")); got.status >= 300 {
		t.Fatalf("the restart answers %d", got.status)
	}
	eventually(t, said("it is as ill as before"), func() bool {
		got, err := r.try(t.Context(), "GET", systemURL, "")
		return err == nil && got.status == http.StatusOK && got.header.Get("ETag") == ""
	})
	if rules := b.Rules(); len(rules) != 1 || rules[0].Name != "odd" {
		t.Errorf("in force are %v", rules)
	}
}
