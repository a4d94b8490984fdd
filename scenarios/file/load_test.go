package file_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// settings stands for a controller's.
type settings struct {
	UnhealthyAfter scenarios.Duration `json:"unhealthyAfter"`
	MaxUnhealthy   int                `json:"maxUnhealthy"`
	Marker         bool               `json:"marker"`
	Ratio          float64            `json:"ratio"`
	Modes          []string           `json:"modes"`
	Extra          map[string]string  `json:"extra"`
	Poll           seconds            `json:"poll"`
}

func (s *settings) Validate() error {
	if s.MaxUnhealthy < 1 {
		return fmt.Errorf("maxUnhealthy %d: must be at least 1", s.MaxUnhealthy)
	}
	return nil
}

// faultRule stands for fakebmc.Rule.
type faultRule struct {
	Name   string `json:"name"`
	When   when   `json:"when,omitzero"`
	Effect effect `json:"effect"`
}

type when struct {
	Reset []string `json:"reset,omitempty"`
	Count uint64   `json:"count,omitempty"`
}

type effect struct {
	Delay       textDuration `json:"delay,omitempty"`
	Ignore      bool         `json:"ignore,omitempty"`
	Unreachable bool         `json:"unreachable,omitempty"`
}

func (r *faultRule) Validate() error {
	if r.Effect == (effect{}) {
		return fmt.Errorf("rule %q: the effect is empty\nset one", r.Name)
	}
	return nil
}

// textDuration reads itself from text, as fakebmc.Duration does.
type textDuration time.Duration

func (d textDuration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *textDuration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = textDuration(parsed)
	return err
}

// seconds reads itself from JSON and says of a number only that it is no text,
// as metav1.Duration does.
type seconds struct{ time.Duration }

func (s seconds) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

func (s *seconds) UnmarshalJSON(data []byte) (err error) {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	s.Duration, err = time.ParseDuration(text)
	return err
}

func checkRule(r scenarios.Rule) error {
	if on, given := r.When["poweredOn"]; given && reflect.TypeOf(on).Kind() != reflect.Bool {
		return fmt.Errorf("the fact poweredOn can't be %v", on)
	}
	return nil
}

// kinds stand for those of the API.
var kinds = []scenarios.Kind{
	{Name: "Node", Named: scenarios.AfterNode, Annotated: true, Changed: true, Made: true, Unmade: true},
	{Name: "Pod"}, {Name: "Secret"}, {Name: "Lease", Heartbeat: true},
	{Name: "BareMetalHost", Named: scenarios.AfterHost, Custom: true, Annotated: true, Changed: true, Made: true},
	{Name: "Machine", Named: scenarios.AfterMachine, Custom: true, Annotated: true, Changed: true, Made: true},
	{Name: "MachineHealthCheck", Named: scenarios.AfterCluster, Custom: true, Changed: true, Made: true},
}

