package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/report"
)

// The system of docs/systems.md, and what mends its mistake.
const (
	pythonFencer = "docs/systems/python-fencer"
	asWritten    = `elif held and exists:  # and not host["status"]["poweredOn"]:`
	asItShould   = `elif held and exists and not host["status"]["poweredOn"]:`
)

// TestSystemsLoad: every system of the documents is one, and finds its files.
func TestSystemsLoad(t *testing.T) {
	files, err := filepath.Glob("docs/systems/*/system.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %v: %v", files, err)
	}
	for _, file := range files {
		system, err := scenarios.LoadSystem(file, vocabulary())
		if err != nil {
			t.Error(err)
			continue
		}
		for _, c := range system.Spec.Controllers {
			for _, name := range c.Program.Installs {
				if _, err := os.Stat(filepath.Join(c.Program.Dir, name)); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestAnyProgram follows docs/systems.md: a program in Python loses what it should keep
// while a BMC cannot be reached, and doesn't once its mistake is mended.
func TestAnyProgram(t *testing.T) {
	if os.Getenv("FENCELAB_REQUIRE_LAB") == "" {
		t.Skip("it runs with make e2e")
	}
	mended := t.TempDir()
	if err := os.CopyFS(mended, os.DirFS(pythonFencer)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(mended, "fencer.py")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), asWritten); n != 1 {
		t.Fatalf("the mistake stands %d times in %s", n, file)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), asWritten, asItShould, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, dir string
		code      int
		says      string
	}{
		{"as written", pythonFencer, report.ExitViolated, "fenced-before-release: the Node of worker-1 was deleted"},
		{"mended", mended, report.ExitHeld, "held      unreachable-bmc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, "/proc/self/exe")
			cmd.Args = []string{program, "run", "scenarios/catalog/machine-remediation/unreachable-bmc.yaml",
				"--backend", "lab", "--system", filepath.Join(c.dir, "system.yaml"), "--out", t.TempDir()}
			cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it cleans up
			said, _ := cmd.CombinedOutput()                                       // the code says how it ended
			if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(said), c.says) {
				t.Errorf("it ended with %d, want %d and %q:\n%s", code, c.code, c.says, said)
			}
		})
	}
}
