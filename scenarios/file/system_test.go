package file_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/file"
)

const aSystem = `apiVersion: fencelab.dev/v1alpha1
kind: System
metadata: {name: acme, description: A fencer.}
spec:
  controllers:
    - {name: acme-fencer, plays: [remediation, deletion], program: {command: [./acme]}}
    - {name: acme-helper, program: {command: [helper], dir: bin}}
    - {name: acme-check, plays: healthcheck, program: {command: [check]}}
    - {name: acme-drains, plays: deletion, program: {command: [drains]}}
`

func system(t *testing.T, text string) (*scenarios.System, string, error) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "acme.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := file.LoadSystem(path, vocabulary())
	return s, dir, err
}

// TestSystemTakesParts: programs take the place of who plays their part, under its name,
// so that the story's steps still name them; those without a part join.
func TestSystemTakesParts(t *testing.T) {
	s, dir, err := system(t, aSystem)
	if err != nil {
		t.Fatal(err)
	}
	acme := scenarios.Controller{Name: "remediation", Plays: "remediation", Program: &scenarios.Program{Command: []string{"./acme"}, Dir: dir}}
	helper := scenarios.Controller{Name: "acme-helper", Program: &scenarios.Program{Command: []string{"helper"}, Dir: filepath.Join(dir, "bin")}}
	for name, c := range map[string]struct {
		also         string
		listed, want []scenarios.Controller
		steps        []scenarios.Step
		err          string
	}{
		"its parts": {
			listed: []scenarios.Controller{{Name: "reboot"}, {Name: "remediation", Settings: []byte(`{}`)}},
			want:   []scenarios.Controller{{Name: "reboot"}, acme, helper},
		},
		"another of its part": {
			listed: []scenarios.Controller{{Name: "team", Plays: "remediation"}},
			want:   []scenarios.Controller{{Name: "team", Plays: "remediation", Program: acme.Program}, helper},
		},
		"none of its parts": {listed: []scenarios.Controller{{Name: "reboot"}}, err: "no controller of the scenario plays a part of the system"},
		"a mistake of ours": {listed: []scenarios.Controller{{Name: "remediation", Overlay: []scenarios.Rule{{Then: "nothing"}}}}, err: "about a wrong remediation"},
		"two of our parts": {
			listed: []scenarios.Controller{{Name: "deletion"}, {Name: "reboot"}},
			want: []scenarios.Controller{
				{Name: "deletion", Plays: "deletion", Program: acme.Program}, {Name: "reboot"}, helper,
				{Name: "deletion-2", Plays: "deletion", Program: &scenarios.Program{Command: []string{"drains"}, Dir: dir}},
			},
		},
		"one of its two parts": {listed: []scenarios.Controller{{Name: "remediation"}, {Name: "deletion"}}, err: "remediation and deletion, but acme-fencer of the system is both"},
		"a client that asks rarely": {
			listed: []scenarios.Controller{{Name: "remediation", RateLimit: &scenarios.RateLimit{Every: scenarios.Duration(time.Second), Burst: 1}}},
			err:    "limits how often remediation sends requests",
		},
		"several processes": {listed: []scenarios.Controller{{Name: "remediation", Replicas: 2}}, err: "2 processes of remediation"},
		"also another": {
			also:   "power",
			listed: []scenarios.Controller{{Name: "reboot"}, {Name: "remediation"}},
			want: []scenarios.Controller{
				{Name: "remediation", Plays: "remediation", Also: []string{"power"}, Program: acme.Program}, helper,
			},
		},
		"also another that the story is about": {
			also:   "power",
			listed: []scenarios.Controller{{Name: "reboot"}, {Name: "remediation"}},
			steps:  []scenarios.Step{{Do: &scenarios.Op{PauseController: &scenarios.ControllerOp{Controller: "reboot"}}}},
			err:    "about reboot",
		},
		"a program of its own": {listed: []scenarios.Controller{acme}, err: "no controller of the scenario"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &scenarios.Spec{Controllers: c.listed, Steps: c.steps}
			s.Spec.Controllers[0].Also = nil
			if c.also != "" {
				s.Spec.Controllers[0].Also = scenarios.Parts{c.also}
			}
			err := s.Takes(spec)
			switch {
			case c.err == "" && err != nil:
				t.Fatal(err)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Fatalf("got %v, want an error with %q", err, c.err)
			case c.err != "":
				c.want = c.listed // a story that isn't played stays as it is
			}
			if diff := cmp.Diff(c.want, spec.Controllers); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestProgramTakesSettings: a program that asks for the settings of the story has them, and no
// other.
func TestProgramTakesSettings(t *testing.T) {
	const acme = `apiVersion: fencelab.dev/v1alpha1
kind: System
metadata: {name: acme, description: A fencer.}
spec:
  controllers:
    - {name: acme-check, plays: healthcheck, program: {command: [./check, "--settings=${SETTINGS}"]}}
    - {name: acme-fencer, plays: remediation, program: {command: [./acme]}}
`
	s, _, err := system(t, acme)
	if err != nil {
		t.Fatal(err)
	}
	spec := &scenarios.Spec{Controllers: []scenarios.Controller{
		{Name: "healthcheck", Settings: []byte(`{"maxUnhealthy":2}`)}, {Name: "remediation", Settings: []byte(`{"a":1}`)},
	}}
	if err := s.Takes(spec); err != nil {
		t.Fatal(err)
	}
	if got := string(spec.Controllers[0].Settings); got != `{"maxUnhealthy":2}` || spec.Controllers[1].Settings != nil {
		t.Errorf("one that asks has %s, and one that doesn't %s", got, spec.Controllers[1].Settings)
	}
}

// TestSystemsSettings: what fencelab's own controllers have to know of a system is set in every
// story, beside its own settings.
func TestSystemsSettings(t *testing.T) {
	const acme = `apiVersion: fencelab.dev/v1alpha1
kind: System
metadata: {name: acme, description: A fencer.}
spec:
  controllers: [{name: acme-power, plays: power, program: {command: [./acme]}}]
`
	s, _, err := system(t, acme+"  settings: {healthcheck: {maxUnhealthy: 2}}\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ story, want string }{
		{``, `{"maxUnhealthy":2}`},
		{`{"marker":true,"maxUnhealthy":3}`, `{"marker":true,"maxUnhealthy":2}`},
	} {
		spec := &scenarios.Spec{Controllers: []scenarios.Controller{{Name: "reboot"}, {Name: "remediation"}, {Name: "healthcheck", Settings: []byte(c.story)}}}
		if err := s.Takes(spec); err != nil {
			t.Fatal(err)
		}
		if got := string(spec.Controllers[2].Settings); got != c.want || spec.Controllers[1].Settings != nil {
			t.Errorf("the settings %s of a story become %s, and those of another controller %s", c.story, got, spec.Controllers[1].Settings)
		}
	}
	for settings, want := range map[string]string{
		"helthcheck: {}":                 `unknown controller "helthcheck"`,
		"reboot: {}":                     "the controller reboot has no settings",
		"healthcheck: {maxUnhealthy: 0}": "must be at least 1",
		"healthcheck: {max: 1}":          `unknown field "max"`,
	} {
		if _, _, err := system(t, acme+"  settings: {"+settings+"}\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", settings, err, want)
		}
	}
}

// TestSystemsIronic: an Ironic that is part of a system owns the BMCs in every story, and
// behaves as the story says.
func TestSystemsIronic(t *testing.T) {
	s, dir, err := system(t, aSystem+"  ironic: {bin: ironic/bin, syncInterval: 120s, powerTimeout: 90s}\n")
	if err != nil {
		t.Fatal(err)
	}
	bin, minute, second := filepath.Join(dir, "ironic/bin"), scenarios.Duration(time.Minute), scenarios.Duration(time.Second)
	for name, c := range map[string]struct{ story, want *scenarios.Ironic }{
		"of its own":   {nil, &scenarios.Ironic{Bin: bin, SyncInterval: 2 * minute, PowerTimeout: 90 * second}},
		"of the story": {&scenarios.Ironic{Bin: "/usr/bin", SyncInterval: minute}, &scenarios.Ironic{Bin: bin, SyncInterval: minute, PowerTimeout: 90 * second}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &scenarios.Spec{Topology: scenarios.Topology{Ironic: c.story}, Controllers: []scenarios.Controller{{Name: "remediation"}}}
			if err := s.Takes(spec); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, spec.Topology.Ironic); diff != "" {
				t.Error(diff)
			}
		})
	}
	if _, _, err := system(t, aSystem+"  ironic: {syncInterval: 300ms}\n"); err == nil || !strings.Contains(err.Error(), "spec.ironic.syncInterval: 300ms: use whole seconds") {
		t.Errorf("a part of a second is %v, want its place", err)
	}
}

