// Package bubble lets code that starts goroutines of its own, waits on Go's timers and
// reads Go's clock take part in a simulation, unmodified. All of it lives in a bubble of
// testing/synctest, whose clock stands still while anything in it can run, and moves on
// to the next timer when nothing can.
//
// The simulation stays in charge: it lets the bubble have a turn, which ends when every
// goroutine in it is blocked, and lets time pass in it, which ends at the first thing that
// the bubble has to say. Between turns the bubble's root waits for the simulation on a
// channel from outside, so that its clock stands still however long that takes.
//
// What code draws from math/rand without a source of its own is the same in every bubble,
// if the program's go.mod says godebug randseednop=0; else Go doesn't let itself be told.
//
// What runs in a bubble must not wait for the world outside by anything but [Bubble.Wait]:
// a goroutine that waits for a mutex whose holder waits for the simulation, or for a file
// or a socket, is not blocked in the eyes of synctest, and the turn would never end.
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

// A Bubble is one clock and the goroutines that live by it. Its methods are for the
// simulation, which is one goroutine, unless they say otherwise.
type Bubble struct {
	epoch time.Time
	turns chan turn
	ended chan struct{} // a turn
	gone  chan struct{} // everything

	// stirred wakes the root while it lets time pass. It is of the bubble.
	stirred chan struct{}
	now     time.Duration

	mu   sync.Mutex
	said []func()
}

// turn is what the root is asked to do: let time pass, and then start something.
type turn struct {
	until time.Duration
	// alert has it end at the first thing that is said.
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
		// A bubble wants a test, of which it needs nothing: there is none in a binary
		// that is no test.
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

// Turn starts f in the bubble, on a goroutine of its own, at a time since the epoch, and
// returns when everything in it is blocked. It hands over what was said meanwhile.
func (b *Bubble) Turn(now time.Duration, f func()) (said []func()) {
	b.turns <- turn{until: now, start: f}
	<-b.ended
	return b.hear()
}

// Pass lets time pass until something is said, at the latest until a time since the
// epoch. It returns what, and when that was.
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

// Say is called in the bubble: the simulation is to do something when the turn is over.
func (b *Bubble) Say(what func()) {
	b.mu.Lock()
	b.said = append(b.said, what)
	b.mu.Unlock()
	select {
	case b.stirred <- struct{}{}:
	default:
	}
}

// An Answer is what a goroutine in a bubble waits for.
type Answer struct {
	given chan struct{}
	dead  bool
}

// Wait is called in the bubble: it says something, and waits for the answer to it.
// When the answer is that the process is dead, its goroutine ends there: its deferred
// functions run, nothing can recover it, and it isn't known to anybody as a panic.
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

// Exit is called in the bubble by a goroutine of a process that is dead.
func Exit() { runtime.Goexit() }

// patience is how long the goroutines have to end once the bubble is closed. Those of dead
// processes may sleep between attempts at what fails, whatever their context says.
const patience = time.Hour

// Close lets time pass until the last goroutine has ended, for an hour of the bubble's
// clock. One that still waits then is a deadlock, which ends the program and shows every
// goroutine.
func (b *Bubble) Close() {
	close(b.turns)
	<-b.gone
}
