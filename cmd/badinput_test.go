package cmd_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/cmd"
	"github.com/fencelab/fencelab/scenarios/exit"
)

const story = `apiVersion: fencelab.dev/v1alpha1
kind: Scenario
metadata: {name: story, description: A host is switched off.}
spec:
  topology: {hosts: [{name: worker-1}]}
  controllers: [{name: reboot}]
  steps:
    - do: {annotate: {object: BareMetalHost/worker-1, key: reboot.metal3.io}}
`

const system = `apiVersion: fencelab.dev/v1alpha1
kind: System
metadata: {name: acme, description: A fencer.}
spec:
  controllers:
    - name: remediation
      program: {image: acme/fencer:v1}
`

// TestBadInput: nothing on the command line is ignored. What is wrong is refused before anything
// runs, with its place and with what to do.
func TestBadInput(t *testing.T) {
	t.Setenv("FENCELAB_MODULE", "") // of whoever runs this test
	for _, row := range []struct {
		args  string
		files map[string]string // beside story.yaml and system.yaml
		want  string
	}{
		// Flags that would change nothing.
		{"run story.yaml --schedules 20", nil, "--schedules: only a search has a use for it: add --strategy sweep, or another"},
		{"run story.yaml --workers 7", nil, "--workers: it is one story, and they play several at a time: leave it out, or add --strategy sweep"},
		{"run story.yaml --backend lab --workers 7", nil, "--workers: only a search has a use for it: add --strategy sweep"},
		{"run story.yaml --no-shrink", nil, "--no-shrink: only a search"},
		{"run story.yaml --seed 7", nil, "--seed: these stories leave nothing to chance, and neither does --strategy benign: leave it out, or add --strategy random"},
		{"run story.yaml --strategy sweep --seed 7", nil, "neither does --strategy sweep"},
		{"run story.yaml --backend lab --strategy sweep --workers 2", nil, "--workers: virtual machines want the machine for themselves: leave it out, or add --hosts model"},
		{"run story.yaml --backend lab --strategy sweep --no-shrink", nil, "--no-shrink: a sweep of the lab makes one deviation at a time"},
		{"run story.yaml --system system.yaml", nil, "--system: only the lab runs programs: add --backend lab"},
		{"run story.yaml --kubeconfig nowhere", nil, "--kubeconfig: only the lab has a use for it: add --backend lab"},
		{"replay story.yaml --ironic-endpoint http://127.0.0.1:1", nil, "--ironic-endpoint: only the lab has a use for it"},
		{"run story.yaml --image acme/fencer:v1", nil, "--image is for a program of a system: name its file with --system"},
		// Amounts of nothing, and files where directories are needed.
		{"search story.yaml --depth 0", nil, "--depth 0: must be more than 0"},
		{"search story.yaml --within 0s --schedules 3", nil, "--within 0s: must be more than 0"},
		{"search story.yaml --for -3s", nil, "--for -3s: must be more than 0"},
		{"search story.yaml --for 2s --schedules 3", nil, "--schedules and --for: both say how much to play, so leave one out"},
		{"search story.yaml --resume system.yaml --schedules 3", nil, "--resume system.yaml: it is a file, and a directory is needed"},
		{"run story.yaml --strategy sweep --resume system.yaml", nil, "--resume system.yaml: it is a file, and a directory is needed"},
		{"run story.yaml --out system.yaml", nil, "name a directory that can be written"},
		{"margin story.yaml --measured nowhere", nil, "look for runs in nowhere: "},
		{"margin story.yaml --measured story.yaml", nil, "there is no run of story in story.yaml: save some with run --out"},
		{"campaign merge nowhere", nil, "nowhere"},
		{"campaign diff nowhere story.yaml", nil, "read the report of a campaign: "},
		{"bisect story.yaml", nil, "--good: name a commit with which the plan comes out as expected"},
		{"bisect story.yaml --good HEAD", nil, "bisect in a clone, or name a package in one with --module"},
		// Names that are almost right.
		{"campaign paln story.yaml", nil, `unknown command "paln": did you mean "plan"?`},
		{"lab staus", nil, `unknown command "staus": did you mean "status"?`},
		{"run story.yaml --strategy swep", nil, "--strategy swep: did you mean sweep? choose benign, sweep"},
		{"run story.yaml --backend lap", nil, "--backend lap: did you mean lab? choose sim or lab"},
		{"run story.yaml --backend lab --hosts modle", nil, "--hosts modle: did you mean model?"},
		{"run story.yaml -o jsn", nil, "--output jsn: did you mean json?"},
		{"run story.yaml --set x=1", nil, `--set x: unknown parameter "x"`},
		{"run story.yaml --filter nmae=x", nil, "filter by name, seed, label or guarantee"},
		// A project's file.
		{"run story.yaml", map[string]string{"fencelab.yaml": "defaults:\n  run: {strategy: randm}\n"}, "fencelab.yaml:2:19: defaults.run.strategy: did you mean random?"},
		{"run story.yaml", map[string]string{"fencelab.yaml": "defaults:\n  run: {backend: lap}\n"}, "fencelab.yaml:2:18: defaults.run.backend: did you mean lab?"},
		{"run story.yaml", map[string]string{"fencelab.yaml": "defaults:\n  run: {schedules: many}\n"}, `fencelab.yaml:2:20: defaults.run.schedules: "many" is not a whole number`},
		{"run story.yaml", map[string]string{"fencelab.yaml": "module: ./fencr\n", "fencer/x.go": ""}, `fencelab.yaml:1:9: module: unknown directory "fencr": did you mean "fencer"?`},
		{"run story.yaml", map[string]string{"fencelab.yaml": "module: .:module\n"}, "fencelab.yaml:1:9: module: \"module\" is nothing that a Go package exports"},
		{"run story.yaml", map[string]string{"fencelab.yaml": "leads:\n  - lead: only evict Pod\n"}, "fencelab.yaml:2:5: leads[0]: a lead that is accepted has a name, as run --leads prints it before the colon, and a reason"},
		// Leads.
		{"run story.yaml --fail-on-leads", nil, "--fail-on-leads: there are none to fail on: add --leads"},
		{"run story.yaml --leads=nowhere", nil, "--leads=nowhere: it is no directory with saved runs"},
		{"run story.yaml --backend lab --leads", nil, "--leads: only the simulator plays the same schedule twice: leave out --backend"},
		// Images.
		{"lint system.yaml", map[string]string{"system.yaml": strings.Replace(system, "acme/fencer:v1", "ACME/fencer:v1", 1)}, `system.yaml:7:24: spec.controllers[0].program.image: "ACME/fencer:v1" can't be a reference to an image`},
		{"lint system.yaml", map[string]string{"system.yaml": strings.Replace(system, "acme/fencer:v1", "'acme fencer'", 1)}, `"acme fencer" can't be a reference to an image`},
		{"lint system.yaml", map[string]string{"system.yaml": strings.Replace(system, "acme/fencer:v1", "fencer.tar", 1), "fencer.tar": "hello"}, "system.yaml:7:24: spec.controllers[0].program.image: fencer.tar is no archive of an image: write it with docker save"},
		{"run story.yaml --backend lab --system system.yaml --image acme/fencer:", nil, "--image acme/fencer:: "},
		{"run story.yaml --backend lab --system system.yaml --image fencer.tar", map[string]string{"fencer.tar": "hello"}, "fencer.tar is no archive of an image"},
		{"run story.yaml --backend lab --ironic-image Ironic:1", nil, `"Ironic:1" can't be a reference`},
		// A system, without a lab.
		{"lint system.yaml", map[string]string{"system.yaml": strings.Replace(system, "v1}", "v1, ready: '127.0.0.1:${PORT}'}", 1)}, `system.yaml:7:47: spec.controllers[0].program.ready: "127.0.0.1:${PORT}" is no URL: write http://127.0.0.1:${PORT}/readyz`},
		{"lint system.yaml", map[string]string{"system.yaml": strings.Replace(system, "program:", "plays: remedation\n      program:", 1)}, `did you mean "remediation"?`},
		{"lint .", map[string]string{"system.yaml": strings.Replace(system, "program:", "programm:", 1)}, `unknown field "programm": did you mean "program"?`},
		{"run system.yaml", nil, `system.yaml:2:7: kind: "System" where Scenario is expected: it says what stories are played with: name it with --system`},
	} {
		t.Run(row.args, func(t *testing.T) {
			t.Chdir(t.TempDir())
			for name, text := range map[string]string{"story.yaml": story, "system.yaml": system} {
				put(t, name, text)
			}
			for name, text := range row.files {
				put(t, name, text)
			}
			var out, said bytes.Buffer
			code := cmd.Execute(t.Context(), strings.Fields(row.args), strings.NewReader(""), &out, &said)
			if code != exit.Invalid || !strings.Contains(said.String(), row.want) {
				t.Errorf("it ended with %d, after %s%swant %d and %q", code, &out, &said, exit.Invalid, row.want)
			}
		})
	}
}