func TestSystemsThatAreNone(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a scenario":    {strings.Replace(aSystem, "System", "Scenario", 1), "where System is expected"},
		"no program":    {strings.Replace(aSystem, ", program: {command: [./acme]}", "", 1), "say what runs: program, or pods"},
		"unknown part":  {strings.Replace(aSystem, "plays: healthcheck", "plays: [deletion, medic]", 1), "medic"},
		"no part":       {strings.Replace(aSystem, "plays: healthcheck", "plays: []", 1), "plays: is empty"},
		"a mapping":     {strings.Replace(aSystem, "plays: healthcheck", "plays: [{deletion: true}]", 1), "a list of parts is expected"},
		"a number":      {strings.Replace(aSystem, "plays: healthcheck", "plays: 1", 1), "a part is expected"},
		"also no part":  {strings.Replace(aSystem, "plays: healthcheck", "plays: healthcheck, also: medic", 1), "medic"},
		"also itself":   {strings.Replace(aSystem, "plays: healthcheck", "plays: healthcheck, also: [healthcheck]", 1), "it plays healthcheck already"},
		"same name":     {strings.Replace(aSystem, "acme-drains", "acme-check", 1), "acme-check"},
		"unknown field": {strings.Replace(aSystem, "dir: bin", "pod: acme", 1), "pod"},
		"no name":       {strings.Replace(aSystem, "name: acme,", "name: Acme,", 1), "metadata.name"},
		"no executable": {strings.Replace(aSystem, "[helper]", "[]", 1), "command"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := system(t, c.text)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "acme.yaml:") {
				t.Errorf("got %v, want a position and %q", err, c.want)
			}
		})
	}
}

