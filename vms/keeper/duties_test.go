package keeper

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommandsAreExecutedAtTheEnd also shows that a failing command is reported.
func TestCommandsAreExecutedAtTheEnd(t *testing.T) {
	k, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "done")
	if err := k.Do([]string{"FILE=" + file}, "/bin/sh", "-c", `echo "$0" >"$FILE"`, "our word"); err != nil {
		t.Fatal(err)
	}
	if err := k.Do(nil, "/bin/sh", "-c", "echo no daemon there; exit 3"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("it was executed before the end (stat: %v)", err)
	}
	if err := k.Close(); err == nil || !strings.Contains(err.Error(), "no daemon there") {
		t.Errorf("the command that failed: %v", err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "our word\n" {
		t.Errorf("the command wrote %q: %v", text, err)
	}
}

// TestCgroupsAreRemoved is about those of a keeper, and of one that was killed.
func TestCgroupsAreRemoved(t *testing.T) {
	hierarchy := ""
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/pids"} {
		probe := filepath.Join(dir, cgroupOf(Name()))
		if os.Mkdir(probe, 0o755) == nil && os.Remove(probe) == nil {
			if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
				hierarchy = dir
			}
		}
	}
	if hierarchy == "" {
		t.Skip("no hierarchy of cgroups that this user may write to")
	}
	populate := func(path string) string {
		path = filepath.Join(hierarchy, path)
		for _, below := range []string{"container/kubelet", "container/system.slice"} {
			if err := os.MkdirAll(filepath.Join(path, below), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	other := populate(cgroupOf("hgfedcba"))
	defer Sweep("hgfedcba", func(string) []string { return nil })
	k, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	path, err := k.Cgroup()
	if err != nil {
		t.Fatal(err)
	}
	ours := populate(path)
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	left := populate(cgroupOf("abcdefgh"))
	if err := Sweep("abcdefgh", func(string) []string { return nil }); err != nil {
		t.Error(err)
	}
	for _, path := range []string{ours, left} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left (stat: %v)", path, err)
		}
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("the cgroups of another process were touched: %v", err)
	}
}
