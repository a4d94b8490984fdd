package vms

import (
	"os"
	"path/filepath"
	"testing"
)

func TestKeepFiles(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "deep", "cache")
	write := func(dir, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := func(name, text string) {
		t.Helper()
		if got, err := os.ReadFile(filepath.Join(to, name)); string(got) != text {
			t.Errorf("%s has %q (%v), want %q", name, got, err, text)
		}
	}
	write(from, "a.xml", "1")
	write(from, "b.xml", "2")
	keepFiles(from, to)
	write(from, "b.xml", "3")
	write(to, "c.xml", "4") // another lab's
	keepFiles(from, to)
	want("a.xml", "1")
	want("b.xml", "3")
	want("c.xml", "4")
	if left, err := filepath.Glob(filepath.Join(to, ".new-*")); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
	if info, err := os.Stat(filepath.Join(to, "a.xml")); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("other users cannot read what is kept: %v, %v", info.Mode(), err)
	}
	// Where nothing can be kept, nothing fails.
	keepFiles(from, "/proc/nowhere")
	keepFiles("/nowhere", to)
}
