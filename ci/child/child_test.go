package child

import (
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
