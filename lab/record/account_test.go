package record

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestAccount: what a child takes is the phase's in which it takes it, under its own name.
func TestAccount(t *testing.T) {
	account := new(Account)
	account.Enter(ComingUp)
	child := exec.Command("/bin/sh", "-c", "while :; do :; done")
	child.Args[0] = "busy[somebody]"
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Process.Kill()
	spent := func(phase string) float64 {
		for _, s := range account.Spent() {
			if s.Phase == phase && s.Part == "busy" {
				return s.Seconds
			}
		}
		return 0
	}
	for deadline := time.Now().Add(time.Minute); spent(ComingUp) < 0.1; time.Sleep(10 * time.Millisecond) {
		if account.Update(); time.Now().After(deadline) {
			t.Skip("this kernel doesn't list children, or gave ours nothing: ", account.Spent())
		}
	}
	account.Enter(Telling)
	before := spent(ComingUp)
	for spent(Telling) < 0.1 {
		account.Update()
	}
	if now := spent(ComingUp); now != before {
		t.Errorf("a phase that is over went from %v to %v s", before, now)
	}
	if part, _, ok := childAt(child.Process.Pid); !ok || strings.Contains(part, "[") {
		t.Errorf("the child is called %q", part)
	}
}
