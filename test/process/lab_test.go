package process

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fencelab/fencelab/lab"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/lab/hosts"
	"github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/lab/slots"
	"github.com/fencelab/fencelab/test/clone"
	"github.com/fencelab/fencelab/vms/keeper"
)

// patience and scriptPatience are how long nothing may move while a lab is waited for, and what
// needs no virtual machine, on a machine that isn't slow. Every wait ends with what it waits for.
const patience, scriptPatience = 5 * time.Minute, time.Minute

// await waits until something is done. seen returns the visible progress; nil for none.
func await(enough time.Duration, seen func() any, done func() bool) bool {
	patience := machine.NewPatience(enough)
	for !done() {
		var now any
		if seen != nil {
			now = seen()
		}
		if patience.Over(now) {
			return false
		}
		time.Sleep(50 * time.Millisecond)
	}
	return true
}

// labRun is a fencelab run in the lab, as another process.
type labRun struct {
	cmd  *exec.Cmd
	log  string        // the file with what it says
	done chan struct{} // closed once it has ended
}

// over reports whether it has ended.
func (r *labRun) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
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
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	dir := t.TempDir()
	r := &labRun{cmd: exec.CommandContext(ctx, "/proc/self/exe"), log: filepath.Join(dir, "log"), done: make(chan struct{})}
	log, err := os.Create(r.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r.cmd.Args = []string{clone.Command, "run", "--backend", "lab", "--controllers", controllers, "--out", filepath.Join(dir, "out"), filepath.Join("scenarios", "catalog", scenario)}
	r.cmd.Stdout, r.cmd.Stderr = log, log
	r.cmd.Env = append(os.Environ(), ours(t), slots.Variable+"="+slots.Held)
	if user != uint32(os.Getuid()) {
		r.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		r.cmd.Env = append(r.cmd.Env, "HOME=/nonexistent")
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
		_ = r.cmd.Wait() // ProcessState holds the result
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
		Dir:                 "test/process/testdata/lab",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Condition: func(name string) (bool, error) {
			return name == "lab" && os.Getenv("FENCELAB_REQUIRE_LAB") != "", nil
		},
		Setup: func(env *testscript.Env) error {
			key, value, _ := strings.Cut(ours(t), "=")
			env.Setenv(key, value)
			env.Setenv("FENCELAB_BIN", bin)
			env.Setenv("FENCELAB_LAB", hosts.DefaultAssets())
			return clone.Fill(env.WorkDir)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": clone.Exits, "keeps": keeps, "match": match, "killed": signals(syscall.SIGKILL), "ended": signals(syscall.SIGTERM), "hung": signals(syscall.SIGSTOP), "lost": lost, "gone": gone, "left": left, "await": awaited, "reset": resetByBMC, "cluster": clusterOfTheirOwn,
		},
	})
}

// keeps NAME sets a variable to the name of the lab that lab up has printed, and takes the lab down
// after the script, however that ends.
func keeps(ts *testscript.TestScript, neg bool, args []string) {
	match(ts, neg, []string{args[0], `^lab (\S+) of`})
	down := exec.Command(clone.Command, "lab", "down", ts.Getenv(args[0]))
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

// ours is the mark of the processes that tests start: they end with this one, also if it is killed.
func ours(t *testing.T) string {
	t.Helper()
	k, err := keeperOfTests()
	if err != nil {
		t.Fatal(err)
	}
	return k.Mark()
}

// keeperOfTests holds the keeper as long as this process lives, as nothing may forget it earlier.
var keeperOfTests = sync.OnceValues(keeper.Start)

// lost LAB removes the directory by which a lab is found, as with a test's directory for temporary
// files.
func lost(ts *testscript.TestScript, _ bool, args []string) {
	dirs, err := filepath.Glob(filepath.Join(ts.Getenv("TMPDIR"), "fencelab-up-"+args[0]+"-*"))
	ts.Check(err)
	if len(dirs) != 1 {
		ts.Fatalf("the lab %s has the directories %q", args[0], dirs)
	}
	ts.Check(os.RemoveAll(dirs[0]))
}

// signals makes the command killed, ended or hung WHAT,WHAT... LAB: it sends a signal to processes
// of a lab, its keepers, that which keeps it, or those whose name begins so.
func signals(s syscall.Signal) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) { signalled(ts, s, args) }
}

func signalled(ts *testscript.TestScript, s syscall.Signal, args []string) {
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
			ts.Check(syscall.Kill(id, s))
		}
	}
}

// gone LAB waits until nothing of a lab is left.
func gone(ts *testscript.TestScript, _ bool, args []string) {
	var here []string
	if !await(scriptPatience, nil, func() bool {
		here = thingsBelow(ts.Getenv("TMPDIR"), args[0])
		return len(here) == 0
	}) {
		ts.Fatalf("left of the lab %s: %s", args[0], strings.Join(here, "\n"))
	}
}

