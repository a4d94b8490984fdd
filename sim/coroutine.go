package sim

import (
	"iter"

	"github.com/fencelab/fencelab/sim/stall"
)

// coroutine runs reconciles one after the other, and is suspended at each of their calls. It
// outlives reconciles, processes and worlds: to start one for each reconcile, and grow its stack
// each time, would cost more than a typical reconcile.
type coroutine struct {
	next func() (*call, bool)
	// flight is run at the next resumption of an idle coroutine.
	flight *flight
	yield  func(*call) bool
	// dying makes the call that it is suspended at panic instead of returning.
	dying bool
	mark  *stall.Mark
	// id is the goroutine that it runs as.
	id string
}

// killed is the panic that unwinds the reconcile of a process that died. Calls that deferred
// functions make on the way have no effect: they panic as well.
type killed struct{}

func newCoroutine() *coroutine {
	c := &coroutine{mark: stall.New("sim.(*flight).run")}
	c.next, _ = iter.Pull(func(yield func(*call) bool) {
		c.yield, c.id = yield, goroutine()
		for {
			c.flight.run()
			c.flight = nil
			if !yield(nil) {
				return
			}
		}
	})
	return c
}

// run starts a flight and runs it up to its first call. It returns nil if the flight has ended.
func (c *coroutine) run(f *flight) *call {
	c.flight = f
	return c.resume()
}

// resume continues after the call at which the coroutine is suspended.
func (c *coroutine) resume() *call {
	c.mark.Go()
	next, _ := c.next()
	c.mark.Back()
	return next
}

// suspend waits, inside the flight, until the coroutine is resumed.
func (c *coroutine) suspend(at *call) {
	if c.dying {
		panic(killed{})
	}
	c.yield(at)
	if c.dying {
		panic(killed{})
	}
}

// kill unwinds the flight.
func (c *coroutine) kill() {
	c.dying = true
	for c.resume() != nil { // a deferred function that recovers doesn't get away
	}
	c.dying = false
}

// threads is a pool of idle coroutines.
type threads struct{ idle []*coroutine }

func (t *threads) get() *coroutine {
	if n := len(t.idle); n > 0 {
		c := t.idle[n-1]
		t.idle = t.idle[:n-1]
		return c
	}
	return newCoroutine()
}

func (t *threads) put(c *coroutine) { t.idle = append(t.idle, c) }
