package redfish_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/fakebmc/redfish"
)

// schema is what testdata/schema.json has of a type or a property.
type schema struct {
	Type       []string
	Enum       []any
	Pattern    string
	Minimum    *float64
	Maximum    *float64
	Required   []string
	Properties map[string]*schema
	Items      *schema
}

func readSchemas(t *testing.T) map[string]*schema {
	t.Helper()
	data, err := os.ReadFile("testdata/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Types map[string]*schema }
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Types
}

// check lists what the schemas don't allow.
func (s *schema) check(path string, v any) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, path+": "+fmt.Sprintf(format, args...)) }
	if s == nil {
		bad("nothing is known of it")
		return problems
	}
	if typ := jsonType(v); len(s.Type) > 0 && !slices.Contains(s.Type, typ) &&
		!(typ == "integer" && slices.Contains(s.Type, "number")) {
		bad("is of type %s, not %v", typ, s.Type)
		return problems
	}
	if s.Enum != nil && v != nil && !slices.Contains(s.Enum, v) {
		bad("%v is none of %v", v, s.Enum)
	}
	switch v := v.(type) {
	case string:
		if s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(v) {
			bad("%q doesn't match %s", v, s.Pattern)
		}
	case float64:
		if s.Minimum != nil && v < *s.Minimum || s.Maximum != nil && v > *s.Maximum {
			bad("%v is out of range", v)
		}
	case []any:
		for i, x := range v {
			problems = append(problems, s.Items.check(fmt.Sprintf("%s/%d", path, i), x)...)
		}
	case map[string]any:
		for _, name := range s.Required {
			if _, ok := v[name]; !ok {
				bad("lacks %s", name)
			}
		}
		for name, x := range v {
			if property, ok := strings.CutSuffix(name, "@Redfish.AllowableValues"); ok {
				// DSP0266 13.6.3: of a property beside it, or of a parameter of an action.
				_, beside := v[property]
				_, action := v["target"]
				if !beside && !action {
					bad("%s is of nothing", name)
				}
				continue
			}
			p, ok := s.Properties[name]
			if !ok {
				bad("%s is not allowed", name)
				continue
			}
			problems = append(problems, p.check(path+"/"+name, x)...)
		}
	}
	return problems
}

func jsonType(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case float64:
		if v == math.Trunc(v) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

// TestResourcesKeepToTheSchemas walks every resource in several states of the host.
func TestResourcesKeepToTheSchemas(t *testing.T) {
	schemas := readSchemas(t)
	cfg := account
	cfg.Media = []string{"http://127.0.0.1:1/"}
	r := newRig(t, cfg, "node-1", "node-2")
	r.do("POST", loginURL, `{"UserName": "admin", "Password": "s3cret"}`)
	r.rule(`{"effect": {"task": {}}}`)
	seen := map[string]bool{}
	walk := func() {
		r.walk(func(path string, got reply) {
			body := got.json(t)
			typ, _ := body["@odata.type"].(string)
			seen[typ] = true
			s, ok := schemas[typ]
			if !ok {
				t.Errorf("%s has the type %q, of which nothing is known", path, typ)
				return
			}
			for _, p := range s.check(path, body) {
				t.Error(p)
			}
		})
	}
	walk()
	r.do("POST", resetURL, resetBody("ForceOff"))
	r.do("PATCH", systemURL, `{"PowerRestorePolicy": "AlwaysOn", "Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}, "HostWatchdogTimer": {"FunctionEnabled": true, "TimeoutAction": "PowerCycle"}}`)
	r.do("POST", mediaURL+"/Actions/VirtualMedia.InsertMedia", `{"Image": "http://127.0.0.1:1/x.iso"}`)
	r.until("Off")
	walk()
	r.rule(`{"name": "null", "effect": {"report": "null"}}`)
	walk()
	for typ := range schemas {
		if !seen[typ] && typ != "#Event.v1_7_0.Event" {
			t.Errorf("%s is in the list, and nowhere served", typ)
		}
	}
	data, err := os.ReadFile("testdata/event.json")
	if err != nil {
		t.Fatal(err)
	}
	var event map[string]any
	if err := json.Unmarshal(data, &event); err != nil {
		t.Fatal(err)
	}
	for _, p := range schemas["#Event.v1_7_0.Event"].check("event", event) {
		t.Error(p)
	}
}

// TestSchemaCheckFinds keeps the check itself honest.
func TestSchemaCheckFinds(t *testing.T) {
	schemas := readSchemas(t)
	r := newRig(t, redfish.Config{}, "node-1")
	for _, c := range []struct {
		change func(map[string]any)
		want   string
	}{
		{func(b map[string]any) { b["Color"] = "red" }, "Color is not allowed"},
		{func(b map[string]any) { b["PowerState"] = "ForceOffInProgress" }, "is none of"},
		{func(b map[string]any) { b["UUID"] = 1. }, "is of type integer"},
		{func(b map[string]any) { b["UUID"] = "x" }, "doesn't match"},
		{func(b map[string]any) { delete(b, "Id") }, "lacks Id"},
		{func(b map[string]any) { b["Boot"].(map[string]any)["Color"] = "red" }, "Boot: Color is not allowed"},
		{func(b map[string]any) { b["Color@Redfish.AllowableValues"] = []any{} }, "is of nothing"},
	} {
		body := r.do("GET", systemURL, "").json(t)
		c.change(body)
		if got := schemas[body["@odata.type"].(string)].check("system", body); len(got) != 1 || !strings.Contains(got[0], c.want) {
			t.Errorf("%v, want one problem about %q", got, c.want)
		}
	}
}
