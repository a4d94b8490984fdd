// Package script plays golden sessions of the command, as they are typed.
package script

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"sigs.k8s.io/yaml"

	"github.com/fencelab/fencelab/cmd"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/test/clone"
)

var update = flag.Bool("update", false, "write what the commands print into testdata/script")

// TestMain lets the test binary be fencelab when a script calls it.
func TestMain(m *testing.M) { clone.Main(m) }

// TestScripts plays the golden sessions. Each has scenarios/, docs/ and systems/ as
// a clone has, and a lab that lacks everything.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "test/script/testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			if err := clone.Fill(env.WorkDir); err != nil {
				return err
			}
			empty := filepath.Join(env.WorkDir, "nothing")
			env.Setenv("FENCELAB_BIN", empty)
			env.Setenv("FENCELAB_LAB", empty)
			env.Setenv("KUBECONFIG", filepath.Join(empty, "kubeconfig"))
			// What fencelab builds for --module stays here, and is built from what Go has already.
			root, err := os.Getwd()
			if err != nil {
				return err
			}
			env.Setenv("REPO", root)
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "cache"))
			for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
				value, err := exec.Command("go", "env", name).Output()
				if err != nil {
					return err
				}
				env.Setenv(name, strings.TrimSpace(string(value)))
			}
			return os.Mkdir(empty, 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": clone.Exits, "json": field, "workflow": workflow},
	})
}

// TestEveryVerbIsTyped: each verb is typed in a session, where what it prints is seen.
func TestEveryVerbIsTyped(t *testing.T) {
	files, err := filepath.Glob("test/script/testdata/script/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sessions: %v", err)
	}
	var sessions []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, text...)
	}
	for _, verb := range cmd.Verbs() {
		if !regexp.MustCompile(`(?m)^(exits \d+|exec) fencelab (--module \S+ )?` + verb + `\b`).Match(sessions) {
			t.Errorf("fencelab %s is typed in no session: add it to one in test/script/testdata/script", verb)
		}
	}
}

// json FILE FIELD VALUE compares a field of a JSON object; a text stands without
// its quotes.
func field(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: json FILE FIELD VALUE")
	}
	var object map[string]json.RawMessage
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &object))
	got := string(object[args[1]])
	var text string
	if json.Unmarshal(object[args[1]], &text) == nil {
		got = text
	}
	if got != args[2] {
		ts.Fatalf("%s: %s is %s, want %s", args[0], args[1], got, args[2])
	}
}

// expression matches the text that GitHub Actions replaces in a workflow.
var expression = regexp.MustCompile(`\$\{\{.*?\}\}`)

// workflow FILE SCRIPT JOB STEP writes what a step of a workflow runs to a script.
func workflow(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: workflow FILE SCRIPT JOB STEP")
	}
	var file struct {
		Jobs map[string]struct {
			Steps []struct{ Name, Run string }
		}
	}
	ts.Check(yaml.Unmarshal([]byte(ts.ReadFile(args[0])), &file))
	for _, step := range file.Jobs[args[2]].Steps {
		if step.Name == args[3] && !expression.MatchString(step.Run) {
			ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(step.Run), 0o644))
			return
		}
	}
	ts.Fatalf("%s: the job %s has no step %s that runs as it stands", args[0], args[2], args[3])
}

// TestInterrupt shows that an interrupted run ends with a verdict, a report and
// the exit code of an unknown one.
func TestInterrupt(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	var out bytes.Buffer
	talk := writer(func(line string) {
		if strings.Contains(line, "link-cut") {
			interrupt()
		}
	})
	dir := t.TempDir()
	code := cmd.Execute(ctx, []string{"run", "--trace", "--out", dir, "scenarios/catalog/machine-remediation/cut-off-host.yaml"}, strings.NewReader(""), &out, talk)
	if code != exit.Unknown || !strings.Contains(out.String(), "context canceled") {
		t.Errorf("exit code %d and this report, want %d and an interrupted run:\n%s", code, exit.Unknown, out.String())
	}
	saved, err := filepath.Glob(filepath.Join(dir, "*", "report.txt"))
	if err != nil || len(saved) != 1 {
		t.Errorf("saved reports are %v (%v), want one", saved, err)
	}
}

type writer func(string)

func (w writer) Write(p []byte) (int, error) {
	w(string(p))
	return len(p), nil
}
