package process

import (
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelab/fencelab/lab/hosts"
	"github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/lab/slots"
	"github.com/fencelab/fencelab/test/clone"
)

var (
	kills    = flag.Int("kills", 0, "how many runs in the lab to kill, each at a moment of its own; 0 is none")
	killSeed = flag.Uint64("kill-seed", 1, "seed for the moments")
)

// killable are the labs that are killed in turn: together they start all that fencelab can start.
var killable = []struct {
	arguments string
	lasts     time.Duration // about how long such a run takes on two cores
}{
	{"--hosts guest --controllers process scenarios/catalog/reboot-annotation/plain-power-cycle.yaml", 35 * time.Second},
	{"--hosts node scenarios/catalog/machine-remediation/cut-off-host.yaml", 2 * time.Minute},
	{"--hosts guest --power ironic scenarios/catalog/reboot-annotation/plain-power-cycle.yaml", 40 * time.Second},
	{"--hosts model --cluster kind scenarios/catalog/reboot-annotation/plain-power-cycle.yaml", time.Minute},
	{"--hosts model --system test/process/testdata/systems/image/system.yaml scenarios/catalog/machine-remediation/crash-after-each-effect.yaml", 40 * time.Second},
	{"--hosts model --cluster standard --system systems/cluster-api/system.yaml scenarios/upstream/cluster-api", 2 * time.Minute},
}

// TestNothingOutlivesAKilledRun kills fencelab at moments that a seed draws, and looks
// over the whole machine for what is left of it. Its keepers remove everything; a failure
// also says whether lab down would have. In every second round the keepers are killed too,
// as pkill does, and lab down has to remove everything.
func TestNothingOutlivesAKilledRun(t *testing.T) {
	if *kills == 0 {
		t.Skip("it runs with make kills")
	}
	random := rand.New(rand.NewPCG(*killSeed, 0))
	for i := range *kills {
		what := killable[i%len(killable)]
		moment := time.Duration(random.Int64N(int64(what.lasts)))
		all, whom := i/len(killable)%2 == 1, "fencelab"
		if all {
			whom = "fencelab and its keepers"
		}
		t.Run(fmt.Sprintf("%d %s after %v of run %s", i, whom, moment.Round(100*time.Millisecond), what.arguments), func(t *testing.T) {
			killedRun(t, fmt.Sprintf("k%d", i), moment, all, strings.Fields(what.arguments))
		})
	}
}

// TestNothingOutlivesAKilledCorpus kills fencelab while it builds controllers with a mistake.
func TestNothingOutlivesAKilledCorpus(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	corpus := exec.Command("/proc/self/exe", "corpus", "scenarios/catalog/regression/nhc-338-one-name-for-another.yaml")
	corpus.Args[0], corpus.Env = clone.Command, append(os.Environ(), "TMPDIR="+tmp)
	if err := corpus.Start(); err != nil {
		t.Fatal(err)
	}
	defer corpus.Wait()
	defer corpus.Process.Kill()
	building := func() bool {
		found, _ := filepath.Glob(filepath.Join(tmp, "fencelab-corpus-*", "*.json"))
		return len(found) > 0
	}
	if !await(scriptPatience, nil, building) {
		t.Fatalf("it builds nothing: %q", names(t, tmp))
	}
	if err := corpus.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	left := func() []string {
		found, _ := filepath.Glob(filepath.Join(tmp, "fencelab-*"))
		return append(found, processesOf(tmp)...)
	}
	if !await(scriptPatience, nil, func() bool { return len(left()) == 0 }) {
		t.Fatalf("left after it was killed:\n%s", strings.Join(left(), "\n"))
	}
}

