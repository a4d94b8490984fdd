package keeper

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSweepDoesTheWorkOfKilledKeepers kills the keepers of a process, and then that process.
func TestSweepDoesTheWorkOfKilledKeepers(t *testing.T) {
	const name = "abcdefgh"
	dir, err := os.MkdirTemp("", "keeper-test-"+name+"-*")
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.MkdirTemp("", "keeper-test-hgfedcba-*")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(other)
	start := func(entry string) *exec.Cmd {
		cmd := exec.Command("sleep", "1000")
		cmd.Env = append(os.Environ(), entry)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	marked, described := start(markOf(name)+"drawn"), start("HOME="+dir+"/x")
	looking, stranger := start("KUBECONFIG="+dir+"/kubeconfig"), start(markOf("hgfedcba")+"drawn")
	for _, cmd := range []*exec.Cmd{looking, stranger} {
		defer cmd.Wait()
		defer cmd.Process.Kill()
	}
	if err := Sweep(name, func(dir string) []string { return []string{"HOME=" + dir + "/"} }); err != nil {
		t.Error(err)
	}
	for _, cmd := range []*exec.Cmd{marked, described} {
		if cmd.Wait(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("a process with the mark %s wasn't killed: %v", cmd.Env[len(cmd.Env)-1], cmd.ProcessState)
		}
	}
	for _, cmd := range []*exec.Cmd{looking, stranger} {
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("a process with %s was touched: %v", cmd.Env[len(cmd.Env)-1], err)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left (stat: %v)", dir, err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("the directory of another process was touched: %v", err)
	}
}

func TestSweepWantsAName(t *testing.T) {
	for _, name := range []string{"", "*", "abc", "abcdefg/", "ABCDEFGH", strings.Repeat("a", 9)} {
		if err := Sweep(name, func(string) []string { return nil }); err == nil {
			t.Errorf("swept what is left of %q", filepath.Join(name))
		}
	}
}

// TestLeft: what a process has left that was killed together with its keeper is found, and nothing
// of one that lives, with its keeper or without.
func TestLeft(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	start := func() (owner *exec.Cmd, keeper int, marked [2]int, dir string) {
		owner = exec.Command("/proc/self/exe")
		owner.Env = append(os.Environ(), ownerVariable+"=1")
		out, err := owner.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := owner.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fscan(out, &marked[0], &marked[1], &dir); err != nil {
			t.Fatal(err)
		}
		return owner, keeperOf(t, owner.Process.Pid), marked, dir
	}
	left := func(want ...string) {
		t.Helper()
		if got, err := Left(); err != nil || !slices.Equal(got, want) {
			t.Errorf("left is what %v had, %v; want %v", got, err, want)
		}
	}
	living, livingKeeper, _, _ := start()
	owner, keeper, marked, dir := start()
	name := strings.Split(filepath.Base(dir), "-")[2]
	left()
	for _, pidfd := range []int{keeper, livingKeeper} {
		if err := unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1); err != nil { // it has ended
			t.Fatal(err)
		}
	}
	left()
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = owner.Process.Wait() // its output is still open, as a killed owner leaves it
	left(name)
	if err := Sweep(name, func(string) []string { return nil }); err != nil {
		t.Error(err)
	}
	left()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left (stat: %v)", dir, err)
	}
	for _, pid := range marked {
		if environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil && strings.Contains(string(environ), markVariable+"=") {
			t.Errorf("process %d is left", pid)
		}
	}
	_ = living.Process.Kill()
	_, _ = living.Process.Wait()
	names, err := Left()
	if err != nil || len(names) != 1 {
		t.Fatalf("left is what %v had, %v; want one", names, err)
	}
	if err := Sweep(names[0], func(string) []string { return nil }); err != nil {
		t.Error(err)
	}
}
