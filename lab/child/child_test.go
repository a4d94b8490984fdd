package child

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func startShell(t *testing.T, script string) *Process {
	t.Helper()
	p, err := Start("shell", exec.Command("sh", "-c", script), filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		<-p.Exited()
	})
	return p
}

func TestStopEndsAPausedProcess(t *testing.T) {
	p := startShell(t, "exec sleep 1000")
	for range 2 { // the second time it stands still already
		if err := p.Pause(); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	select {
	case <-p.Exited():
	default:
		t.Error("stop returned before the end of the process")
	}
	if err := (*Process)(nil).Stop(); err != nil {
		t.Errorf("stop what was never started: %v", err)
	}
}

func TestKillNeedsNoGoodWill(t *testing.T) {
	p := startShell(t, "trap '' TERM; while :; do sleep 0.1; done")
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it has ended
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		<-p.Exited()
	}
	if err := p.Failure(); !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("a killed process: %v", err)
	}
}

// A shell that starts a command stands still until that has its own program (vfork), and one that
// was stopped before never has.
func TestPauseOfWhatStartsCommands(t *testing.T) {
	p := startShell(t, "while :; do /bin/true; done")
	for range 300 {
		paused := make(chan error)
		go func() { paused <- p.Pause() }()
		select {
		case err := <-paused:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("it does not come to stand still")
		}
		if err := p.Resume(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStopTellsWhatEndedBefore(t *testing.T) {
	p := startShell(t, "echo first; seq 100; echo 'disk is full' >&2; exit 3")
	select {
	case <-p.Exited():
	case <-time.After(time.Minute):
		t.Fatal("the shell goes on")
	}
	err := p.Stop()
	if err == nil || !strings.Contains(err.Error(), "shell ended by itself (exit status 3)") || !strings.Contains(err.Error(), "100\ndisk is full") {
		t.Errorf("stop: %v", err)
	}
	if err != nil && strings.Contains(err.Error(), "first") {
		t.Errorf("more than the last lines:\n%v", err)
	}
}

func TestStartNamesWhatIsMissing(t *testing.T) {
	_, err := Start("etcd", exec.Command("/nowhere/etcd"), filepath.Join(t.TempDir(), "log"))
	if err == nil || !strings.Contains(err.Error(), "start etcd: ") || !strings.Contains(err.Error(), "/nowhere/etcd") {
		t.Errorf("start: %v", err)
	}
}

// TestOffspring: what a process has started stands still with it, goes on with it, and ends with
// it, however it ends.
func TestOffspring(t *testing.T) {
	const script = "sleep 1000 & echo $!; "
	for _, c := range []struct {
		name, script string
		end          func(*Process) error
	}{
		{"killed", script + "wait", (*Process).Kill},
		{"killed while it stands still", script + "wait", func(p *Process) error { return errors.Join(p.Pause(), p.Kill()) }},
		{"stopped", script + "wait", (*Process).Stop},
		{"ended by itself", script + "sleep 0.5", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := startShell(t, c.script)
			pid := ""
			eventually(t, "the process of a process", func() bool {
				pid = strings.TrimSpace(string(p.Tail()))
				return pid != ""
			})
			if c.end != nil {
				if err := p.Pause(); err != nil {
					t.Fatal(err)
				}
				eventually(t, "a pause of it", func() bool { return state(pid) == "T" })
				if err := p.Resume(); err != nil {
					t.Fatal(err)
				}
				eventually(t, "an end of the pause", func() bool { return state(pid) == "S" })
				if err := c.end(p); err != nil {
					t.Fatal(err)
				}
			}
			<-p.Exited()
			// Whoever adopted it may not have reaped it.
			eventually(t, "its end", func() bool { return state(pid) == "" || state(pid) == "Z" })
		})
	}
}

// state is the letter that the kernel has for what a process does; none for one that is gone.
func state(pid string) string {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:1]
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for %s", what)
		}
	}
}