// TestNotBad are near misses: what looks like bad input, and is none.
func TestNotBad(t *testing.T) {
	t.Setenv("FENCELAB_MODULE", "")
	for args, files := range map[string]map[string]string{
		"lint .":                  nil, // a story, and a system
		"lint system.yaml":        {"system.yaml": strings.Replace(system, "acme/fencer:v1", "localhost:5000/acme/fen-cer__1@sha256:"+fmt.Sprintf("%064d", 1), 1)},
		"run . -o json":           nil,                                                      // the system is no story
		"run story.yaml":          {"fencelab.yaml": "defaults:\n  run: {schedules: 20}\n"}, // for whoever adds a strategy
		"run story.yaml --seed 7": {"story.yaml": strings.Replace(story, "- do:", "- after: 1s..2s\n      do:", 1)},
	} {
		t.Run(args, func(t *testing.T) {
			t.Chdir(t.TempDir())
			put(t, "story.yaml", story)
			put(t, "system.yaml", system)
			for name, text := range files {
				put(t, name, text)
			}
			var out, said bytes.Buffer
			if code := cmd.Execute(t.Context(), strings.Fields(args), strings.NewReader(""), &out, &said); code != exit.Held {
				t.Errorf("it ended with %d, after %s%s", code, &out, &said)
			}
		})
	}
}

func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
