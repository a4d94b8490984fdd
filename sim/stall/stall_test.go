package stall

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// blocking is an environment variable that makes TestNeverBack block.
const blocking = "FENCELAB_TEST_BLOCKING"

// TestNeverBack: a reconcile that waits for something that the simulator doesn't have ends the
// program with a report of where it waits, instead of for ever.
func TestNeverBack(t *testing.T) {
	if os.Getenv(blocking) != "" {
		limit = 1
		m := New("stall.below")
		m.Go()
		below()
		m.Back()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNeverBack$")
	cmd.Env = append(os.Environ(), blocking+"=1")
	said, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("it came to an end:\n%s", said)
	}
	for _, want := range []string{"fencelab: a reconcile does not come back", "stall.waitsForNobody(", "let it wait for nothing but"} {
		if !strings.Contains(string(said), want) {
			t.Errorf("it doesn't say %q:\n%s", want, said)
		}
	}
	if strings.Contains(string(said), "testing.") {
		t.Errorf("it shows what is none of the user's business:\n%s", said)
	}
}

//go:noinline
func below() { waitsForNobody() }

//go:noinline
func waitsForNobody() { <-make(chan struct{}) }