func vocabulary() file.Vocabulary {
	return file.Vocabulary{
		Kinds: kinds,
		Controllers: map[string]file.ControllerVocabulary{
			"reboot": {Kinds: []string{"BareMetalHost"}},
			"remediation": {
				Facts:     []string{"poweredOn", "phase", "attempts"},
				Actions:   []string{"nothing", "delete-node", "power-on"},
				CheckRule: checkRule,
				Kinds:     []string{"Machine", "BareMetalHost", "Node"},
			},
			"healthcheck":   {Settings: func() any { return &settings{UnhealthyAfter: scenarios.Duration(time.Minute), MaxUnhealthy: 1} }},
			"nodelifecycle": {StandIn: true},
			"workload":      {},
		},
		Fault:      func() any { return new(faultRule) },
		Strategies: map[string]file.Strategy{"orders": {Ends: true, Combines: true}, "portfolio": {Ends: true, Combines: true, Learns: true}, "random": {}},
		Values:     map[history.Kind][]string{history.BMCCommand: {"On", "ForceOff", "GracefulShutdown"}},
		Worlds: []scenarios.Capabilities{
			{World: "sim", Title: "simulator", Lacks: map[scenarios.Feature]string{"evidence-lost": "the simulator's observers see everything", scenarios.FeaturePrograms: "a program keeps the machine's time"}},
			{World: "lab", Title: "lab", Lacks: map[scenarios.Feature]string{
				scenarios.FeatureNamesakes: "it knows a host by the name of its Node", scenarios.FeatureSpares: "its hosts run when a story begins",
				scenarios.FeatureControllerLinks: "the lab's network is that of the hosts",
				scenarios.FeatureReplicas:        "the lab runs one process of each controller, and two by startSecond",
				scenarios.FeatureStaleLists:      "the lab's API server is never behind",
				scenarios.FeatureLateRequests:    "the lab holds no request back",
				scenarios.FeaturePausedWatchdog:  "the watchdog of a virtual machine stops with it",
				"pauseController":                "the lab cannot let one controller stand still",
				"setClock":                       "the lab has one clock",
				"freezeCache":                    "the lab cannot freeze a cache",
				"apiOutage":                      "the lab's observers need the API server",
				"controller-error":               "the lab does not see what a reconcile returns",
			}},
		},
	}
}

// golden compares with a file next to the input, or rewrites it.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; make it with -update", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func corpus(t testing.TB, pattern string) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no files match %s: %v", pattern, err)
	}
	files := map[string][]byte{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = data
	}
	return files
}

func TestLoadGood(t *testing.T) {
	for name, data := range corpus(t, "good/*.yaml") {
		t.Run(filepath.Base(name), func(t *testing.T) {
			cells, err := file.LoadCells(filepath.Base(name), data, vocabulary(), nil)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(name, ".yaml")+".plan", compiles(t, cells[0], 7).Text())
			for _, s := range cells[1:] {
				compiles(t, s, 7)
			}
		})
	}
}

// compiles checks what holds of every scenario that loads: it compiles, and its
// plan can be written and read.
func compiles(t *testing.T, s *scenarios.Scenario, seed uint64) *scenarios.Plan {
	t.Helper()
	p, err := scenarios.Compile(s, seed)
	if err != nil {
		t.Fatal(err)
	}
	again, err := file.LoadPlan("plan.txt", p.Text(), vocabulary())
	if err != nil {
		t.Fatalf("the plan does not load:\n%v\n%s", err, p.Text())
	}
	if diff := cmp.Diff(p, again); diff != "" {
		t.Fatalf("the plan is another one when it is read back (-written +read):\n%s\n%s", diff, p.Text())
	}
	return p
}

func TestLoadBad(t *testing.T) {
	files := corpus(t, "bad/*.yaml")
	if len(files) < 35 {
		t.Errorf("%d bad files: some are gone", len(files))
	}
	for name, data := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			load := func() (any, error) { return file.Load(filepath.Base(name), data, vocabulary()) }
			if strings.HasPrefix(filepath.Base(name), "plan-") {
				load = func() (any, error) { return file.LoadPlan(filepath.Base(name), data, vocabulary()) }
			}
			_, err := load()
			problems := located(t, err, data)
			golden(t, strings.TrimSuffix(name, ".yaml")+".txt", []byte(problems.Error()+"\n"))
		})
	}
}

// located checks what holds of every refusal: problems in order, at places that
// the file has.
func located(t *testing.T, err error, data []byte) file.Errors {
	t.Helper()
	var problems file.Errors
	if !errors.As(err, &problems) || len(problems) == 0 {
		t.Fatalf("refused with %#v, want Errors", err)
	}
	lines := bytes.Count(data, []byte("\n")) + 1
	for i, p := range problems {
		switch {
		case p.Line < 1 || p.Line > lines || p.Column < 1:
			t.Errorf("%v: there is no such place", p)
		case i > 0 && problems[i-1].Line > p.Line:
			t.Errorf("%v: comes after line %d", p, problems[i-1].Line)
		case strings.ContainsAny(p.Text, "\n"):
			t.Errorf("%q: has several lines", p.Text)
		}
	}
	return problems
}

