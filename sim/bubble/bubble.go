// Package bubble lets code that starts goroutines of its own, waits on Go's timers and
// reads Go's clock take part in a simulation, unmodified. All of it lives in a bubble of
// testing/synctest, whose clock stands still while anything in it can run, and moves on
// to the next timer when nothing can.
//
// The simulation stays in charge. It gives the bubble a turn, which ends when every goroutine in
// it is blocked, or lets time pass in it, which ends at the first message that the bubble sends.
// Between turns the bubble's root waits for the simulation on a channel from outside, so that its
// clock stands still however long that takes.
//
// Values that code draws from the global source of math/rand are the same in every bubble, if the
// program's go.mod says godebug randseednop=0; otherwise Go ignores the seed.
//
// Code in a bubble must wait for the world outside only through [Bubble.Wait]: a goroutine that
// waits for a mutex whose holder waits for the simulation, or for a file or a socket, does not
// count as blocked for synctest, and the turn would never end.
package bubble

import (
	"math/rand"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A Bubble is one clock and the goroutines that live by it. Its methods are for the simulation's
// one goroutine, unless they say otherwise.
type Bubble struct {
	epoch time.Time
	turns chan turn
	ended chan struct{} // a turn
	gone  chan struct{} // everything

	// stirred wakes the root while it lets time pass. The channel belongs to the bubble.
	stirred chan struct{}
	now     time.Duration

	mu   sync.Mutex
	said []func()
}

// turn is an order to the root: let time pass, and then start something.
type turn struct {
	until time.Duration
	// alert makes the passing of time end at the first message.
	alert bool
	start func()
}

// New makes a bubble whose clock begins at a time.
func New(epoch time.Time) *Bubble {
	//lint:ignore SA1019 there is no other way to have a library's jitter repeat itself
	rand.Seed(1)
	b := &Bubble{epoch: epoch, turns: make(chan turn), ended: make(chan struct{}), gone: make(chan struct{})}
	go func() {
		defer close(b.gone)
		// A bubble requires a test but needs nothing of it. A binary that is no test has none, so
		// it gets an empty one.
		synctest.Test(new(testing.T), func(*testing.T) { b.root() })
	}()
	b.Turn(0, func() {})
	return b
}

// root is the goroutine that takes turns.
func (b *Bubble) root() {
	b.stirred = make(chan struct{}, 1)
	time.Sleep(time.Until(b.epoch))
	for t := range b.turns {
		b.pass(t.until, t.alert)
		if t.start != nil {
			go t.start()
			synctest.Wait()
		}
		b.ended <- struct{}{}
	}
	time.Sleep(patience) // the clock stands still once the root has ended
}

// pass lets time pass in the bubble.
func (b *Bubble) pass(until time.Duration, alert bool) {
	end := b.epoch.Add(until)
	for {
		synctest.Wait()
		b.now = time.Since(b.epoch)
		left := time.Until(end)
		if left <= 0 || alert && b.spoken() {
			return
		}
		select {
		case <-b.stirred:
		case <-time.After(left):
		}
	}
}

func (b *Bubble) spoken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.said) > 0
}

// Turn starts f in the bubble, on a goroutine of its own, at a time since the epoch. It returns
// the messages sent meanwhile, once everything in the bubble is blocked.
func (b *Bubble) Turn(now time.Duration, f func()) (said []func()) {
	b.turns <- turn{until: now, start: f}
	<-b.ended
	return b.hear()
}

// Pass lets time pass until the first message, at the latest until a time since the epoch. It
// returns the time reached and the messages.
func (b *Bubble) Pass(until time.Duration) (at time.Duration, said []func()) {
	if until <= b.now {
		return b.now, nil
	}
	b.turns <- turn{until: until, alert: true}
	<-b.ended
	return b.now, b.hear()
}

func (b *Bubble) hear() []func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	said := slices.Clone(b.said)
	b.said = b.said[:0]
	return said
}

// Say sends the simulation a message, from inside the bubble: a function to run after the turn.
func (b *Bubble) Say(what func()) {
	b.mu.Lock()
	b.said = append(b.said, what)
	b.mu.Unlock()
	select {
	case b.stirred <- struct{}{}:
	default:
	}
}

// An Answer lets a goroutine in a bubble wait for the simulation.
type Answer struct {
	given chan struct{}
	dead  bool
}

// Wait sends a message from inside the bubble, and waits for its answer. If the answer is that the
// process is dead, its goroutine ends there: deferred functions run, recover can't stop it, and it
// doesn't count as a panic.
func (b *Bubble) Wait(say func(*Answer)) {
	a := &Answer{given: make(chan struct{})}
	b.Say(func() { say(a) })
	<-a.given
	if a.dead {
		runtime.Goexit()
	}
}

// Give gives the answer. Call it in a Turn.
func (a *Answer) Give() { close(a.given) }

// Kill ends the goroutine that waits for the answer. Call it in a Turn.
func (a *Answer) Kill() {
	a.dead = true
	close(a.given)
}

// Exit ends a goroutine of a dead process, from inside the bubble.
func Exit() { runtime.Goexit() }

// patience is how long the goroutines may take to end once the bubble is closed. Those of dead
// processes may sleep between failing attempts, whatever their context says.
const patience = time.Hour

// Close lets time pass until the last goroutine has ended, for up to an hour of the bubble's
// clock. If one still waits then, that is a deadlock, which ends the program and shows every
// goroutine.
func (b *Bubble) Close() {
	close(b.turns)
	<-b.gone
}
