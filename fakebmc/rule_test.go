package fakebmc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
)

func TestParseRulesRefuses(t *testing.T) {
	for _, c := range []struct {
		name, rules string
		want        []string // every one must be reported
	}{
		{"no array", `{}`, []string{"reading rules"}},
		{"no JSON", `[`, []string{"reading rules"}},
		{"null", `null`, []string{"no list of rules"}},
		{"a null rule", `[null]`, []string{"name must match"}},
		{"another case", `[{"NAME": "a", "EFFECT": {"hang": true}}, {"name": "b", "effect": {"Hang": true}}, {"name": "c", "effect": {"hang": true, "ſtage": "executed"}}]`,
			[]string{`rule 1: unknown field "NAME"`, `unknown field "EFFECT"`, `rule 2: unknown field "effect.Hang"`, `rule 3: unknown field "effect.ſtage"`}},
		{"twice", `[{"name": "a", "name": "b", "effect": {"hang": true}}]`, []string{`duplicate field "name"`}},
		{"no effect", `[{"name": "a"}]`, []string{"effect is empty"}},
		{"unquoted null", `[{"name": "a", "effect": {"report": null}}]`, []string{"effect is empty", `quote "null"`}},
		{"two effects", `[{"name": "a", "effect": {"hang": true, "lag": "1s"}}]`, []string{"one of hang, lag"}},
		{"unknown key", `[{"name": "a", "effect": {"explode": true}}]`, []string{"rule 1", "explode"}},
		{"number as duration", `[{"name": "a", "effect": {"delay": 5}}]`, []string{"rule 1"}},
		{"duration without unit", `[{"name": "a", "effect": {"delay": "5"}}]`, []string{`"5" is not a duration`}},
		{"same names", `[{"name": "a", "effect": {"hang": true}}, {"name": "a", "effect": {"hang": true}}]`, []string{"two of this name"}},
		{"all at once", `[
			{"name": "", "when": {"host": "[", "path": "redfish/", "method": "get", "phase": ["on"], "reset": [""]}, "effect": {"delay": "-1s"}},
			{"name": "b", "when": {"from": "2s", "until": "1s"}, "effect": {"refuse": {"status": 204, "id": "a b", "retry": "-1s"}}},
			{"name": "c", "when": {"from": "-2s"}, "effect": {"ignore": true, "stage": "executed"}},
			{"name": "d", "effect": {"hang": true, "stage": "later"}},
			{"effect": 1}
		]`, []string{
			`"": name must match`, `host "["`, `path "redfish/"`, `method "get"`, `phase "on"`, "empty type", `"": durations must`,
			`"b": until must`, "not 204", `"a b" is not a message id`, `"b": refuse retry`,
			`"c": from and until must not be negative`, `"c": stage goes with`, `"d": stage "later"`, "rule 5",
		}},
		{"effects", `[
			{"name": "a", "effect": {"transition": {"for": "0s"}}}, {"name": "b", "effect": {"substitute": "Explode"}},
			{"name": "c", "effect": {"restart": {"downtime": "1s", "restore": "Sometimes"}}}, {"name": "d", "effect": {"auth": "none"}},
			{"name": "e", "effect": {"etag": "x"}}, {"name": "f", "effect": {"drop": "a b"}}, {"name": "g", "effect": {"guest": {}}},
			{"name": "h", "effect": {"swap": "["}}, {"name": "i", "effect": {"refuse": {"status": 100, "body": "{}"}}},
			{"name": "j", "effect": {"refuse": {"status": 500, "headers": {"X": "a\nb", "Content-Length": "7"}}}}, {"name": "k", "when": {"via": "smoke"}, "effect": {"hang": true}},
			{"name": "l", "when": {"header": "x"}, "effect": {"hang": true}}, {"name": "m", "effect": {"loss": {"for": "-1s"}}},
			{"name": "n", "effect": {"auto": {"reset": "", "after": "1s"}}}, {"name": "o", "effect": {"cap": 1, "etag": "required", "refuse": {"status": 503}}},
			{"name": "p", "effect": {"etag": "reject", "refuse": {"status": 200, "body": "{}"}}}, {"name": "q", "effect": {"hang": true, "refuse": {"status": 503}}},
			{"name": "r", "effect": {"auth": "session", "refuse": {"status": 401, "code": 213}}},
			{"name": "s", "effect": {"expire": true, "refuse": {"status": 401}, "stage": "executed"}},
			{"name": "t", "effect": {"set": {"a//b": 1}}}, {"name": "u", "when": {"client": "x"}, "effect": {"unasked": {"reset": "Boom", "every": "-1s"}}}
		]`, []string{`"a": transition for`, `"b": reset type "Explode"`, `"c": restore "Sometimes"`, `"d": auth "none"`, `"e": etag "x"`, `"f": drop "a b"`,
			`"g": guest is empty`, `"h": swap "["`, `"i": refuse needs a status from 200`, `"j": refuse header "X"`, `"j": refuse header "Content-Length" is about the connection`, `"k": via "smoke"`, `"l": header "x"`,
			`"m": loss for must`, `"n": reset type ""`, `"o": effect must be one of cap, etag;`, `"p": refuse needs a status from 400 to 599, not 200, beside`,
			`"q": effect must be one of hang, refuse;`, `"r": refuse code is for ipmi`, `"s": stage goes with`, `"t": set "a//b" is no path`, `"u": reset type "Boom"`, `"u": unasked every must`, `"u": unasked lasts while the rule is in force`}},
		{"never fires", `[
			{"name": "a", "when": {"reset": ["On"]}, "effect": {"lag": "1s"}},
			{"name": "b", "when": {"method": "POST"}, "effect": {"report": "Off"}},
			{"name": "c", "when": {"method": "GET"}, "effect": {"ignore": true}},
			{"name": "d", "when": {"method": "GET", "reset": ["On"]}, "effect": {"hang": true}},
			{"name": "e", "when": {"reset": ["On"]}, "effect": {"stuck": {}}},
			{"name": "f", "when": {"client": "bmc"}, "effect": {"auto": {"reset": "On", "after": "1s"}}},
			{"name": "g", "when": {"method": "POST"}, "effect": {"loss": {}}},
			{"name": "h", "when": {"via": "ipmi", "header": "Accept: *"}, "effect": {"hang": true}}
		]`, []string{`"f": auto would bring itself about`, `"g": loss lasts while`, `"h": ipmi has no headers`, `"a": lag concerns reads`, `"b": report concerns reads, not POST`, `"c": a reset is a POST`, `"d": a reset is a POST`, `"e": stuck concerns`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := fakebmc.ParseRules([]byte(c.rules))
			if err == nil {
				t.Fatal("accepted")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is missing in:\n%v", w, err)
				}
			}
		})
	}
}

