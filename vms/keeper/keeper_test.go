package keeper

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const ownerVariable = "KEEPER_TEST_OWNER"

func TestMain(m *testing.M) {
	Main()
	if os.Getenv(ownerVariable) != "" {
		own()
	}
	os.Exit(m.Run())
}

// own is the process that gets killed: it makes a directory, and a shell with a child of its own,
// and reports them.
func own() {
	k, err := Start()
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	dir, err := k.TempDir("fencelab-test")
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600)
	cmd := exec.Command("sh", "-c", "sleep 1000 & echo $$ $! $0; wait", dir)
	cmd.Env = append(os.Environ(), k.Mark())
	cmd.Stdout = os.Stdout
	cmd.Run()
}

func TestNothingOutlivesAKilledOwner(t *testing.T) {
	owner := exec.Command("/proc/self/exe")
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	owner.Stderr = os.Stderr
	// The pipe ends only when the owner, its keeper's children and so every marked process have let
	// go of it.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	owner.Stdout = w
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	out := bufio.NewScanner(r)
	out.Scan()
	var shell, sleep int
	var dir string
	if _, err := fmt.Sscan(out.Text(), &shell, &sleep, &dir); err != nil {
		t.Fatalf("owner said %q: %v", out.Text(), err)
	}
	keeper := keeperOf(t, owner.Process.Pid)
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	owner.Wait()
	for out.Scan() {
	}
	awaitExit(t, keeper)
	for _, pid := range []int{shell, sleep} {
		if environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil && strings.Contains(string(environ), markVariable+"=") {
			t.Errorf("process %d outlives its killed owner", pid)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("directory %s outlives its killed owner (stat: %v)", dir, err)
	}
}

// keeperOf opens the keeper child of a process, as a pidfd, before that process dies and the link
// between them is lost.
func keeperOf(t *testing.T, owner int) (pidfd int) {
	t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		stat, _ := os.ReadFile(path)
		var pid, parent int
		var name, state string
		fmt.Sscan(string(stat), &pid, &name, &state, &parent)
		args, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if parent == owner && strings.HasPrefix(string(args), "fencelab-keeper") {
			pidfd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				t.Fatal(err)
			}
			return pidfd
		}
	}
	t.Fatalf("process %d has no keeper", owner)
	return -1
}

// awaitExit waits for a process that isn't our child: its pidfd becomes readable.
func awaitExit(t *testing.T, pidfd int) {
	t.Helper()
	defer unix.Close(pidfd)
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		switch _, err := unix.Poll(fds, -1); err {
		case nil:
			return
		case unix.EINTR:
		default:
			t.Fatal(err)
		}
	}
}

func TestCloseCleansAndReports(t *testing.T) {
	k, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := k.TempDir("keeper-test")
	if err != nil {
		t.Fatal(err)
	}
	marked, argued, other := exec.Command("sleep", "1000"), exec.Command("sh", "-c", "read x", "unix:"+dir+"/x"), exec.Command("sleep", "1000")
	marked.Env = append(os.Environ(), "KEEPER_TEST_HOME="+dir+"/x")
	if _, err := argued.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []*exec.Cmd{marked, argued, other} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	defer other.Wait()
	defer other.Process.Kill()
	for _, mark := range []string{"KEEPER_TEST_HOME=" + dir, "unix:" + dir} {
		if err := k.KillMarked(mark); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	for _, cmd := range []*exec.Cmd{marked, argued} {
		if cmd.Wait(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("%v wasn't killed: %v", cmd, cmd.ProcessState)
		}
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a process without a mark was touched: %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("directory %s is left (stat: %v)", dir, err)
	}
	if _, err := k.TempDir("late"); err == nil {
		t.Error("a closed keeper makes directories")
	}
}

func TestRefusesDangerousDuties(t *testing.T) {
	k, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for _, mark := range []string{"", "PATH", "HOME=", "XDG_CACHE_HOME=/"} {
		if err := k.KillMarked(mark); err == nil {
			t.Errorf("accepted the mark %q", mark)
		}
	}
	for _, prefix := range []string{"", "../x", "/etc", "a/b"} {
		if dir, err := k.TempDir(prefix); err == nil {
			t.Errorf("made %s of the prefix %q", dir, prefix)
		}
	}
}
