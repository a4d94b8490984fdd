package fakebmc

import (
	"slices"
	"sync"
	"time"
)

// lagSample is how often the state of a System that is no Watcher is sampled
// while a rule about edges is in force.
const lagSample = 50 * time.Millisecond

// watchEdges begins or ends the recording of edges, as the rules in force need it.
func (b *BMC) watchEdges() {
	b.mu.Lock()
	defer b.mu.Unlock()
	needed := b.needsEdges()
	switch {
	case needed && b.unwatch == nil:
		b.mem.forgetEdges()
		if w, ok := b.sys.(Watcher); ok {
			b.unwatch = w.Watch(b.see)
			b.sample()
		} else {
			b.unwatch = b.sampleEdges()
		}
	case !needed && b.unwatch != nil:
		b.unwatch()
		b.unwatch = nil
		b.mem.forgetEdges()
	}
}

func (b *BMC) see(s PowerState) {
	b.mem.remember(b.clk.Now(), s, b.longestLag())
}

func (b *BMC) sample() {
	if s, err := b.sys.PowerState(); err == nil {
		b.see(s)
	}
}

func (b *BMC) sampleEdges() (stop func()) {
	var (
		mu      sync.Mutex
		stopped bool
		cancel  func() bool
		tick    func()
	)
	tick = func() {
		b.sample()
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			cancel = b.clk.AfterFunc(lagSample, tick)
		}
	}
	tick()
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		cancel()
	}
}

// longestLag is the lag of a read on which all lag rules in force fire.
func (b *BMC) longestLag() (sum time.Duration) {
	for _, r := range *b.rules.Load() {
		sum += time.Duration(r.Effect.Lag)
	}
	return sum
}

func (b *BMC) needsEdges() bool {
	return slices.ContainsFunc(*b.rules.Load(), func(r *rule) bool { return r.Effect.Lag > 0 || r.When.Within > 0 })
}
