package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// TestRelay passes on what a Pod writes line by line, however it comes, and says itself that it is
// gone.
func TestRelay(t *testing.T) {
	var lines []string
	for _, l := range []evidence.Line{
		{Kind: evidence.WorkloadStarted, Process: "exclusive", Detail: "pod-1", Boot: "boot-1"},
		{Kind: evidence.Heartbeat, Process: "exclusive", Seq: 1, Boot: "boot-1"},
	} {
		text, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(text))
	}
	whole := strings.Join(lines, "\n") + "\n"
	for _, size := range []int{1, 7, len(whole)} {
		port := new(writes)
		r := &relay{out: &witness{port: port, boot: "boot-1"}, said: map[string]string{}}
		for rest := []byte(whole + `{"kind": "heartb`); len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if _, err := r.Write(rest[:min(size, len(rest))]); err != nil {
				t.Fatal(err)
			}
		}
		r.end()
		var said []string
		for _, w := range *port {
			var l evidence.Line
			if err := json.Unmarshal([]byte(w), &l); err != nil || strings.Count(w, "\n") != 1 {
				t.Fatalf("one write is %q (%v), want a line", w, err)
			}
			said = append(said, string(l.Kind)+" "+l.Process+" "+l.Detail+" "+l.Boot)
		}
		want := "workload-started exclusive pod-1 boot-1\nheartbeat exclusive  boot-1\nworkload-stopped exclusive pod-1 boot-1"
		if got := strings.Join(said, "\n"); got != want {
			t.Errorf("in pieces of %d:\n%s\nwant\n%s", size, got, want)
		}
	}
	if _, err := (&relay{}).Write([]byte("nonsense\n")); err == nil {
		t.Error("took nonsense for evidence")
	}
}

type writes []string

func (w *writes) Write(data []byte) (int, error) {
	*w = append(*w, string(bytes.Clone(data)))
	return len(data), nil
}

// TestAwaitEnd distinguishes a process that is gone from one that has only hung up.
func TestAwaitEnd(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	over := make(chan error, 1)
	go func() { over <- pidfd(fd).awaitEnd() }()
	select {
	case err := <-over:
		t.Errorf("it is said to be gone, and sleeps (%v)", err)
	case <-time.After(20 * time.Millisecond):
	}
	if err := cmd.Process.Signal(os.Kill); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
	cmd.Wait()
}
