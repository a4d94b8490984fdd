package keeper

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
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