// TestSystemsPods: Pods join every story that a program of the system has a part in, and play none.
func TestSystemsPods(t *testing.T) {
	const text = aSystem + "    - {name: acme-agent, pods: {serviceAccount: acme, images: [acme.tar], installs: [set.yaml], feedsWatchdog: true}}\n"
	s, dir, err := system(t, text)
	if err != nil {
		t.Fatal(err)
	}
	spec := &scenarios.Spec{Controllers: []scenarios.Controller{{Name: "reboot"}, {Name: "remediation"}}}
	if err := s.Takes(spec); err != nil {
		t.Fatal(err)
	}
	want := scenarios.Controller{Name: "acme-agent", Pods: &scenarios.Pods{
		ServiceAccount: "acme", Images: []string{"acme.tar"}, Installs: []string{"set.yaml"}, FeedsWatchdog: true, Dir: dir,
	}}
	if diff := cmp.Diff(want, spec.Controllers[len(spec.Controllers)-1]); diff != "" || !spec.HasPods() {
		t.Errorf("what joins the story: %s", diff)
	}
	if image := filepath.Join(dir, "acme.tar"); !slices.Contains(s.Files(), image) {
		t.Errorf("its files are %q, and %s is not among them", s.Files(), image)
	}
	for wrong, want := range map[string]string{
		strings.Replace(text, "pods: {", "plays: remediation, pods: {", 1):         "plays: a controller that is Pods has none",
		strings.Replace(text, "pods: {", "also: remediation, pods: {", 1):          "also: a controller that is Pods has none",
		strings.Replace(text, "pods: {", "program: {command: [acme]}, pods: {", 1): "program: a controller that is Pods has none",
		strings.Replace(text, "acme-agent", "reboot", 1):                           "reboot is a controller of fencelab's",
		strings.Replace(text, "serviceAccount: acme", "serviceAccount: Acme_1", 1): "pods.serviceAccount",
		strings.Replace(text, "images: [acme.tar]", `images: [""]`, 1):             "pods.images: name the files",
		strings.Replace(text, "serviceAccount: acme, ", "", 1):                     "serviceAccount: is missing",
		strings.Replace(text, "installs: [set.yaml]", "installed: [set.yaml]", 1):  `unknown field "installed"`,
	} {
		if _, _, err := system(t, wrong); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "acme.yaml:") {
			t.Errorf("got %v, want a position and %q", err, want)
		}
	}
}

// TestPodsProcesses: what is done to Pods is done to those on one host.
func TestPodsProcesses(t *testing.T) {
	const story = `apiVersion: fencelab.dev/v1alpha1
kind: Scenario
metadata: {name: pods, description: Pods.}
spec:
  worlds: [lab]
  topology: {hosts: [{name: worker-1}]}
  controllers: [{name: agent, pods: {serviceAccount: agent, images: [agent.tar]}}]
  steps: [{do: {crash: {controller: agent, host: worker-1}}}]
`
	if _, err := file.Load("pods.yaml", []byte(story), vocabulary()); err != nil {
		t.Error(err)
	}
	wrong := strings.Replace(story, ", host: worker-1", "", 1)
	if _, err := file.Load("pods.yaml", []byte(wrong), vocabulary()); err == nil || !strings.Contains(err.Error(), "worker-1.agent") {
		t.Errorf("a story that kills all of them: %v", err)
	}
}

