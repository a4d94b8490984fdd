package machine

import (
	"context"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func files(content map[string]string) fstest.MapFS {
	root := make(fstest.MapFS)
	for name, text := range content {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return root
}

func TestLook(t *testing.T) {
	const meminfo = "MemTotal:       16777216 kB\nMemFree: 1 kB\n"
	cores := float64(runtime.NumCPU())
	for name, c := range map[string]struct {
		files map[string]string
		want  Size
	}{
		"nothing can be read": {nil, Size{cores, math.MaxInt64}},
		"no limits":           {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, Size{cores, 16 << 30}},
		"second version": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "100000 100000\n",
			"sys/fs/cgroup/a/cpu.max": "50000 100000\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "6442450944\n",
		}, Size{0.5, 6 << 30}},
		"first version": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "3:memory:/m\n2:cpu,cpuacct:/c\n0::/\n",
			"sys/fs/cgroup/cpu/c/cpu.cfs_quota_us": "25000\n", "sys/fs/cgroup/cpu/c/cpu.cfs_period_us": "100000\n", "sys/fs/cgroup/memory/m/memory.limit_in_bytes": "1073741824\n",
		}, Size{0.25, 1 << 30}},
		"a container that sees its own part alone": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/elsewhere/c\n", "sys/fs/cgroup/cpu.max": "75000 100000\n",
		}, Size{0.75, 16 << 30}},
		"no quota": {map[string]string{
			"proc/self/cgroup": "2:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
		}, Size{cores, math.MaxInt64}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Look(files(c.files)); got != c.want {
				t.Errorf("it is %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestAvailable(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing is known": {nil, math.MaxInt64},
		"no limit":         {map[string]string{"proc/meminfo": "MemTotal: 100 kB\nMemAvailable: 60 kB\n", "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/memory.current": "7\n"}, 60 << 10},
		"a limit": {map[string]string{
			"proc/meminfo": "MemAvailable: 60 kB\n", "proc/self/cgroup": "0::/run\n", "sys/fs/cgroup/run/memory.max": "1000\n", "sys/fs/cgroup/run/memory.current": "700\n",
			"sys/fs/cgroup/run/memory.stat": "anon 500\ninactive_file 150\nactive_file 50\n",
		}, 450},
		"a limit of version 1": {map[string]string{
			"proc/meminfo": "MemAvailable: 60 kB\n", "proc/self/cgroup": "4:memory:/run\n", "sys/fs/cgroup/memory/run/memory.limit_in_bytes": "1000\n",
			"sys/fs/cgroup/memory/run/memory.usage_in_bytes": "900\n", "sys/fs/cgroup/memory/run/memory.stat": "inactive_file 1\ntotal_inactive_file 200\n",
		}, 300},
	} {
		if got := Available(files(c.files)); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestStalled(t *testing.T) {
	const machine, own = "some avg10=1.00 avg60=0.00 avg300=0.00 total=2000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n", "some avg10=0.00 avg60=0.00 avg300=0.00 total=500000\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  time.Duration
		known bool
	}{
		"the kernel doesn't say": {nil, 0, false},
		"the machine's":          {map[string]string{"proc/pressure/cpu": machine}, 2 * time.Second, true},
		"the cgroup's":           {map[string]string{"proc/pressure/cpu": machine, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.pressure": own}, 500 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got, known := Stalled(files(c.files)); got != c.want || known != c.known {
				t.Errorf("it is %v, %t, want %v, %t", got, known, c.want, c.known)
			}
		})
	}
}

// TestMeter: a budget grows with what was measured last, and never shrinks below what suffices.
func TestMeter(t *testing.T) {
	var m meter
	if got := m.slowness(); got != 1 {
		t.Errorf("before anything is measured it is %v", got)
	}
	m.note(0.5)
	if got := m.slowness(); got != 1 {
		t.Errorf("of a quick machine it is %v", got)
	}
	for range remembered {
		m.note(3)
	}
	if got := m.slowness(); got != 3 {
		t.Errorf("once all that counts was three times as slow it is %v", got)
	}
}

// TestPatience: progress renews it, and time counts less on a machine that is slow.
func TestPatience(t *testing.T) {
	p := NewPatience(time.Minute)
	now := p.looked
	for i, step := range []struct {
		seen     string
		after    time.Duration
		slowness float64
		over     bool
	}{
		{"a", time.Second, 1, false},
		{"a", 50 * time.Second, 1, false},
		{"b", 20 * time.Second, 1, false}, // it would have been over
		{"b", 59 * time.Second, 1, false},
		{"b", 3 * time.Second, 4, false},
		{"b", time.Second, 1, true},
		{"b", time.Second, 1, true},
	} {
		now = now.Add(step.after)
		if got := p.over(step.seen, now, step.slowness); got != step.over {
			t.Errorf("step %d: it is over: %t", i, got)
		}
	}
}

// TestWithBudget: it ends by itself, and says why.
func TestWithBudget(t *testing.T) {
	ctx, cancel := WithBudget(t.Context(), 20*time.Millisecond)
	defer cancel()
	<-ctx.Done()
	if cause := context.Cause(ctx); cause == nil || !strings.HasPrefix(cause.Error(), "no success within 20ms, which are longer") {
		t.Errorf("it ended because %v", cause)
	}
	early, stop := WithBudget(t.Context(), time.Hour)
	stop()
	if cause := context.Cause(early); cause != context.Canceled {
		t.Errorf("one that was stopped ended because %v", cause)
	}
}

func TestMeasure(t *testing.T) {
	if p := Measure(); p.Slow <= 0 || p.Got <= 0 || p.Got > 1 {
		t.Errorf("it is %+v", p)
	}
}
