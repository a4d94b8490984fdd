//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// daemon is a hypervisor that can hang, without a libvirt.
type daemon struct {
	hang    chan struct{} // while it is open, no call returns; nil hangs none
	dialing chan struct{} // while it is open, no connection is made
	dials   atomic.Int32
	running atomic.Int32 // calls that have not returned
	most    atomic.Int32
	done    atomic.Int32
	closed  atomic.Int32
	dead    atomic.Bool
}

func wait(hang chan struct{}) {
	if hang != nil {
		<-hang
	}
}

func (d *daemon) dial() (*daemon, error) {
	d.dials.Add(1)
	wait(d.dialing)
	return d, nil
}

func (d *daemon) isAlive() bool { return !d.dead.Load() }
func (d *daemon) close()        { wait(d.hang); d.closed.Add(1) }

// work is a call.
func (d *daemon) work(*daemon) (string, error) {
	d.most.Store(max(d.most.Load(), d.running.Add(1)))
	defer d.running.Add(-1)
	wait(d.hang)
	d.done.Add(1)
	return "done", nil
}

// client makes a call as a client does, and returns how long it waited for the answer.
func client(l *line[*daemon], f func(*daemon) (string, error)) (string, time.Duration, error) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	got, err := call(ctx, l, f, func() {})
	return got, time.Since(begun), err
}

// TestACallThatHangs: everybody has an error in time, the calls are bounded, and all is
// well when the daemon answers again.
func TestACallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{}
		l := newLine(d.dial)
		if got, _, err := client(l, d.work); err != nil || got != "done" {
			t.Fatalf("%q, %v", got, err)
		}
		d.hang = make(chan struct{})
		const clients = 10 * maxCalls
		answers := make(chan error, clients)
		for range clients {
			go func() {
				_, waited, err := client(l, d.work)
				if waited != readLimit {
					t.Errorf("waited %v", waited)
				}
				answers <- err
			}()
		}
		for range clients {
			if err := <-answers; !errors.Is(err, errSilent) {
				t.Errorf("%v", err)
			}
		}
		if got := d.running.Load(); got != maxCalls {
			t.Errorf("%d calls have not returned, want %d", got, maxCalls)
		}
		close(d.hang)
		synctest.Wait()
		// Those that nobody waited for any longer before they could begin, never do.
		if got := d.done.Load(); got != 1+maxCalls {
			t.Errorf("%d calls were done, want %d", got, 1+maxCalls)
		}
		if got, waited, err := client(l, d.work); err != nil || got != "done" || waited != 0 {
			t.Errorf("%q after %v, %v", got, waited, err)
		}
		if got := d.dials.Load(); got > maxCalls {
			t.Errorf("%d connections", got)
		}
		l.close(t.Context())
	})
}

// TestAConnectionThatHangs is made once, and late comers know at once.
func TestAConnectionThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{dialing: make(chan struct{})}
		l := newLine(d.dial)
		for i, want := range []time.Duration{connectLimit, 0, 0} {
			_, waited, err := client(l, d.work)
			if !errors.Is(err, errSilent) || strings.Contains(err.Error(), "may still be done") || waited != want {
				t.Errorf("client %d: %v after %v, want %v", i, err, waited, want)
			}
		}
		if got := d.dials.Load(); got != 1 {
			t.Errorf("%d attempts", got)
		}
		close(d.dialing)
		synctest.Wait()
		if d.done.Load() != 0 {
			t.Error("a call was done that nobody waits for")
		}
		if got, _, err := client(l, d.work); err != nil || got != "done" {
			t.Errorf("%q, %v", got, err)
		}
		l.close(t.Context())
	})
}

// TestConnections are used again, by one call at a time, and made anew when they were lost.
func TestConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &daemon{}, &daemon{}
		next := first
		l := newLine(func() (*daemon, error) { return next.dial() })
		used := func(want *daemon) func(*daemon) (string, error) {
			return func(d *daemon) (string, error) {
				if d != want {
					t.Error("another connection was used")
				}
				return want.work(d)
			}
		}
		for range 2 {
			if got, _, err := client(l, used(first)); err != nil || got != "done" {
				t.Errorf("%q, %v", got, err)
			}
		}
		first.hang, next = make(chan struct{}), second
		go client(l, used(first))
		synctest.Wait()
		if got, _, err := client(l, used(second)); err != nil || got != "done" {
			t.Errorf("beside a call that hangs: %q, %v", got, err)
		}
		first.dead.Store(true)
		close(first.hang)
		synctest.Wait()
		if first.dials.Load() != 1 || second.dials.Load() != 1 || first.closed.Load() != 1 || second.closed.Load() != 0 {
			t.Errorf("first: %d, closed %d; second: %d, closed %d", first.dials.Load(), first.closed.Load(), second.dials.Load(), second.closed.Load())
		}
		second.dead.Store(true)
		next = &daemon{}
		if got, _, err := client(l, used(next)); err != nil || got != "done" {
			t.Errorf("after a loss: %q, %v", got, err)
		}
		l.close(t.Context())
		synctest.Wait()
		if second.closed.Load() != 1 || next.closed.Load() != 1 {
			t.Error("one is still there")
		}
		if _, _, err := client(l, used(next)); !errors.Is(err, errClosed) {
			t.Errorf("a call afterwards: %v", err)
		}
	})
}

// TestTheEndWaitsForNobody: neither a call nor the connection's own end hold it.
func TestTheEndWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{}
		l := newLine(d.dial)
		if _, _, err := client(l, d.work); err != nil {
			t.Fatal(err)
		}
		d.hang = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := call(ctx, l, d.work, func() {})
			ended <- err
		}()
		synctest.Wait()
		begun := time.Now()
		cancel()
		if err := <-ended; !errors.Is(err, errClosed) || time.Since(begun) != 0 {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		ctx, cancel = context.WithTimeout(context.Background(), closeLimit)
		defer cancel()
		l.close(ctx)
		if waited := time.Since(begun); waited > closeLimit {
			t.Errorf("the end took %v", waited)
		}
		close(d.hang)
	})
}

// TestChangesKeepTheirOrder: what was asked for first is never done last.
func TestChangesKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{}
		l := newLine(d.dial)
		power, order := newLock(), []string{}
		change := func(name string, hang chan struct{}) error {
			ctx, cancel := context.WithTimeout(context.Background(), changeLimit)
			defer cancel()
			_, err := callInTurn(ctx, l, power, func(*daemon) (string, error) {
				<-hang
				order = append(order, name)
				return "", nil
			}, func() {})
			return err
		}
		hang, free := make(chan struct{}), make(chan struct{})
		close(free)
		if err := change("On", hang); !errors.Is(err, errSilent) || !strings.Contains(err.Error(), "may still be done") {
			t.Errorf("On: %v", err)
		}
		if err := change("ForceOff", free); !errors.Is(err, errBusy) {
			t.Errorf("ForceOff: %v", err)
		}
		close(hang)
		synctest.Wait()
		if err := change("ForceOff", free); err != nil {
			t.Error(err)
		}
		if strings.Join(order, " ") != "On ForceOff" {
			t.Errorf("the order is %v", order)
		}
		l.close(t.Context())
	})
}