// What is too large or too deep to keep as a file.
func TestLoadBounds(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"huge", strings.Repeat("#", 1<<20+1), "b.yaml:1:1: the file has 1048577 bytes, but a scenario has at most 1048576"},
		{"deep", "spec: " + strings.Repeat("[", 40) + strings.Repeat("]", 40), "b.yaml:1:38: spec" + strings.Repeat("[0]", 31) + ": nested more than 32 deep"},
		{"deeper than the parser likes", strings.Repeat("[", 20000), "b.yaml:1:10004: not YAML: exceeded max depth of 10000"},
		{"empty", "", "b.yaml:1:1: the file is empty: a scenario begins with apiVersion: fencelab.dev/v1alpha1"},
		{"comment only", "# to do\n", "b.yaml:1:1: the file is empty: a scenario begins with apiVersion: fencelab.dev/v1alpha1"},
		{"null", "---\n", "b.yaml:1:1: the file is empty: a scenario begins with apiVersion: fencelab.dev/v1alpha1"},
		{"binary", "kind: Sc\xffenario", "b.yaml:1:9: the file is not UTF-8 text"},
		{"UTF-16", "\xff\xfek\x00", "b.yaml:1:1: the file is not UTF-8 text"},
		{"control character", "kind: a\x00b", "b.yaml:1:8: the character U+0000 is not allowed in a scenario"},
		{"line separator", "kind: a\u2028b", "b.yaml:1:8: the character U+2028 is not allowed in a scenario"},
		{"carriage return", "kind: a\r", "b.yaml:1:8: the character U+000D is not allowed in a scenario"},
		{"nothing at the end", "{kind: x,\n ? n", "b.yaml:2:2: not YAML: did not find expected ',' or '}': nothing closes the { of line 1"},
		{"no value at the end", "kind: x\n? n", "b.yaml:2:1: n: has no value: write one, or leave the field out"},
		{"not fields", "42", "b.yaml:1:1: the number 42 where fields are expected"},
		{"a list", "- kind: Scenario", "b.yaml:1:1: a list where fields are expected"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := file.Load("b.yaml", []byte(tc.text), vocabulary())
			problems := located(t, err, []byte(tc.text))
			if !strings.Contains(problems.Error(), tc.want+"\n") && !strings.HasSuffix(problems.Error(), tc.want) {
				t.Errorf("got  %s\nwant %s", problems, tc.want)
			}
		})
	}
}

// A file that is all mistakes costs bounded work and prints a bounded text.
func TestLoadManyMistakes(t *testing.T) {
	text := "spec: {steps: [" + strings.Repeat("{dö: 1}, ", 100_000) + "]}"
	_, err := file.Load("b.yaml", []byte(text), vocabulary())
	problems := located(t, err, []byte(text))
	if len(problems) != 1000 {
		t.Errorf("%d problems, want the first 1000", len(problems))
	}
	if shown := problems.Error(); len(shown) > 100<<10 || !strings.HasSuffix(shown, "and 900 more problems") {
		t.Errorf("prints %d bytes, ending with %q", len(shown), shown[max(0, len(shown)-100):])
	}
}

// Settings and rules are canonical JSON: backends unmarshal them.
func TestLoadCanonical(t *testing.T) {
	s, err := file.Load("s.yaml", corpus(t, "good/bmc-away.yaml")["testdata/good/bmc-away.yaml"], vocabulary())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(s.Spec.Controllers[2].Settings), `{"marker":true,"maxUnhealthy":2,"modes":["soft","\u003chard\u003e"],"ratio":0.5,"unhealthyAfter":"5s"}`; got != want {
		t.Errorf("settings are %s, want %s", got, want)
	}
	rule := s.Spec.Steps[0].Do.AddFault.Rule
	if want := `{"effect":{"unreachable":true},"name":"away"}`; string(rule) != want {
		t.Errorf("the rule is %s, want %s", rule, want)
	}
	var r faultRule
	if err := json.Unmarshal(rule, &r); err != nil || r.Name != "away" || !r.Effect.Unreachable {
		t.Errorf("the rule reads as %+v, %v", r, err)
	}
}