// TestProgramsAreFoundBesideTheirFile: a plan is played from anywhere.
func TestProgramsAreFoundBesideTheirFile(t *testing.T) {
	dir := t.TempDir()
	data, err := os.ReadFile("testdata/good/program.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "program.yaml")
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), "dir: /opt/acme", "dir: acme", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := file.LoadFiles([]string{path}, vocabulary(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := loaded[0].Spec.Controllers[1].Program.Dir, filepath.Join(dir, "acme"); got != want {
		t.Errorf("the program is looked for in %s, want %s", got, want)
	}
}

func TestVariables(t *testing.T) {
	p := new(scenarios.Program)
	got := p.Expand("${A}-${B}${A} $A ${C} $${A}", map[string]string{"A": "x", "B": "${A}"})
	if want := "x-${A}x $A  $x"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLocate(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"tool": 0o755, "script.py": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	t.Chdir(dir)
	for file, here := range map[string]bool{
		"tool": true, "./tool": true, "./script.py": true, filepath.Join(dir, "script.py"): true, // which something else runs
		"script.py": false, "absent": false, "./absent": false,
	} {
		if at, err := scenarios.Locate(file); (err == nil) != here {
			t.Errorf("%s is at %q: %v, want it here: %t", file, at, err, here)
		}
	}
}

// TestSystemsRequests: a system says what its own kinds mean in every story that doesn't say so
// itself. A declaration that says nothing, or names a kind that isn't there, is refused.
func TestSystemsRequests(t *testing.T) {
	const own = "  requests:\n    Sick.acme.example: {marks: spec.node, fences: spec.node, when: 'spec.of[?(@.a==\"b\")].c=real', done: status.phase=Done}\n"
	s, _, err := system(t, aSystem+own)
	if err != nil {
		t.Fatal(err)
	}
	theirs := scenarios.Request{Fences: "spec.host"}
	for want, of := range map[string]map[string]scenarios.Request{"spec.node": nil, "spec.host": {"Sick.acme.example": theirs}} {
		spec := &scenarios.Spec{Controllers: []scenarios.Controller{{Name: "remediation"}}, Requests: of}
		if err := s.Takes(spec); err != nil || spec.Requests["Sick.acme.example"].Fences != want {
			t.Errorf("with the system the story has %v, %v; want %s", spec.Requests, err, want)
		}
	}
	for request, want := range map[string]string{
		"Sick.acme.example: {}":                                  "acme.yaml:11:24: spec.requests[\"Sick.acme.example\"]: say what it means",
		"Nod: {fences: metadata.name}":                           `unknown kind of object "Nod": did you mean "Node"?`,
		"Node: {releases: metadata.name, done: spec.a=b}":        "acme.yaml:11:43: spec.requests.Node.done: a release is never done",
		"Node: {marks: metadata.name, when: spec.unschedulable}": "spec.requests.Node.when: \"spec.unschedulable\" names no field and its value",
		"Node: {marks: metadata.name, while: a=b}":               "unknown field",
		"Node: {marks: metadata.name, done: =b}":                 "names no field and its value",
		"sick.acme.example: {fences: spec.node}":                 "unknown kind of object",
		"FenceRequest: {fences: spec.node}":                      "one that a system's program installs has its group behind it, as FenceRequest.acme.example",
	} {
		if _, _, err := system(t, aSystem+"  requests:\n    "+request+"\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", request, err, want)
		}
	}
}

// TestTenancyTakesNoPlace: fencelab has no controller that gives hosts to tenants, so that programs
// in that part run beside those of every story, as processes of one that is judged.
func TestTenancyTakesNoPlace(t *testing.T) {
	s, _, err := system(t, `apiVersion: fencelab.dev/v1alpha1
kind: System
metadata: {name: acme, description: Gives hosts to tenants.}
spec:
  controllers:
    - {name: acme, plays: tenancy, program: {command: [./acme]}}
    - {name: acme-agent, plays: tenancy, program: {command: [./agent]}}
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, listed := range [][]scenarios.Controller{nil, {{Name: "reboot"}, {Name: "remediation"}}} {
		spec := &scenarios.Spec{Controllers: listed}
		if err := s.Takes(spec); err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range spec.Controllers {
			got = append(got, spec.Controllers[i].Name+":"+scenarios.PartOf(&spec.Controllers[i]))
		}
		want := []string{"acme:tenancy", "acme-2:tenancy"}
		if listed != nil {
			want = append([]string{"reboot:power", "remediation:remediation"}, want...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("beside %d controllers there are %s, want %s", len(listed), got, want)
		}
	}
}
