package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fencelab/fencelab/ci/container"
	"github.com/fencelab/fencelab/cmd"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/vms/keeper"
)

var update = flag.Bool("update", false, "write what the commands print into testdata/script, and into the documents")

const program = "fencelab"

// TestMain lets the test binary be what it has to be: a keeper, fencelab itself
// when a script calls it (and fencelab's own workers, which have the same name),
// or the tests.
func TestMain(m *testing.M) {
	container.Main()
	keeper.Main()
	// A lab calls its controllers by names of their own.
	if name := filepath.Base(os.Args[0]); name == program || strings.HasPrefix(name, program+"-") {
		if filepath.IsAbs(os.Args[0]) {
			os.Args[0] = program // as the script says it; testscript looks it up
		}
		main() // does not return
	}
	testscript.Main(m, map[string]func(){program: main})
}

// TestScripts plays the golden sessions. Each has scenarios/, docs/ and systems/ as
// a clone has, and a lab that lacks everything.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			if err := clone(env.WorkDir); err != nil {
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
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "json": field},
	})
}

// clone makes a directory look like one that the repository was cloned into, as
// far as the command reads it.
func clone(dir string) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	for _, name := range []string{"scenarios", "docs", "systems"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// exits CODE COMMAND... runs a command that must end with the exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var ended *exec.ExitError
		if !errors.As(err, &ended) {
			ts.Fatalf("%s: %v", strings.Join(args[1:], " "), err)
		}
		got = ended.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s: exit code %d, want %d", strings.Join(args[1:], " "), got, want)
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
