package sim

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

// What a controller does that no event of the world tells: it runs without a rest, it takes the time of the machine instead of
// the run's, or it never comes back.

const (
	// restless is how often in a row a reconcile asks to run again at once, while nobody changes anything, before that is
	// worth a note; and at once is within this time.
	restless = 100
	atOnce   = 5 * time.Millisecond
	// slow is for how long a reconcile may keep the simulator from going on, and slowly how often it may be slow: a busy
	// machine lets anything be slow now and then.
	slow   = 200 * time.Millisecond
	slowly = 3
)

// lost is after how many seconds a reconcile is taken for one that never comes back.
var lost int64 = 60

// note says something of the run that is not part of its history, once.
func (w *world) note(text string) {
	if !slices.Contains(w.notes, text) {
		w.notes = append(w.notes, text)
	}
}

// rests notices a request that is asked for again and again, without a rest.
func (p *process) rests(e *entry, after time.Duration) {
	if after > atOnce || p.w.effects != e.effects {
		e.again, e.effects = 0, p.w.effects
		return
	}
	if e.again++; e.again == restless {
		p.w.note(fmt.Sprintf("%s asked %d times in a row to run again about %s within %s, while nothing changed", p.actor.name, restless, e.request.Name, atOnce))
	}
}

// clock is that of the machine, in a run whose manners are looked at; zero in a search, which has no time for that.
func (w *world) clock() time.Time {
	if w.trace == nil {
		return time.Time{}
	}
	return time.Now()
}

// timed notices a reconcile that takes its time: began is when it went on, by the clock of the machine.
func (p *process) timed(began time.Time) {
	if began.IsZero() || time.Since(began) < slow {
		return
	}
	if p.slow++; p.slow == slowly {
		p.w.note(fmt.Sprintf("%s has kept the simulator waiting for more than %s %d times: it sleeps, or computes, by the clock of the machine; take the run's from Deps.Clock", p.actor.name, slow, slowly))
	}
}

// watch looks after all coroutines of this process: one that is not suspended for very long never comes back, and nothing can
// stop it.
var watch struct {
	once sync.Once
	// seconds counts while the machine runs.
	seconds atomic.Int64
	mu      sync.Mutex
	all     []weak.Pointer[coroutine]
}

// watched has a coroutine looked after.
func watched(c *coroutine) {
	watch.once.Do(func() {
		watch.seconds.Store(1)
		go func() {
			for range time.Tick(time.Second) {
				if now := watch.seconds.Add(1); anyLost(now) {
					fmt.Fprint(os.Stderr, "fencelab: a reconcile does not come back, and the simulator can't go on without it:\n"+stacks()+
						"let it wait for nothing but its client, its BMC and what it asks to run again after\n")
					os.Exit(2)
				}
			}
		}()
	})
	watch.mu.Lock()
	defer watch.mu.Unlock()
	watch.all = append(watch.all, weak.Make(c))
}

func anyLost(now int64) bool {
	watch.mu.Lock()
	defer watch.mu.Unlock()
	watch.all = slices.DeleteFunc(watch.all, func(c weak.Pointer[coroutine]) bool { return c.Value() == nil })
	return slices.ContainsFunc(watch.all, func(c weak.Pointer[coroutine]) bool {
		running := c.Value()
		if running == nil {
			return false
		}
		since := running.since.Load()
		return since > 0 && now-since > lost
	})
}

// stacks are those of the reconciles that run, without what lies below them.
func stacks() string {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	var found strings.Builder
	for _, goroutine := range strings.Split(string(all), "\n\n") {
		head, _, _ := strings.Cut(goroutine, "\n")
		if above, _, ok := strings.Cut(goroutine, "github.com/fencelab/fencelab/sim.(*flight).run("); ok && !strings.Contains(head, "[coroutine") {
			found.WriteString(above)
		}
	}
	return found.String()
}
