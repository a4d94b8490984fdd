package machine

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// reference is how long the work takes on the machine that docs/performance.md describes, when
	// nothing else runs there.
	reference = 47500 * time.Microsecond
	// rounds make the work much longer than the time that the kernel gives a process in one go: who
	// has slept goes first for that long, and a shorter piece of work took 1.4 times as long where
	// emulated hosts took six times.
	rounds = 25_000_000
	// interval is from one measurement to the next, of each process that asks.
	interval = 10 * time.Second
	// remembered is how many of them count: a budget is about what was, not about one bad moment.
	remembered = 6
)

// Pace is how slow the machine was at one moment.
type Pace struct {
	// Slow is the time that work took, in multiples of its time on the reference machine.
	Slow float64
	// Got is the share of a core that it got: the rest of the time somebody else had it.
	Got float64
}

// sink keeps the compiler from leaving the work out.
var sink atomic.Uint64

// Measure does the work once.
func Measure() Pace {
	runtime.LockOSThread() // whose time is measured
	defer runtime.UnlockOSThread()
	began, before := time.Now(), spent()
	x := uint64(began.UnixNano()) | 1
	for range rounds {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	sink.Store(x)
	took, had := time.Since(began), spent()-before
	return Pace{Slow: took.Seconds() / reference.Seconds(), Got: min(1, had.Seconds()/took.Seconds())}
}

// rusageThread is RUSAGE_THREAD of getrusage(2).
const rusageThread = 1

// spent returns the processor time that this thread has used.
func spent() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(rusageThread, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// meter measures continuously from the first request on.
type meter struct {
	start sync.Once
	mu    sync.Mutex
	last  []float64
}

var global meter

func (m *meter) note(slow float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = append(m.last[max(0, len(m.last)-remembered+1):], slow)
}

// slowness is the mean of what was measured last, and never less than 1: no budget is smaller for a
// machine that is quick.
func (m *meter) slowness() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var sum float64
	for _, slow := range m.last {
		sum += slow
	}
	return max(1, sum/float64(max(1, len(m.last))))
}

// Slowness is how many times as long as on the reference machine things take now: at least 1. From
// the first call on it is measured all along.
func Slowness() float64 {
	global.start.Do(func() {
		global.note(Measure().Slow)
		go func() {
			for range time.Tick(interval) {
				global.note(Measure().Slow)
			}
		}()
	})
	return global.slowness()
}

// Budget is a time that suffices on the reference machine, for this one as it is now.
func Budget(enough time.Duration) time.Duration {
	return time.Duration(float64(enough) * Slowness())
}

// Patience is a budget that restarts with every progress: who waits gives up when nothing has moved
// for as long, however long it takes in all. The budget grows while the machine is slow.
type Patience struct {
	enough time.Duration
	last   any
	left   time.Duration
	looked time.Time
}

// NewPatience is the patience of who would wait that long on the reference machine for something to
// move.
func NewPatience(enough time.Duration) *Patience {
	return &Patience{enough: enough, left: enough, looked: time.Now()}
}

// Over reports whether nothing has moved for too long. seen describes the progress so far; any
// change of it counts.
func (p *Patience) Over(seen any) bool { return p.over(seen, time.Now(), Slowness()) }

func (p *Patience) over(seen any, now time.Time, slowness float64) bool {
	passed := now.Sub(p.looked)
	p.looked = now
	if seen != p.last {
		p.last, p.left = seen, p.enough
		return false
	}
	p.left -= time.Duration(float64(passed) / slowness)
	return p.left < 0
}

// Root is this machine's file system.
var Root = os.DirFS("/")

// WithBudget is a context that ends after a time that suffices on the reference machine: on this
// one it lasts longer, by as much as the machine is slower all along. Its cause says so.
func WithBudget(parent context.Context, enough time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	patience := NewPatience(enough)
	go func() {
		tick := time.NewTicker(min(time.Second, enough/10))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if patience.Over(nil) {
				cancel(fmt.Errorf("no success within %v, which are longer on this machine: it is %.1f times as slow as that of docs/performance.md", enough, Slowness()))
				return
			}
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// Sleep reports whether ctx still goes on after a while.
func Sleep(ctx context.Context, d time.Duration) bool {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-ctx.Done():
		return false
	}
}
