package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelab/fencelab/ci/lab"
)

// patience bounds what a lab on a busy machine may take; every wait ends with what it waits for.
const patience = 10 * time.Minute

// labRun is a fencelab run in the lab, as another process.
type labRun struct {
	cmd  *exec.Cmd
	log  string        // the file with what it says
	done chan struct{} // closed once it has ended
}

func (r *labRun) said() string {
	text, err := os.ReadFile(r.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// startLab starts a run of a scenario in the lab. A user other than our own is given by
// its number.
func startLab(t *testing.T, user uint32, controllers, scenario string) *labRun {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	dir := t.TempDir()
	r := &labRun{cmd: exec.CommandContext(ctx, "/proc/self/exe"), log: filepath.Join(dir, "log"), done: make(chan struct{})}
	log, err := os.Create(r.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r.cmd.Args = []string{program, "run", "--backend", "lab", "--controllers", controllers, "--out", filepath.Join(dir, "out"), filepath.Join("scenarios", "catalog", scenario)}
	r.cmd.Stdout, r.cmd.Stderr = log, log
	if user != uint32(os.Getuid()) {
		r.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		r.cmd.Env = append(os.Environ(), "HOME=/nonexistent")
		for ; dir != os.TempDir(); dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = r.cmd.Wait() // ProcessState tells
		close(r.done)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.done
	})
	return r
}

// theirs is how the names that a run gives show in lists of processes and directories.
var theirs = regexp.MustCompile(`fencelab-keeper\x00([a-z0-9]{8})\x00`)

// name is the run's own, which its keepers carry, or "" before it has one.
func (r *labRun) name() string {
	for _, p := range processes() {
		if m := theirs.FindStringSubmatch(p.arguments); m != nil && p.parent == r.cmd.Process.Pid {
			return m[1]
		}
	}
	return ""
}

type processInfo struct {
	id, parent int
	arguments  string
}

func processes() (all []processInfo) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		data, _ := os.ReadFile(file) // it may have ended meanwhile
		arguments, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		p := processInfo{arguments: string(arguments)}
		i := bytes.LastIndexByte(data, ')')
		if i < 0 || len(arguments) == 0 {
			continue
		}
		var state string
		if _, err := fmt.Sscan(string(data), &p.id); err != nil {
			continue
		}
		if _, err := fmt.Sscan(string(data[i+1:]), &state, &p.parent); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// things are the processes and directories that bear the name of a run.
func things(name string) (found []string) {
	for _, p := range processes() {
		if strings.Contains(p.arguments, name) {
			found = append(found, fmt.Sprintf("process %d %s", p.id, strings.ReplaceAll(p.arguments, "\x00", " ")))
		}
	}
	directories, _ := filepath.Glob(filepath.Join(os.TempDir(), "*-"+name+"-*"))
	return append(found, directories...)
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); <-time.After(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// TestLabsSideBySide runs labs on one machine at the same time: two that go on to their
// end, one of them of another user where we may be one, and one that is killed while the
// others are at it. Each sees only its own.
func TestLabsSideBySide(t *testing.T) {
	if os.Getenv("FENCELAB_REQUIRE_LAB") == "" {
		t.Skip("it runs with make e2e")
	}
	// Whether a lab can run here, the runs themselves find out: a process that has opened
	// the hypervisor is the parent of every orphan below it, and collects only its own.
	user, other := uint32(os.Getuid()), uint32(os.Getuid())
	if user == 0 {
		other = 65534 // nobody
	}
	runs := []*labRun{
		startLab(t, user, lab.InProcess, "reboot-annotation/plain-power-cycle.yaml"),
		startLab(t, other, lab.AsProcess, "reboot-annotation/plain-power-cycle.yaml"),
	}
	victim := startLab(t, user, lab.AsProcess, "reboot-annotation/plain-power-cycle.yaml")

	names := make(map[*labRun]string)
	machines := func(name string) (n int) {
		for _, thing := range things(name) {
			if strings.Contains(thing, "guest=fencelab-"+name) {
				n++
			}
		}
		return n
	}
	for i, r := range append(runs, victim) {
		until(t, fmt.Sprintf("run %d has a machine on", i), func() bool {
			select {
			case <-r.done:
				t.Fatalf("run %d, named %q, ended early with %v:\n%s", i, names[r], r.cmd.ProcessState, r.said())
			default:
			}
			if names[r] == "" {
				names[r] = r.name()
			}
			return names[r] != "" && machines(names[r]) > 0
		})
	}
	until(t, "the run that is to be killed has a controller", func() bool {
		return strings.Contains(strings.Join(things(names[victim]), "\n"), program+"-reboot["+names[victim]+"]")
	})
	if err := victim.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-victim.done
	until(t, "the killed run's keepers have cleaned up", func() bool { return len(things(names[victim])) == 0 })
	for i, r := range runs {
		<-r.done
		t.Logf("run %d, named %s:\n%s", i, names[r], r.said())
		if !r.cmd.ProcessState.Success() {
			t.Errorf("run %d ended with %v", i, r.cmd.ProcessState)
		}
		until(t, "the keepers of the ended run have gone", func() bool { return len(things(names[r])) == 0 })
	}
}
