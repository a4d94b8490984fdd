package fakebmc_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
)

func TestFits(t *testing.T) {
	for _, tc := range []struct {
		rule, wrong string
		needs       map[fakebmc.Need]string
		doubts      int
	}{
		{rule: `{"when": {"reset": ["ForceOff", "ForceOn"]}, "effect": {"ignore": true}}`},
		{rule: `{"when": {"reset": ["PowerOff"]}, "effect": {"ignore": true}}`, wrong: `reset type "PowerOff" is none of [On ForceOn ForceOff GracefulShutdown GracefulRestart ForceRestart Nmi PowerCycle FullPowerCycle PushPowerButton Suspend Pause Resume]`},
		{rule: `{"when": {"host": "worker-2"}, "effect": {"ignore": true}}`, wrong: `when.host "worker-2" leaves out worker-1, whose BMC it is`},
		{rule: `{"when": {"host": "worker-*"}, "effect": {"swap": "worker-2"}}`, needs: map[fakebmc.Need]string{fakebmc.NeedsPeers: "swap"}},
		{rule: `{"effect": {"swap": "worker-1"}}`, wrong: `swap "worker-1" is no other host`, needs: map[fakebmc.Need]string{fakebmc.NeedsPeers: "swap"}},
		{rule: `{"effect": {"swap": "worker-9"}}`, wrong: `swap "worker-9" is no other host`, needs: map[fakebmc.Need]string{fakebmc.NeedsPeers: "swap"}},
		{rule: `{"effect": {"report": "Sleeping"}}`, doubts: 1},
		{rule: `{"effect": {"report": "null"}}`},
		{rule: `{"when": {"header": "X-A: b"}, "effect": {"hang": true}}`, needs: map[fakebmc.Need]string{fakebmc.NeedsWire: "header"}},
		{rule: `{"when": {"header": "X-A: b"}, "effect": {"swap": "worker-2"}}`, needs: map[fakebmc.Need]string{fakebmc.NeedsWire: "header", fakebmc.NeedsPeers: "swap"}},
		{rule: `{"effect": {"auth": "session"}}`, needs: map[fakebmc.Need]string{fakebmc.NeedsWire: "auth"}},
		{rule: `{"effect": {"advertise": ["On"]}}`, needs: map[fakebmc.Need]string{fakebmc.NeedsWire: "advertise"}},
		{rule: `{"when": {"via": "ipmi"}, "effect": {"hang": true}}`, needs: map[fakebmc.Need]string{fakebmc.NeedsIPMI: "via"}},
		{rule: `{"when": {"via": "redfish"}, "effect": {"hang": true}}`},
	} {
		rule := fakebmc.Rule{Name: "r"}
		if err := json.Unmarshal([]byte(tc.rule), &rule); err != nil {
			t.Fatal(err)
		}
		if err := rule.Validate(); err != nil {
			t.Fatal(err)
		}
		wrong := ""
		if err := rule.Fits("worker-1", []string{"worker-1", "worker-2"}); err != nil {
			wrong = err.Error()
		}
		if wrong != tc.wrong || !maps.Equal(rule.Needs(), tc.needs) || len(rule.Doubts()) != tc.doubts {
			t.Errorf("%s: %q, needs %q, doubts %q", tc.rule, wrong, rule.Needs(), rule.Doubts())
		}
	}
}

func TestHolds(t *testing.T) {
	for rule, want := range map[string]time.Duration{
		`{"effect": {"unreachable": true}}`:                                                     0,
		`{"effect": {"refuse": {"status": 500}}}`:                                               0,
		`{"effect": {"delay": "2s"}}`:                                                           0,
		`{"effect": {"lag": "3s"}}`:                                                             3 * time.Second,
		`{"effect": {"duplicate": "4s"}}`:                                                       4 * time.Second,
		`{"effect": {"transition": {"for": "60s", "report": "PoweringOff"}}}`:                   time.Minute,
		`{"when": {"reset": ["GracefulShutdown"]}, "effect": {"stuck": {"for": "5m"}}}`:         5 * time.Minute,
		`{"when": {"reset": ["ForceOff"]}, "effect": {"auto": {"reset": "On", "after": "9s"}}}`: 9 * time.Second,
		`{"effect": {"restart": {"downtime": "30s", "report": "Off", "for": "10s"}}}`:           40 * time.Second,
		`{"effect": {"loss": {"for": "10s", "downtime": "20s"}}}`:                               30 * time.Second,
		`{"effect": {"guest": {"slow": "50s"}}}`:                                                -1,
		`{"effect": {"drop": "Location"}}`:                                                      -1,
		`{"when": {"reset": ["ForceOff"]}, "effect": {"task": {"after": "7s"}}}`:                7 * time.Second,
		`{"preset": "powering-off-while-running"}`:                                              time.Minute,
	} {
		r := fakebmc.Rule{Name: "r"}
		if err := json.Unmarshal([]byte(rule), &r); err != nil {
			t.Fatal(err)
		}
		got, ok := r.Holds()
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%s holds up a request for %v, want %v", rule, got, want)
		}
	}
}

