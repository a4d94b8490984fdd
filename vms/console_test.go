//go:build cgo && libvirt_dlopen

package vms

import (
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// TestConsoles: a line has the time at which its beginning was seen, even if it grows later. The
// last line needs no end. Earlier contents of a file count for no guest.
func TestConsoles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "worker-1.console")
	write := func(text string) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = file.WriteString(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	var now atomic.Int64
	c := followConsoles(func() time.Duration { return time.Duration(now.Load()) })
	write("an earlier run\n")
	c.add("worker-1", path)
	c.add("worker-2", path+".absent")
	now.Store(1)
	write("fencelab guest runs\r\n[ 1.0] soft")
	c.look()
	now.Store(2)
	write("dog: fired\nlast")
	c.look()
	now.Store(3)
	write(" words")
	c.close()
	want := []ConsoleLine{{1, "worker-1", "fencelab guest runs"}, {1, "worker-1", "[ 1.0] softdog: fired"}, {2, "worker-1", "last words"}}
	if !slices.Equal(c.lines, want) {
		t.Errorf("the lines are %v\nwant %v", c.lines, want)
	}
}
