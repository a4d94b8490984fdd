package bubble_test

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelab/fencelab/sim/bubble"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// do runs the messages.
func do(said []func()) {
	for _, f := range said {
		f()
	}
}

// TestTimePasses: a goroutine in the bubble sleeps by the simulation's clock, and not a
// moment longer than the simulation lets pass.
func TestTimePasses(t *testing.T) {
	b := bubble.New(epoch)
	defer b.Close()
	var woke []time.Duration
	do(b.Turn(time.Second, func() {
		for range 3 {
			time.Sleep(2 * time.Second)
			at := time.Since(epoch)
			b.Say(func() { woke = append(woke, at) })
		}
	}))
	for _, step := range []struct{ until, at time.Duration }{
		{2 * time.Second, 2 * time.Second}, {3 * time.Second, 3 * time.Second}, {time.Minute, 5 * time.Second}, {time.Minute, 7 * time.Second}, {time.Minute, time.Minute},
	} {
		at, said := b.Pass(step.until)
		do(said)
		if at != step.at {
			t.Errorf("time passed until %s, and should until %s", at, step.at)
		}
	}
	if want := []time.Duration{3 * time.Second, 5 * time.Second, 7 * time.Second}; !slices.Equal(woke, want) {
		t.Errorf("it woke at %v, and should at %v", woke, want)
	}
}

// TestCallsOfMany: the concurrent calls of many goroutines are all there when the turn ends, and
// each goroutine goes on when its call is answered and not before.
func TestCallsOfMany(t *testing.T) {
	b := bubble.New(epoch)
	defer b.Close()
	waiting := map[int]*bubble.Answer{}
	var done []string
	do(b.Turn(0, func() {
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				b.Wait(func(a *bubble.Answer) { waiting[i] = a })
				b.Say(func() { done = append(done, fmt.Sprint(i)) })
			})
		}
		all.Wait()
		b.Say(func() { done = append(done, "all") })
	}))
	if len(waiting) != 20 {
		t.Fatalf("%d of 20 goroutines wait when the turn is over", len(waiting))
	}
	for i := range 20 {
		do(b.Turn(0, waiting[i].Give))
	}
	if got := strings.Join(done, " "); got != "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 all" {
		t.Errorf("they went on in the order %s", got)
	}
}

// TestJitter: what libraries draw from the global source is the same every time.
func TestJitter(t *testing.T) {
	draw := func() (drawn []int64) {
		b := bubble.New(epoch)
		defer b.Close()
		do(b.Turn(0, func() {
			n := []int64{rand.Int63(), rand.Int63()}
			b.Say(func() { drawn = n })
		}))
		return drawn
	}
	if first, second := draw(), draw(); !slices.Equal(first, second) {
		t.Errorf("one bubble draws %v and another %v: does go.mod say godebug randseednop=0?", first, second)
	}
}

// TestDeath: a goroutine that is killed runs its deferred functions and can't recover, and
// goroutines that wait for it go on.
func TestDeath(t *testing.T) {
	b := bubble.New(epoch)
	defer b.Close()
	var asked *bubble.Answer
	var trace []string
	note := func(what string) { b.Say(func() { trace = append(trace, what) }) }
	do(b.Turn(0, func() {
		var one sync.WaitGroup
		one.Go(func() {
			defer note("deferred")
			defer func() {
				if recover() != nil {
					note("recovered")
				}
			}()
			b.Wait(func(a *bubble.Answer) { asked = a })
			note("survived")
		})
		one.Wait()
		note("joined")
	}))
	do(b.Turn(0, asked.Kill))
	if got := strings.Join(trace, " "); got != "deferred joined" {
		t.Errorf("a killed goroutine did: %s", got)
	}
}

// TestCloseWaitsForSleepers: goroutines that sleep when the bubble is closed wake and end. Client
// libraries sleep between attempts at a write without looking at their context.
func TestCloseWaitsForSleepers(t *testing.T) {
	b := bubble.New(epoch)
	var attempts int
	b.Turn(0, func() {
		for range 5 {
			time.Sleep(10 * time.Minute)
			attempts++
		}
	})
	b.Close()
	if attempts != 5 {
		t.Errorf("a goroutine that sleeps had %d of its 5 attempts", attempts)
	}
}
