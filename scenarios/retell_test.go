package scenarios

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestRetold: which tellings a story has, and that one says what it is to change and nothing else.
func TestRetold(t *testing.T) {
	const all = "hosts renamed, a bystander added, in another order, 4 times as slow"
	for name, c := range map[string]struct{ spec, want string }{
		"nothing counts":    {`{"topology": {"hosts": [{"name": "a"}, {"name": "b"}]}}`, all},
		"one host":          {`{"topology": {"hosts": [{"name": "a"}]}}`, "a bystander added, in another order, 4 times as slow"},
		"a number":          {`{"topology": {"hosts": [{"name": "a"}, {"name": "b"}]}, "healthCheck": {"unhealthyAfter": "3s", "nodeStartupTimeout": "9s", "maxUnhealthy": "1"}}`, all},
		"a share":           {`{"topology": {"hosts": [{"name": "a"}, {"name": "b"}]}, "healthCheck": {"unhealthyAfter": "3s", "nodeStartupTimeout": "9s", "maxUnhealthy": "40%"}}`, "hosts renamed, in another order, 4 times as slow"},
		"agents":            {`{"topology": {"hosts": [{"name": "a"}, {"name": "b"}]}, "controllers": [{"name": "poisonpill"}]}`, "in another order, 4 times as slow"},
		"a leader":          {`{"topology": {"hosts": [{"name": "a"}]}, "controllers": [{"name": "reboot", "replicas": 2}]}`, "a bystander added, in another order"},
		"a volume":          {`{"topology": {"hosts": [{"name": "a"}], "workload": {"host": "a", "volume": {"name": "data"}}}}`, "a bystander added, in another order"},
		"a host is cut off": {`{"topology": {"hosts": [{"name": "a"}]}, "steps": [{"do": {"cut": {"host": "a"}}}]}`, "a bystander added, in another order, 4 times as slow"},
		"a server hangs":    {`{"topology": {"hosts": [{"name": "a"}]}, "steps": [{"do": {"apiOutage": {"hang": true}}}]}`, "a bystander added, in another order"},
		"a rule":            {`{"topology": {"hosts": [{"name": "a"}]}, "steps": [{"do": {"addFault": {"name": "f", "host": "a", "rule": {"effect": {"lag": "4s"}}}}}]}`, "a bystander added, in another order, 4 times as slow"},
		"a preset":          {`{"topology": {"hosts": [{"name": "a"}]}, "steps": [{"do": {"addFault": {"name": "f", "host": "a", "rule": {"preset": "ac-loss"}}}}]}`, "in another order"},
		"a shared supply":   {`{"topology": {"hosts": [{"name": "a"}]}, "steps": [{"do": {"addFault": {"name": "f", "host": "a", "rule": {"effect": {"also": "*"}}}}}]}`, "in another order, 4 times as slow"},
	} {
		var told []string
		for _, r := range retell(t, c.spec) {
			told = append(told, r.Told)
		}
		if got := strings.Join(told, ", "); got != c.want {
			t.Errorf("%s: told again %s, want %s", name, got, c.want)
		}
	}

	const story = `{"topology": {"hosts": [{"name": "a-1", "nodeName": "n"}, {"name": "b"}]},
		"controllers": [{"name": "reboot", "settings": {"pollInterval": "1s"}}],
		"steps": [{"name": "a-1 of ours", "after": "25ms", "do": {"patch": {"object": "Node/n", "merge": {"spec": {"timeoutSeconds": 30}, "of": "a-1.poisonpill"}}}},
			{"after": "10s", "do": {"setClock": {"host": "b", "gains": "1ms"}}}]}`
	told := retell(t, story)
	for i, wants := range [][]string{
		{`{"name":"n","nodeName":"b"},{"name":"a-1"}`, `"object":"Node/b"`, `"of":"n.poisonpill"`, `"name":"a-1 of ours"`, `"host":"a-1","gains"`},
		{`{"name":"zz-bystander"}`},
		{`[{"name":"b"},{"name":"a-1","nodeName":"n"}]`},
		{`"pollInterval":"4s"`, `"after":"25ms"`, `"timeoutSeconds":120`, `"after":"40s"`, `"gains":"1ms"`},
	} {
		text, err := json.Marshal(told[i].Plan.Spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: %s\nlacks %s", told[i].Told, text, want)
			}
		}
	}
	if host := told[0].Host("b"); host != "n" && host != "a-1" {
		t.Errorf("the host b of the retelling is %s here", host)
	}
}

// retell returns the retellings of a story whose controllers have no defaults.
func retell(t *testing.T, spec string) []Retelling {
	t.Helper()
	var plan Plan
	if err := json.Unmarshal([]byte(spec), &plan.Spec); err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(plan.Text())
	told, err := plan.Retold(func(c *Controller) (json.RawMessage, error) { return c.Settings, nil })
	if err != nil || !slices.Equal(before, plan.Text()) {
		t.Fatalf("the plan itself has changed, or: %v", err)
	}
	return told
}
