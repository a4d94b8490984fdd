package hosts

import (
	"context"
	"sync"
)

// thread lets one thing happen at a time, until it is closed.
type thread struct {
	mu     sync.Mutex
	closed bool
	// stirred is closed, and made anew, when something has happened that somebody may have waited
	// for.
	stirred chan struct{}
}

func newThread() thread { return thread{stirred: make(chan struct{})} }

// do makes every change.
func (t *thread) do(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	f()
	close(t.stirred)
	t.stirred = make(chan struct{})
}

// await returns once something is the case, or why it never will be.
func (t *thread) await(ctx context.Context, is func() (bool, error)) error {
	for {
		t.mu.Lock()
		good, err := is()
		stirred := t.stirred
		t.mu.Unlock()
		if good || err != nil {
			return err
		}
		select {
		case <-stirred:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
