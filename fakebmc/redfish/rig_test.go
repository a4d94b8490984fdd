package redfish_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
)

const s = time.Second

// patience is how long a test waits for what happens by itself: longer than it takes
// on the slowest machine, and shorter than go test's own limit, which would tell
// nothing.
const patience = 30 * time.Second

// eventually fails with a sentence if something that must become true doesn't.
func eventually(t testing.TB, sentence func() string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("after %v %s", patience, sentence())
		}
	}
}

// said is a sentence that is the same whenever it is asked for.
func said(format string, args ...any) func() string {
	return func() string { return fmt.Sprintf(format, args...) }
}

// next is the next value of a channel.
func next[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("after %v there is still no %s", patience, what)
		panic("unreachable")
	}
}

// fixed is a System that costs nothing.
type fixed struct{}

func (fixed) PowerState() (fakebmc.PowerState, error) { return fakebmc.On, nil }
func (fixed) Reset(fakebmc.ResetType) error           { return nil }
