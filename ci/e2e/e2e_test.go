package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/vms/keeper"
)

// TestMain lets the test binary be a keeper, or this command, as whoever kills it sees it.
func TestMain(m *testing.M) {
	keeper.Main()
	if os.Getenv("E2E_OUT") != "" {
		r := &runner{out: os.Getenv("E2E_OUT"), tools: "../tools/go.mod", patience: time.Hour, to: os.Stdout}
		code, _ := r.run(context.Background(), []string{"endless"})
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// TestRun runs suites of a Makefile in testdata: one that passes, one whose test fails, one that
// can't be built.
func TestRun(t *testing.T) {
	r, said := runnerOf(t)
	code, err := r.run(t.Context(), []string{"passing", "failing broken"})
	if code != 1 || err != nil {
		t.Errorf("it ended with %d and %v, want 1", code, err)
	}
	for _, pattern := range []string{
		`(?m)^passing \| fine$`,
		`(?m)^DONE 3 tests, 2 failures in `,
		`(?m)^=== FAIL: failing TestWrong \(2.00s\)\nit is wrong$`,
		`(?m)^=== FAIL: broken make e2e-broken \(\S+\)\nexit status 2\nit does not build`,
		`(?m)^broken  +0s  exit status 2: see \S+/broken.log$`,
	} {
		if !regexp.MustCompile(pattern).Match(said.Bytes()) {
			t.Errorf("it doesn't say %s:\n%s", pattern, said)
		}
	}
	junit, err := os.ReadFile(filepath.Join(r.out, "junit.xml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{
		`<testsuites name="make e2e" tests="3" failures="2" errors="0" `,
		`<testsuite tests="1" failures="0" time="\S+" name="passing" `,
		`<testcase classname="passing" name="TestFine" time="1.0+"></testcase>`,
		`<property name="artifacts" value="out/e2e/wrong"></property>`,
		`<failure message="Failed" type="">exit status 2&#xA;it does not build&#xA;`,
	} {
		if !regexp.MustCompile(pattern).Match(junit) {
			t.Errorf("junit.xml has no %s:\n%s", pattern, junit)
		}
	}
}

// TestStuck: a suite in which nothing moves any more is ended, and what it was at is reported.
func TestStuck(t *testing.T) {
	r, said := runnerOf(t)
	r.patience = time.Second
	if code, err := r.run(t.Context(), []string{"endless"}); code != 1 || err != nil {
		t.Errorf("it ended with %d and %v, want 1", code, err)
	}
	for _, pattern := range []string{
		`(?m)^=== FAIL: endless TestEndless `,
		`(?m)^=== FAIL: endless make e2e-endless \(\S+\)\nnothing has moved for 1s$`,
	} {
		if !regexp.MustCompile(pattern).Match(said.Bytes()) {
			t.Errorf("it doesn't say %s:\n%s", pattern, said)
		}
	}
}

// TestKilled: no suite outlives a run that is killed.
func TestKilled(t *testing.T) {
	r, _ := runnerOf(t)
	run := exec.Command("/proc/self/exe")
	run.Env = append(os.Environ(), "E2E_OUT="+r.out)
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	defer run.Wait()
	defer run.Process.Kill()
	suites := func() (n int) {
		files, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, file := range files {
			text, _ := os.ReadFile(file) // it may have ended meanwhile
			if bytes.Contains(text, []byte("\x00OUT="+r.out+"\x00")) && bytes.Contains(text, []byte("MAKELEVEL=1")) {
				n++
			}
		}
		return n
	}
	await := func(what string, done func() bool) {
		t.Helper()
		for patience := machine.NewPatience(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
			if patience.Over(nil) {
				t.Fatalf("%s: there are %d processes of suites", what, suites())
			}
		}
	}
	await("no suite runs", func() bool { return suites() > 0 })
	if err := run.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	await("suites outlive the run", func() bool { return suites() == 0 })
}

// TestInterrupt: everything seen before the interrupt is reported, and suites that had not begun
// are named.
func TestInterrupt(t *testing.T) {
	r, said := runnerOf(t)
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		for range time.Tick(10 * time.Millisecond) {
			if data, _ := os.ReadFile(filepath.Join(r.out, "events", "endless.json")); bytes.HasSuffix(data, []byte("cut sh")) {
				interrupt()
				return
			}
		}
	}()
	if code, err := r.run(ctx, []string{"endless", "passing"}); code != 130 || err != nil {
		t.Errorf("it ended with %d and %v, want 130", code, err)
	}
	for _, pattern := range []string{
		`(?m)^endless \| cleaned up$`,
		`(?m)^=== FAIL: endless TestEndless `,
		`(?m)^=== FAIL: passing make e2e-passing \(0.00s\)\ninterrupted before it began$`,
	} {
		if !regexp.MustCompile(pattern).Match(said.Bytes()) {
			t.Errorf("it doesn't say %s:\n%s", pattern, said)
		}
	}
	if junit, err := os.ReadFile(filepath.Join(r.out, "junit.xml")); err != nil || !bytes.Contains(junit, []byte(`name="TestEndless"`)) {
		t.Errorf("junit.xml: %v\n%s", err, junit)
	}
}

func runnerOf(t *testing.T) (*runner, *bytes.Buffer) {
	var said bytes.Buffer
	out := t.TempDir()
	t.Setenv("MAKEFILES", filepath.Join("testdata", "Makefile"))
	t.Setenv("OUT", out)
	return &runner{out: out, tools: "../tools/go.mod", patience: time.Hour, to: &said}, &said
}