// failing lists the suites of make e2e, each with a check that fails while something that the suite
// has started is up. It gives a line of the suite's source and its replacement; choose selects the
// tests to run.
var failing = []struct {
	suites, choose    string
	file, line, fails string
	test              string // as the summary names it
}{
	{"stories", "FOCUS=the story of a plain power cycle$$", "lab/e2e_test.go",
		"	outcome, err := play.Run(ctx, plan, lab.New(o), nil)\n	if unsupported",
		"	ctx, stop := context.WithTimeout(ctx, 20*time.Second)\n	defer stop()\n	outcome, err := play.Run(ctx, plan, lab.New(o), nil)\n	if unsupported",
		"of a plain power cycle"},
	{"lab", "RUN=^TestDomainIsASystem$$", "lab/hosts/virtual_test.go",
		"	all, l := openVMs(t)\n	began",
		"	all, l := openVMs(t)\n	up, err := l.NewDomain(vms.HostConfig{Name: \"up\"})\n	if err != nil || up.On(t.Context()) == nil {\n		t.Fatalf(\"it is on, or there is an error: %v\", err)\n	}\n	began",
		"TestDomainIsASystem"},
	{"bmc", "RUN=^TestDomainIsASystem$$", "fakebmc/libvirt/domain_test.go",
		"			m.WantSaid(\"disk\") // and hears the power button\n",
		"			m.WantSaid(\"disk\")\n			t.Fatal(\"it is on\")\n",
		"TestDomainIsASystem"},
	{"command", "RUN=^TestLabsSideBySide$$", "test/process/lab_test.go",
		"	<-victim.done\n	until(",
		"	<-victim.done\n	t.Fatal(\"two labs are up\")\n	until(",
		"TestLabsSideBySide"},
	{"browser", "RUN=^TestPageInABrowser$$", "scenarios/page/browser_test.go",
		"			b := browse(t, \"light\", run)\n			var lanes",
		"			b := browse(t, \"light\", run)\n			t.Fatal(\"the page is open\")\n			var lanes",
		"TestPageInABrowser"},
	{"stories fidelity", "FOCUS=the story of a plain power cycle$$", "ci/fidelity/fidelity_test.go",
		"			plan, err := file.LoadPlanFile(",
		"			t.Fatal(\"it is compared\")\n			plan, err := file.LoadPlanFile(",
		"TestStories"},
}

// TestFailuresFitTheirSource: the checks that are made to fail are there, once.
func TestFailuresFitTheirSource(t *testing.T) {
	for _, f := range failing {
		data, err := os.ReadFile(f.file)
		if n := strings.Count(string(data), f.line); err != nil || n != 1 {
			t.Errorf("%s: %s has the line to fail %d times (%v)", f.suites, f.file, n, err)
		}
	}
}

// TestNothingOutlivesAFailedSuite fails a test of each suite in the middle. The summary names
// it; its slots are free, and nothing is left.
func TestNothingOutlivesAFailedSuite(t *testing.T) {
	if *kills == 0 {
		t.Skip("it runs with make kills")
	}
	for i, f := range failing {
		t.Run(f.suites, func(t *testing.T) {
			dir, tmp := ownDirectory(t, fmt.Sprintf("f%d", i))
			flags := "-overlay=" + withMistake(t, dir, f.file, f.line, f.fails)
			before := onThisMachine(t)
			suites := exec.Command("bin/e2e", strings.Fields(f.suites)...)
			suites.Env = append(os.Environ(), "TMPDIR="+tmp, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" "+flags), f.choose)
			said, err := suites.CombinedOutput()
			// if it is missing, said has the reason
			summary, _ := os.ReadFile("out/e2e/summary.txt")
			if _, failed, _ := strings.Cut(string(summary), "=== FAIL: "); err == nil || !strings.Contains(failed, f.test) {
				t.Errorf("it ended with %v, and its summary doesn't name the test that failed:\n%s\n%s", err, summary, said)
			}
			wantNothingLeft(t, dir, tmp, before)
			ctx, cancel := machine.WithBudget(t.Context(), scriptPatience)
			defer cancel()
			turn, err := slots.Machine().Take(ctx, t.Name(), slots.All, t.Logf)
			if err != nil {
				t.Fatalf("take all slots: %v", err)
			}
			turn.Release()
		})
	}
}

