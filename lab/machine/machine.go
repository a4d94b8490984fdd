// Package machine measures what this machine gives a program: its cores and its memory, as far as
// the program's cgroups let it have them; how busy its cores are; and how slow it is now, by work
// that is always the same.
//
// A test that waits takes its budget from [Budget]: what is slow on a machine that is slow has not
// failed.
package machine

import (
	"cmp"
	"fmt"
	"io/fs"
	"math"
	"path"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Size is a program's share of the machine.
type Size struct {
	Cores  float64
	Memory int64 // bytes
}

// Look reads the size from the root of a file system, which is this machine's but in tests. A limit
// that can't be read is none.
func Look(root fs.FS) Size {
	size := Size{Cores: float64(runtime.NumCPU()), Memory: meminfo(root, "MemTotal")}
	for _, dir := range groups(root, "cpu") {
		size.Cores = min(size.Cores, quota(root, dir))
	}
	for _, dir := range groups(root, "memory") {
		for _, file := range []string{"memory.max", "memory.limit_in_bytes"} {
			if limit, err := strconv.ParseInt(read(root, path.Join(dir, file)), 10, 64); err == nil { // "max" is none
				size.Memory = min(size.Memory, limit)
			}
		}
	}
	return size
}

func (s Size) String() string {
	return fmt.Sprintf("%s cores and %.0f GiB", strconv.FormatFloat(s.Cores, 'f', -1, 64), float64(s.Memory)/(1<<30))
}

func read(root fs.FS, name string) string {
	text, _ := fs.ReadFile(root, name) // what isn't there says nothing
	return strings.TrimSpace(string(text))
}

// meminfo is a line of proc/meminfo (proc_meminfo(5)) in bytes; one that isn't there is no bound.
func meminfo(root fs.FS, name string) int64 {
	for line := range strings.Lines(read(root, "proc/meminfo")) {
		words := strings.Fields(line)
		if len(words) > 1 && words[0] == name+":" {
			if kib, err := strconv.ParseInt(words[1], 10, 64); err == nil {
				return kib << 10
			}
		}
	}
	return math.MaxInt64
}

// groups are the directories of this process's cgroup that has a controller, and of those around
// it. In a container that knows only its own part of the tree, that is the root.
func groups(root fs.FS, controller string) (dirs []string) {
	for line := range strings.Lines(read(root, "proc/self/cgroup")) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, inside, _ := strings.Cut(rest, ":")
		top := "sys/fs/cgroup"
		switch {
		case controllers == "":
		case strings.Contains(","+controllers+",", ","+controller+","):
			top = path.Join(top, controller)
		default:
			continue
		}
		for dir := path.Join(top, inside); ; dir = path.Dir(dir) {
			dirs = append(dirs, dir)
			if dir == top || dir == "." {
				break
			}
		}
	}
	return dirs
}

// Available is how much memory a program may still use, in bytes: what the machine could give, and
// no more than its cgroups let it have. What files have in memory can be taken back, and isn't
// counted.
func Available(root fs.FS) int64 {
	available := meminfo(root, "MemAvailable")
	for _, dir := range groups(root, "memory") {
		for _, files := range [][3]string{{"memory.max", "memory.current", "inactive_file "}, {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "}} {
			limit, err := strconv.ParseInt(read(root, path.Join(dir, files[0])), 10, 64) // "max" is none
			used, usedErr := strconv.ParseInt(read(root, path.Join(dir, files[1])), 10, 64)
			if err != nil || usedErr != nil {
				continue
			}
			for line := range strings.Lines(read(root, path.Join(dir, "memory.stat"))) {
				if text, ok := strings.CutPrefix(strings.TrimSpace(line), files[2]); ok {
					if files, err := strconv.ParseInt(text, 10, 64); err == nil {
						used -= files
					}
				}
			}
			available = min(available, limit-used)
		}
	}
	return available
}

// quota returns the number of cores that a cgroup grants its processes.
func quota(root fs.FS, dir string) float64 {
	words := strings.Fields(cmp.Or(read(root, path.Join(dir, "cpu.max")),
		read(root, path.Join(dir, "cpu.cfs_quota_us"))+" "+read(root, path.Join(dir, "cpu.cfs_period_us"))))
	if len(words) != 2 {
		return math.Inf(1)
	}
	quota, err := strconv.ParseFloat(words[0], 64) // "max" and -1 are none
	period, periodErr := strconv.ParseFloat(words[1], 64)
	if err != nil || periodErr != nil || quota <= 0 || period <= 0 {
		return math.Inf(1)
	}
	return quota / period
}

// Stalled is how long, in all, something that could run has waited for a core, in this process's
// cgroup or else on the whole machine (pressure stall information). It reports false where the
// kernel doesn't say.
func Stalled(root fs.FS) (time.Duration, bool) {
	files := []string{"proc/pressure/cpu"}
	if own := groups(root, "cpu"); len(own) > 0 {
		files = []string{path.Join(own[0], "cpu.pressure"), files[0]}
	}
	for _, file := range files {
		for line := range strings.Lines(read(root, file)) {
			_, total, found := strings.Cut(strings.TrimSpace(line), "total=")
			if micros, err := strconv.ParseInt(total, 10, 64); found && err == nil && strings.HasPrefix(line, "some ") {
				return time.Duration(micros) * time.Microsecond, true
			}
		}
	}
	return 0, false
}
