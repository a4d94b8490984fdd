//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// maxCalls is how many calls are in libvirt at a time. Each holds a thread, and Go
	// gives none back.
	maxCalls = 16
	// connectLimit, readLimit and changeLimit are how long a client waits for libvirt.
	// To end a QEMU that doesn't obey takes libvirt itself 15 s.
	connectLimit = 10 * time.Second
	readLimit    = 10 * time.Second
	changeLimit  = 30 * time.Second
	// closeLimit is how long the end waits for it.
	closeLimit = 5 * time.Second
)

// What keeps a client from an answer.
var (
	errSilent = errors.New("libvirt doesn't answer")
	errBusy   = errors.New("an earlier change is still under way")
	errClosed = errors.New("the connection to libvirt was closed")
)

// session is what a line asks of a connection to libvirt.
type session interface {
	isAlive() bool // as far as is known here
	close()
}

// line is the way to a libvirt. A call into libvirt can't be ended: it returns when the
// daemon answers, or when the keep-alive of its connection gives it up. So the callers
// wait beside their calls, as long as is bearable, and calls that have not returned are
// counted. Each call has a connection for itself: libvirt's client crashes when one that
// several threads wait on is given up (9.0.0). Connections are made when they are
// needed, one at a time, and used again.
type line[S session] struct {
	dial  func() (S, error)
	slots chan struct{} // one for each call that has not returned

	mu      sync.Mutex
	closed  bool
	idle    []S
	attempt *attempt // at a connection, or nil
}

// attempt is a dial that has not returned. Nobody waits for it when it is late: whoever
// comes to one that hangs knows at once.
type attempt struct {
	late chan struct{}
	done chan struct{}
	err  error // once done is closed
}

func newLine[S session](dial func() (S, error)) *line[S] {
	return &line[S]{dial: dial, slots: make(chan struct{}, maxCalls)}
}

// call returns what f does with a connection that lives. When ctx ends before, call
// returns too, and f goes on if it has begun; it doesn't begin later. after is called
// when f has returned, or will not begin.
func call[S session, T any](ctx context.Context, l *line[S], f func(S) (T, error), after func()) (none T, err error) {
	begun := false
	defer func() {
		if !begun {
			after()
		}
	}()
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return none, silent(ctx)
	}
	s, err := l.connection(ctx)
	if err != nil {
		<-l.slots
		return none, err
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	begun = true
	go func() {
		defer func() { <-l.slots }()
		value, err := f(s)
		after()
		l.keep(s)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, fmt.Errorf("%w; it may still be done", silent(ctx))
	}
}

// callInTurn is call, of those with the same turn one at a time. One that nobody waits
// for any longer holds back the others until it has returned: what was asked for first
// is never done last.
func callInTurn[S session, T any](ctx context.Context, l *line[S], turn lock, f func(S) (T, error), after func()) (none T, err error) {
	if err := turn.take(ctx); err != nil {
		after()
		return none, err
	}
	return call(ctx, l, f, func() {
		after()
		turn.free()
	})
}

// silent is why nobody waits any longer.
func silent(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errSilent
	}
	return errClosed
}

// connection returns one that nobody else uses.
func (l *line[S]) connection(ctx context.Context) (none S, err error) {
	for ctx.Err() == nil {
		s, a, err := l.look()
		if a == nil {
			return s, err
		}
		select {
		case <-a.done:
			if a.err != nil {
				return none, a.err
			}
		case <-a.late:
			return none, errSilent
		case <-ctx.Done():
		}
	}
	return none, silent(ctx)
}

// look returns an idle connection, or the attempt at another one.
func (l *line[S]) look() (s S, a *attempt, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return s, nil, errClosed
	}
	for n := len(l.idle); n > 0; n = len(l.idle) {
		s, l.idle = l.idle[n-1], l.idle[:n-1]
		if s.isAlive() {
			return s, nil, nil
		}
		go s.close()
	}
	if l.attempt == nil {
		l.attempt = &attempt{late: make(chan struct{}), done: make(chan struct{})}
		go l.try(l.attempt)
	}
	return s, l.attempt, nil
}

func (l *line[S]) try(a *attempt) {
	late := time.AfterFunc(connectLimit, func() { close(a.late) })
	s, err := l.dial()
	late.Stop()
	l.mu.Lock()
	l.attempt, a.err = nil, err
	l.mu.Unlock()
	if err == nil {
		l.keep(s)
	}
	close(a.done)
}

// keep takes a connection that nobody uses any longer.
func (l *line[S]) keep(s S) {
	l.mu.Lock()
	wanted := !l.closed && s.isAlive()
	if wanted {
		l.idle = append(l.idle, s)
	}
	l.mu.Unlock()
	if !wanted {
		go s.close()
	}
}

// close closes the idle connections, and returns when they are closed or when ctx is done: what
// still hangs then ends with the process.
func (l *line[S]) close(ctx context.Context) {
	l.mu.Lock()
	idle := l.idle
	l.closed, l.idle = true, nil
	l.mu.Unlock()
	done := make(chan struct{})
	go func() {
		for _, s := range idle {
			s.close()
		}
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// lock is a mutex that nobody has to wait for longer than is bearable.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) take(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		if err := silent(ctx); err != errSilent {
			return err
		}
		return errBusy
	}
}

func (l lock) free() { <-l }