func FuzzParseRules(f *testing.F) {
	f.Add(`[{"name": "a", "when": {"host": "node-*", "method": "POST", "path": "/redfish/v1/Systems/*/Actions/*",
		"reset": ["ForceOff"], "phase": ["On"], "from": "1s", "until": "1m", "skip": 1, "count": 2}, "effect": {"delay": "5s", "stage": "executed"}}]`)
	f.Add(`[{"name": "a", "effect": {"stuck": {"report": "PoweringOff", "for": "1m"}}}, {"name": "b", "effect": {"report": "null"}}]`)
	f.Add(`[{"name": "a", "effect": {"refuse": {"status": 409, "id": "iLO.2.14.InvalidOperationForSystemState", "args": ["x"], "text": "Power is off", "retry": "30s"}}}]`)
	f.Add(`[{"name": "a", "effect": {"etag": "required", "refuse": {"status": 428, "id": "Ami.1.0.PreconditionHeaderMissing"}}}, {"name": "b", "effect": {"cap": 1, "refuse": {"status": 503, "body": "{}"}}}]`)
	f.Add(`[{"name": "a", "effect": {"unreachable": true}}, {"name": "b", "effect": {"lag": "9223372036854775807ns"}}, {"name": "c", "effect": {"ignore": true}}]`)
	for _, p := range fakebmc.Presets() {
		f.Add(`[{"name": "a", "preset": "` + p.Name + `"}]`)
		for i := range p.Rules {
			p.Rules[i].Name = fmt.Sprint("rule-", i)
		}
		rules, err := json.Marshal(p.Rules)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(rules))
	}
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := fakebmc.ParseRules([]byte(text))
		if err != nil {
			return
		}
		data, err := json.Marshal(rules)
		if err != nil {
			t.Fatal(err)
		}
		again, err := fakebmc.ParseRules(data)
		if err != nil {
			t.Fatalf("own output refused: %v\n%s", err, data)
		}
		if more, _ := json.Marshal(again); string(more) != string(data) {
			t.Fatalf("%s became %s", data, more)
		}
		// Whatever the rules, a request is answered at most once, and a rule that
		// fires is one that is in force.
		clk := &systemtest.Clock{}
		b := fakebmc.New("node-1", memory.New(clk, memory.Timing{}, true), clk, fakebmc.OnRequest(func(r fakebmc.Record) {
			for _, name := range r.Rules {
				if preset, _, _ := strings.Cut(name, "/"); !inForce(rules, name) && !inForce(rules, preset) {
					t.Errorf("%q fired", name)
				}
			}
		}))
		for _, r := range rules {
			if err := b.AddRule(r); err != nil && !errors.Is(err, fakebmc.ErrUnsupported) {
				t.Fatal(err)
			}
		}
		for _, req := range []fakebmc.Request{b.PowerRequest(""), b.ResetRequest("", "GracefulShutdown"), b.ResetRequest("", "ForceOff"), b.PowerRequest("")} {
			answers := 0
			b.Do(req, func(fakebmc.Answer) { answers++ })
			clk.Advance(time.Minute)
			if answers > 1 {
				t.Fatalf("%s %s: %d answers", req.Method, req.ResetType, answers)
			}
		}
		b.Close()
		clk.Advance(time.Hour)
		if n := clk.Waiting(); n > 0 {
			t.Fatalf("%d timers are left", n)
		}
	})
}

func inForce(rules []fakebmc.Rule, name string) bool {
	for _, r := range rules {
		if r.Name == name {
			return true
		}
	}
	return false
}

// TestRuleKeys keeps the promise that a YAML decoder that lower-cases field names needs no tags.
func TestRuleKeys(t *testing.T) {
	for _, typ := range []reflect.Type{
		reflect.TypeFor[fakebmc.Rule](), reflect.TypeFor[fakebmc.Selector](), reflect.TypeFor[fakebmc.Effect](),
		reflect.TypeFor[fakebmc.Stuck](), reflect.TypeFor[fakebmc.Refusal](), reflect.TypeFor[fakebmc.Transition](), reflect.TypeFor[fakebmc.Auto](),
		reflect.TypeFor[fakebmc.Restart](), reflect.TypeFor[fakebmc.Loss](), reflect.TypeFor[fakebmc.Guest](), reflect.TypeFor[fakebmc.TaskFault](),
	} {
		for i := range typ.NumField() {
			f := typ.Field(i)
			if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != strings.ToLower(f.Name) {
				t.Errorf("%s.%s has the JSON key %q", typ, f.Name, key)
			}
		}
	}
}
