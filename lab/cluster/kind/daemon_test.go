package kind

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/vms/keeper"
)

// TestFavour: a daemon's containers get the share that our priority is worth, as hosts do, and not
// that of a nice value of 0.
func TestFavour(t *testing.T) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || !inNone(string(groups)) {
		t.Skip("this process is in a cgroup with a share of its own")
	}
	runtime.LockOSThread() // never unlocked: its priority ends with it
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, -10); err != nil {
		t.Skip("a higher priority takes a capability: ", err)
	}
	k, err := keeper.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	cgroup, err := k.Cgroup()
	if err != nil {
		t.Fatal(err)
	}
	favour(cgroup)
	found := false
	for file, want := range map[string]string{"/sys/fs/cgroup/cpu/*/cpu.shares": "9536", "/sys/fs/cgroup/*/cpu.weight.nice": "-10"} {
		value, err := os.ReadFile(strings.Replace(file, "/*", cgroup, 1))
		if os.IsNotExist(err) {
			continue // cgroups of the other version
		}
		found = true
		if got := strings.TrimSpace(string(value)); err != nil || got != want {
			t.Errorf("%s is %q, want %s (%v)", file, got, want, err)
		}
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} { // where that is no cgroup, too
		if left, _ := filepath.Glob(pattern + cgroup); left != nil {
			t.Errorf("%s are left", left)
		}
	}
	if !found {
		t.Skip("no hierarchy of cgroups that this user may write to")
	}
}

func TestInNone(t *testing.T) {
	for groups, want := range map[string]bool{
		"1:cpu:/\n0::/\n":                           true,
		"3:cpu,cpuacct:/\n1:pids:/docker/a\n":       true,
		"3:cpu,cpuacct:/docker/a\n0::/\n":           false,
		"2:cpuset:/\n1:cpuacct:/\n0::/user.slice\n": false,
		"0::/\n": true,
		"0::/user.slice/user-0.slice/session-1.scope\n": false,
		"": false,
	} {
		if got := inNone(groups); got != want {
			t.Errorf("inNone(%q) is %t", groups, got)
		}
	}
}