// TestHoldsBackOrHangs: a command that a preset holds back comes in its time, and one that hangs
// never does. A guarantee excuses the first only, and of a preset with both it couldn't know which.
func TestHoldsBackOrHangs(t *testing.T) {
	for _, p := range fakebmc.Presets() {
		r := fakebmc.Rule{Name: "r", Preset: p.Name}
		if long, _ := r.HoldsBack(); long > 0 && r.Hangs() {
			t.Errorf("%s holds some requests back for %v, and others hang", p.Name, long)
		}
	}
}

// TestDirectCalls: no effect that needs the wire fires on a request that has none, so that
// nothing says that it did.
func TestDirectCalls(t *testing.T) {
	effects := map[string]string{
		"cap": `1`, "expire": `true`, "auth": `"session"`, "etag": `"required"`, "drop": `"ETag"`, "omit": `"Links"`, "set": `{"Name": 1}`, "lose": `["Boot"]`, "advertise": `["On"]`, "unlisted": `true`,
	}
	for _, key := range fakebmc.KeysThatNeed(fakebmc.NeedsWire) {
		rule := fmt.Sprintf(`{"effect": {%q: %s}}`, key, effects[key])
		if key == "header" {
			rule = `{"when": {"header": "X-A: b"}, "effect": {"hang": true}}`
		}
		if key == "body" {
			rule = `{"when": {"body": {"ResetType": "*"}}, "effect": {"hang": true}}`
		}
		var fired []string
		clk := &systemtest.Clock{}
		b := fakebmc.New("h", memory.New(clk, memory.Timing{}, true), clk, fakebmc.OnRequest(func(r fakebmc.Record) { fired = append(fired, r.Rules...) }))
		if err := b.AddRule(systemtest.Rules(t, rule)[0]); err != nil {
			t.Fatal(err)
		}
		b.Do(b.PowerRequest("c"), func(fakebmc.Answer) {})
		b.Do(b.ResetRequest("c", fakebmc.ResetForceOff), func(fakebmc.Answer) {})
		if len(fired) > 0 {
			t.Errorf("%s has fired on a direct call", key)
		}
	}
}

// TestHeal: what a rule has a BMC do by itself is called off with the rule, and what
// a client has asked for is not.
func TestHeal(t *testing.T) {
	clk := &systemtest.Clock{}
	host := memory.New(clk, memory.Timing{}, true)
	var own []string
	b := fakebmc.New("h", host, clk, fakebmc.OnReset(func(client string, r fakebmc.ResetType) {
		if client != "c" {
			own = append(own, client+" "+string(r))
		}
	}))
	for _, rule := range []string{
		`{"name": "master", "when": {"reset": ["On"]}, "effect": {"auto": {"reset": "ForceOff", "after": "1m"}}}`,
		`{"name": "slow", "when": {"reset": ["ForceOff"]}, "effect": {"transition": {"for": "10s"}}}`,
	} {
		var r fakebmc.Rule
		if err := json.Unmarshal([]byte(rule), &r); err != nil {
			t.Fatal(err)
		}
		if err := b.AddRule(r); err != nil {
			t.Fatal(err)
		}
	}
	b.Do(b.ResetRequest("c", fakebmc.ResetOn), func(fakebmc.Answer) {})
	b.Do(b.ResetRequest("c", fakebmc.ResetForceOff), func(fakebmc.Answer) {})
	b.Heal()
	if rules := b.Rules(); len(rules) > 0 {
		t.Errorf("these rules are still in force: %v", rules)
	}
	clk.Advance(5 * time.Minute)
	if want := []string{fakebmc.ClientBMC + " ForceOff"}; !slices.Equal(own, want) {
		t.Errorf("after the healing the BMC did %q, want only what it was asked for: %q", own, want)
	}
}
