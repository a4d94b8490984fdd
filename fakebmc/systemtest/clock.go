package systemtest

import (
	"slices"
	"sync"
	"time"
)

// Clock is a fakebmc.Clock that moves only when a test moves it. It may be
// used concurrently; functions are called by Advance, one after the other.
type Clock struct {
	mu    sync.Mutex
	now   time.Duration
	queue []*timer // by time, then by order of AfterFunc
}

type timer struct {
	at time.Duration
	f  func()
}

// Now implements fakebmc.Clock.
func (c *Clock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc implements fakebmc.Clock.
func (c *Clock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{c.now + max(d, 0), f}
	i := len(c.queue)
	for i > 0 && c.queue[i-1].at > t.at {
		i--
	}
	c.queue = slices.Insert(c.queue, i, t)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.queue, t)
		if i >= 0 {
			c.queue = slices.Delete(c.queue, i, i+1)
		}
		return i >= 0
	}
}

// Advance moves time on by d and calls what falls due, at its time.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := c.now + d
	for len(c.queue) > 0 && c.queue[0].at <= end {
		t := c.queue[0]
		c.queue = slices.Delete(c.queue, 0, 1)
		c.now = t.at
		c.mu.Unlock()
		t.f()
		c.mu.Lock()
	}
	c.now = end
}

// Waiting is the number of functions that have not been called.
func (c *Clock) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue)
}
