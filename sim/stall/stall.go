// Package stall watches code of the simulation by the clock of the machine, because the
// simulator's own clock stands still while that code runs. Its findings never reach a history.
package stall

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// limit is how many seconds code may run before it counts as stalled.
var limit int64 = 60

// A Mark records whether some code is running that must return. One goroutine at a time calls its
// methods, while the watch reads it.
type Mark struct {
	// Timed makes it measure durations, which costs a little.
	Timed bool
	// since is when the code was last resumed, in the watch's seconds; 0 while it is suspended.
	since atomic.Int64
	// began and took are by the clock of the machine, and lost is how late its pulse was by then.
	began time.Time
	took  time.Duration
	lost  int64
}

// Go notes that the code runs, until Back notes that it has returned.
func (m *Mark) Go() {
	if m.since.Store(watch.seconds.Load()); m.Timed {
		pulse.once.Do(func() { go beat() })
		m.began, m.lost = time.Now(), pulse.late.Load()
	}
}

// Back ends the period that Go began.
func (m *Mark) Back() {
	if m.since.Store(0); m.Timed {
		m.took = time.Since(m.began) - time.Duration(pulse.late.Load()-m.lost)
	}
}

// pulse beats beside the code that is timed. On a machine that has other work it is late as well,
// and that time is not the code's.
var pulse struct {
	once sync.Once
	late atomic.Int64
}

// interval is that of the pulse, and irregular how late it may be without a reason.
const interval, irregular = 10 * time.Millisecond, 10 * time.Millisecond

func beat() {
	for {
		before := time.Now()
		time.Sleep(interval)
		if late := time.Since(before) - interval; late > irregular {
			pulse.late.Add(int64(late))
		}
	}
}

// Took returns the duration of the last period that was timed, without what the machine lost.
func (m *Mark) Took() time.Duration { return m.took }

// watch watches all marks of this process.
var watch struct {
	once sync.Once
	// seconds counts while the machine runs.
	seconds atomic.Int64
	mu      sync.Mutex
	all     []weak.Pointer[Mark]
	below   string
}

// New returns a mark under watch. If the marked code doesn't return for a minute, nothing can stop
// it, so the program ends with its stack, down to the function called below.
func New(below string) *Mark {
	watch.once.Do(func() {
		watch.seconds.Store(1)
		watch.below = below
		go func() {
			for range time.Tick(time.Second) {
				if anyLost(watch.seconds.Add(1)) {
					fmt.Fprint(os.Stderr, "fencelab: a reconcile does not come back, and the simulator can't go on without it:\n"+stacks()+
						"let it wait for nothing but its client, its BMC and what it asks to run again after\n")
					os.Exit(2)
				}
			}
		}()
	})
	m := new(Mark)
	watch.mu.Lock()
	defer watch.mu.Unlock()
	watch.all = append(watch.all, weak.Make(m))
	return m
}

func anyLost(now int64) bool {
	watch.mu.Lock()
	defer watch.mu.Unlock()
	watch.all = slices.DeleteFunc(watch.all, func(m weak.Pointer[Mark]) bool { return m.Value() == nil })
	return slices.ContainsFunc(watch.all, func(m weak.Pointer[Mark]) bool {
		running := m.Value()
		if running == nil {
			return false
		}
		since := running.since.Load()
		return since > 0 && now-since > limit
	})
}

// stacks returns the stacks of the running code, without the frames beneath it.
func stacks() string {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	var found strings.Builder
	for _, goroutine := range strings.Split(string(all), "\n\n") {
		head, _, _ := strings.Cut(goroutine, "\n")
		if above, _, ok := strings.Cut(goroutine, watch.below+"("); ok && !strings.Contains(head, "[coroutine") {
			found.WriteString(above)
		}
	}
	return found.String()
}