// left WHAT LAB shows that something of a lab is there.
func left(ts *testscript.TestScript, _ bool, args []string) {
	if here := strings.Join(thingsBelow(ts.Getenv("TMPDIR"), args[1]), "\n"); !strings.Contains(here, args[0]) {
		ts.Fatalf("left of the lab %s: %s", args[1], here)
	}
}

// await COMMAND... runs a command until it succeeds.
func awaited(ts *testscript.TestScript, _ bool, args []string) {
	var err error
	if !await(scriptPatience, nil, func() bool {
		err = ts.Exec(args[0], args[1:]...)
		return err == nil
	}) {
		ts.Fatalf("%s: %v", strings.Join(args, " "), err)
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

// until waits for something while runs say something.
func until(t *testing.T, what string, runs []*labRun, done func() bool) {
	t.Helper()
	said := func() any {
		bytes := 0
		for _, r := range runs {
			bytes += len(r.said())
		}
		return bytes
	}
	if !await(patience, said, done) {
		t.Fatalf("nothing has moved for %v: %s", patience, what)
	}
}

// TestLabsSideBySide runs labs on one machine at the same time: two that go on to their
// end, one of them of another user where we may be one, and one that is killed while the
// others are at it. Each sees only its own.
func TestLabsSideBySide(t *testing.T) {
	if os.Getenv("FENCELAB_REQUIRE_LAB") == "" {
		t.Skip("it runs with make e2e")
	}
	// The three of them are up at the same time, however few slots there are.
	turn, err := slots.Machine().Take(t.Context(), t.Name(), 3*3, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	defer turn.Release()
	// Whether a lab can run here, the runs themselves find out: a process that has opened
	// the hypervisor is the parent of every orphan below it, and collects only its own.
	user, other := uint32(os.Getuid()), uint32(os.Getuid())
	if user == 0 {
		other = 65534 // the user nobody
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
		until(t, fmt.Sprintf("run %d has a machine on", i), append(runs, victim), func() bool {
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
	until(t, "the run that is to be killed has a controller", []*labRun{victim}, func() bool {
		return strings.Contains(strings.Join(things(names[victim]), "\n"), clone.Command+"-reboot["+names[victim]+"]")
	})
	if err := victim.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-victim.done
	until(t, "the killed run's keepers have cleaned up", nil, func() bool { return len(things(names[victim])) == 0 })
	turn.Begun()
	for i, r := range runs {
		until(t, fmt.Sprintf("run %d ends", i), runs, r.over)
		t.Logf("run %d, named %s:\n%s", i, names[r], r.said())
		if !r.cmd.ProcessState.Success() {
			t.Errorf("run %d ended with %v", i, r.cmd.ProcessState)
		}
		until(t, "the keepers of the ended run have gone", nil, func() bool { return len(things(names[r])) == 0 })
	}
}

// TestKeptLabEndsWithItsTest: a lab that a test keeps is gone when the test's process is, also by
// SIGKILL.
func TestKeptLabEndsWithItsTest(t *testing.T) {
	for _, f := range cluster.Preflight(t.Context(), cluster.Options{}) {
		if f.Remedy != "" {
			t.Skipf("%s: %s; %s", f.Name, f.State, f.Remedy)
		}
	}
	tmp := t.TempDir()
	test := exec.Command("/proc/self/exe", "-test.run=^TestKeepsALab$", "-test.v")
	test.Dir = filepath.Join("test", "process") // where a test binary begins
	test.Env = append(os.Environ(), "TMPDIR="+tmp, keepsALab+"=1")
	said, err := test.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := test.Start(); err != nil {
		t.Fatal(err)
	}
	defer test.Wait()
	defer test.Process.Kill()
	name, lines := "", bufio.NewScanner(said)
	for name == "" && lines.Scan() {
		if match := regexp.MustCompile(`lab (\S+) of .* is up$`).FindStringSubmatch(lines.Text()); match != nil {
			name = match[1]
		}
		t.Log(lines.Text())
	}
	if name == "" || len(thingsBelow(tmp, name)) == 0 {
		t.Fatalf("there is no lab %q", name)
	}
	if err := test.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	until(t, "the lab is gone", nil, func() bool { return len(thingsBelow(tmp, name)) == 0 })
}

// keepsALab has the test binary keep a lab until it is killed.
const keepsALab = "FENCELAB_TEST_KEEPS_A_LAB"

func TestKeepsALab(t *testing.T) {
	if os.Getenv(keepsALab) == "" {
		t.Skip("TestKeptLabEndsWithItsTest runs it, and kills it")
	}
	up := exec.Command("/proc/self/exe", "lab", "up", "--hosts", "model", "docs/examples/power-loss.yaml")
	up.Args[0], up.Env, up.Stdout, up.Stderr = clone.Command, append(os.Environ(), ours(t)), os.Stdout, os.Stdout
	if err := up.Run(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Hour)
}
