package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fencelab/fencelab/ci/cluster"
	"github.com/fencelab/fencelab/ci/lab"
)

// patience bounds what a lab on a busy machine may take; every wait ends with what it waits for.
const patience = 10 * time.Minute

// scriptPatience is for what needs no virtual machine.
const scriptPatience = 2 * time.Minute

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
func things(name string) (found []string) { return thingsBelow(os.TempDir(), name) }

func thingsBelow(tmp, name string) (found []string) {
	for _, p := range processes() {
		if strings.Contains(p.arguments, name) {
			found = append(found, fmt.Sprintf("process %d %s", p.id, strings.ReplaceAll(p.arguments, "\x00", " ")))
		}
	}
	directories, _ := filepath.Glob(filepath.Join(tmp, "*-"+name+"-*"))
	return append(found, directories...)
}

// TestLabsThatAreKept plays the sessions of fencelab lab, with hosts that are models.
func TestLabsThatAreKept(t *testing.T) {
	for _, f := range cluster.Preflight(t.Context(), cluster.Options{}) {
		if f.Remedy != "" {
			t.Skipf("%s: %s; %s", f.Name, f.State, f.Remedy)
		}
	}
	bin := cluster.DefaultBin()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/lab",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Condition: func(name string) (bool, error) {
			return name == "lab" && os.Getenv("FENCELAB_REQUIRE_LAB") != "", nil
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("FENCELAB_BIN", bin)
			env.Setenv("FENCELAB_LAB", lab.DefaultAssets())
			return clone(env.WorkDir)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "keeps": keeps, "match": match, "killed": killed, "gone": gone, "left": left, "await": await, "reset": resetByBMC, "cluster": clusterOfTheirOwn,
		},
	})
}

// keeps NAME sets a variable to the name of the lab that lab up has told of, and has the lab
// gone after the script, however that ends.
func keeps(ts *testscript.TestScript, neg bool, args []string) {
	match(ts, neg, []string{args[0], `^lab (\S+) of`})
	down := exec.Command(program, "lab", "down", ts.Getenv(args[0]))
	down.Env = append(os.Environ(), "TMPDIR="+ts.Getenv("TMPDIR"))
	ts.Defer(func() { _ = down.Run() }) // it fails if it is gone already
}

// match NAME PATTERN sets a variable to what the pattern's group is in the standard output.
func match(ts *testscript.TestScript, _ bool, args []string) {
	found := regexp.MustCompile("(?m)" + args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if found == nil {
		ts.Fatalf("no %s in the standard output", args[1])
	}
	ts.Setenv(args[0], found[1])
}

// killed WHAT,WHAT... LAB kills processes of a lab with SIGKILL: its keepers, that which
// keeps it, or those whose name begins so.
func killed(ts *testscript.TestScript, _ bool, args []string) {
	name := args[1]
	var keepers, keep []int
	for _, p := range processes() {
		if p.arguments == "fencelab-keeper\x00"+name+"\x00" {
			keepers, keep = append(keepers, p.id), []int{p.parent}
		}
	}
	for what := range strings.SplitSeq(args[0], ",") {
		victims := map[string][]int{"keepers": keepers, "keep": keep}[what]
		for _, p := range processes() {
			if strings.HasPrefix(p.arguments, what) && strings.Contains(p.arguments, "["+name+"]") {
				victims = append(victims, p.id)
			}
		}
		if len(victims) == 0 {
			ts.Fatalf("the lab %s has no process %s", name, what)
		}
		for _, id := range victims {
			ts.Check(syscall.Kill(id, syscall.SIGKILL))
		}
	}
}

// gone LAB waits until nothing of a lab is left.
func gone(ts *testscript.TestScript, _ bool, args []string) {
	for end := time.Now().Add(scriptPatience); ; <-time.After(50 * time.Millisecond) {
		here := thingsBelow(ts.Getenv("TMPDIR"), args[0])
		if len(here) == 0 {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("left of the lab %s: %s", args[0], strings.Join(here, "\n"))
		}
	}
}

// left WHAT LAB shows that something of a lab is there.
func left(ts *testscript.TestScript, _ bool, args []string) {
	if here := strings.Join(thingsBelow(ts.Getenv("TMPDIR"), args[1]), "\n"); !strings.Contains(here, args[0]) {
		ts.Fatalf("left of the lab %s: %s", args[1], here)
	}
}

// await COMMAND... runs a command until it succeeds.
func await(ts *testscript.TestScript, _ bool, args []string) {
	for end := time.Now().Add(scriptPatience); ; <-time.After(100 * time.Millisecond) {
		err := ts.Exec(args[0], args[1:]...)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s: %v", strings.Join(args, " "), err)
		}
	}
}

// cluster FILE starts a control plane that is no lab's, and writes its kubeconfig.
func clusterOfTheirOwn(ts *testscript.TestScript, _ bool, args []string) {
	c, err := cluster.Launch(context.Background(), cluster.Options{})
	ts.Check(err)
	ts.Defer(func() { ts.Check(c.Stop()) })
	text, err := cluster.Kubeconfig(c.Config())
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), text, 0o600))
}

// reset URL PASSWORDFILE TYPE has a BMC reset its host, as a user of it would.
func resetByBMC(ts *testscript.TestScript, _ bool, args []string) {
	body := strings.NewReader(`{"ResetType": "` + args[2] + `"}`)
	r, err := http.NewRequest(http.MethodPost, args[0]+"/Actions/ComputerSystem.Reset", body)
	ts.Check(err)
	r.SetBasicAuth("fencelab", ts.ReadFile(args[1]))
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	ts.Check(err)
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusBadRequest {
		ts.Fatalf("%s of %s: %s", args[2], args[0], answer.Status)
	}
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