// withMistake makes an overlay for Go's builds that replaces a line of a file, and returns its
// path.
func withMistake(t *testing.T, dir, file, line, fails string) string {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), line); n != 1 {
		t.Fatalf("%s has %d times the lines\n%s", file, n, line)
	}
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, filepath.Base(file))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: own}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	for name, data := range map[string][]byte{own: []byte(strings.Replace(string(source), line, fails, 1)), list: overlay} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// ownDirectory makes a directory for the files of a run, and one in it for its temporary files. Its
// name is short, since QEMU's sockets are below it, whose paths are limited.
func ownDirectory(t *testing.T, name string) (dir, tmp string) {
	t.Helper()
	dir = filepath.Join(os.TempDir(), name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	tmp = filepath.Join(dir, "t")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir, tmp
}

// killedRun kills a run at a moment, with all other processes that are fencelab's if all is set.
func killedRun(t *testing.T, name string, moment time.Duration, all bool, arguments []string) {
	dir, tmp := ownDirectory(t, name)
	before := onThisMachine(t)

	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	run := exec.Command("/proc/self/exe")
	run.Args = append([]string{clone.Command, "run", "--backend", "lab", "--out", filepath.Join(dir, "out")}, arguments...)
	run.Env = append(os.Environ(), "TMPDIR="+tmp)
	run.Stdout, run.Stderr = log, log
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	select {
	case err := <-ended:
		said, _ := os.ReadFile(log.Name())
		if err != nil {
			t.Fatalf("it had ended before, with %v:\n%s", err, said)
		}
		t.Log("it had ended before: all that is shown is that it leaves nothing then")
	case <-time.After(moment):
		t.Logf("killed with %d processes, and in %s: %q", len(processesOf(dir)), tmp, names(t, tmp))
		if err := run.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if all {
			for _, pid := range programsOf(t, dir) {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
			}
		}
		<-ended
	}

	clean := func() {
		down := exec.Command("/proc/self/exe", "lab", "down")
		down.Args[0], down.Env = clone.Command, run.Env
		out, err := down.CombinedOutput()
		t.Logf("lab down: %v\n%s", err, out)
	}
	if all {
		clean()
	}
	if wantNothingLeft(t, dir, tmp, before) {
		return
	}
	said, _ := os.ReadFile(log.Name())
	t.Errorf("it had said:\n%s", said)
	clean()
	if found := leftIn(t, dir, tmp, before); len(found) > 0 {
		t.Errorf("left even after fencelab lab down:\n%s", strings.Join(found, "\n"))
	}
}

// leftIn lists processes that name a directory, what is in its directory of temporary files, and
// what is on the machine that was not there before.
func leftIn(t *testing.T, dir, tmp string, before []string) []string {
	t.Helper()
	found := append(processesOf(dir), names(t, tmp)...)
	for _, thing := range onThisMachine(t) {
		if _, had := slices.BinarySearch(before, thing); !had {
			found = append(found, thing)
		}
	}
	return found
}

// wantNothingLeft waits until nothing is left, and reports whether that came.
func wantNothingLeft(t *testing.T, dir, tmp string, before []string) bool {
	t.Helper()
	ended := time.Now()
	found := leftIn(t, dir, tmp, before)
	for ; len(found) > 0 && time.Since(ended) < scriptPatience; found = leftIn(t, dir, tmp, before) {
		<-time.After(100 * time.Millisecond)
	}
	if len(found) > 0 {
		t.Errorf("left %v after its end:\n%s", scriptPatience, strings.Join(found, "\n"))
		return false
	}
	t.Logf("nothing was left after %v", time.Since(ended).Round(100*time.Millisecond))
	return true
}

// programsOf are the processes of this program that name a directory: keepers, and controllers of
// their own.
func programsOf(t *testing.T, dir string) (pids []int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes() {
		environment, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.id)) // it may have ended meanwhile
		executable, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.id))
		if p.id != os.Getpid() && executable == self && strings.Contains(p.arguments+string(environment), dir) {
			pids = append(pids, p.id)
		}
	}
	return pids
}

// processesOf returns the processes that name a directory in their arguments or in their
// environment, which children get from their parents.
func processesOf(dir string) (found []string) {
	for _, p := range processes() {
		environment, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.id)) // it may have ended meanwhile
		if p.id != os.Getpid() && strings.Contains(p.arguments+string(environment), dir) {
			found = append(found, fmt.Sprintf("process %d: %.200s", p.id, strings.ReplaceAll(p.arguments, "\x00", " ")))
		}
	}
	return found
}

// made lists what the first lab of a machine makes for all that come after it: the gate's
// directory, the files that libvirt keeps, and whether there is KVM.
var made = []string{
	slots.Machine().Dir, "/run/libvirt", filepath.Join(hosts.DefaultAssets(), "libvirt"), filepath.Join(hosts.DefaultAssets(), "kvm-verdict-"+strconv.Itoa(os.Getuid())),
}

// onThisMachine lists, sorted, what a lab can make outside of its directories and processes:
// mounts, network interfaces, control groups, and what is in the places for such things.
func onThisMachine(t *testing.T) (things []string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		things = append(things, "mount "+strings.TrimSpace(line))
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		things = append(things, "interface "+i.Name)
	}
	err = filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			things = append(things, "control group "+path)
		}
		return nil // it may have gone meanwhile
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{os.TempDir(), "/run", "/run/netns", "/var/lib", "/dev/shm", hosts.DefaultAssets()} {
		for _, name := range names(t, dir) {
			if path := filepath.Join(dir, name); !slices.Contains(made, path) {
				things = append(things, path)
			}
		}
	}
	slices.Sort(things)
	return things
}

// names are the entries of a directory, none where there is no such directory.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