// Plans are written by one YAML library and read by another, which disagree on
// what is a number. Whatever a text looks like, it stays that text.
func TestPlanKeepsTexts(t *testing.T) {
	for _, text := range []string{
		"", " ", "~", "null", "true", "on", "NO", "y", "=", "<<", "-", "?", ":", "a: b", "- a", "#", "a #b", "*a", "&a", "!a", "%a", "@a", "`a", "|", ">",
		"002", "0o17", "0b1", "0x1f", "1_000", "+1", "-0", ".5", "5.", "1e3", "1e400", ".inf", ".nan", "1:30", "2026-01-02", "2026-01-02T03:04:05Z",
		"99999999999999999999", "a\nb", "\na\n", "\ta", " a ", "a\n\n b\n", "\u00a0", "\ufffd", "\U0001f600",
		`"`, "'", `\`, "{}", "[]", "---", "...", strings.Repeat("long ", 60), "<&>",
	} {
		quoted := strconv.QuoteToASCII(text) // Go's escapes are YAML's too
		s, err := file.Load("s.yaml", fmt.Appendf(nil, `
apiVersion: fencelab.dev/v1alpha1
kind: Scenario
metadata: {name: texts, description: x}
spec:
  topology: {hosts: [{name: worker-1}]}
  controllers: [{name: healthcheck, settings: {modes: [%s], extra: {a: %s}}}]
  steps:
    - {name: %s, do: {annotate: {object: Machine/worker-1, key: a, value: %s}}}
`, quoted, quoted, quoted, quoted), vocabulary())
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := s.Spec.Steps[0].Do.Annotate.Value; got != text {
			t.Errorf("%q is read as %q", text, got)
		}
		compiles(t, s, 1)
	}
}

func TestLint(t *testing.T) {
	for name, data := range corpus(t, "lint/*.yaml") {
		problems, err := file.Lint(filepath.Base(name), data, vocabulary())
		if err != nil {
			t.Fatal(err)
		}
		golden(t, strings.TrimSuffix(name, ".yaml")+".txt", []byte(file.Errors(problems).Error()+"\n"))
	}
	for name, data := range corpus(t, "good/*.yaml") {
		if problems, err := file.Lint(name, data, vocabulary()); err != nil || len(problems) > 0 {
			t.Errorf("%v %v: want nothing about a good file", problems, err)
		}
	}
	bad := corpus(t, "bad/host-unknown.yaml")["testdata/bad/host-unknown.yaml"]
	if _, err := file.Lint("bad.yaml", bad, vocabulary()); err == nil {
		t.Error("Lint accepts a file that Load refuses")
	}
}

func FuzzLoad(f *testing.F) {
	for _, pattern := range []string{"good/*.yaml", "good/*.plan", "bad/*.yaml", "lint/*.yaml"} {
		for _, data := range corpus(f, pattern) {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if cells, err := file.LoadCells("f.yaml", data, vocabulary(), nil); err == nil {
			for _, s := range cells {
				compiles(t, s, 1)
			}
		} else {
			located(t, err, data)
		}
		if p, err := file.LoadPlan("f.yaml", data, vocabulary()); err == nil {
			if again, err := file.LoadPlan("f.yaml", p.Text(), vocabulary()); err != nil || !cmp.Equal(p, again) {
				t.Fatalf("a plan reads back as another one: %v\n%s", err, cmp.Diff(p, again))
			}
		} else {
			located(t, err, data)
		}
	})
}
