package front

import (
	"fmt"
	"testing"
	"time"
)

func TestThrottle(t *testing.T) {
	var now time.Duration
	x := NewThrottle(func() time.Duration { return now })
	wantWait := func(client string, want time.Duration) {
		t.Helper()
		if got := x.Wait(client); got != want {
			t.Errorf("at %v %s waits %v, want %v", now, client, got, want)
		}
	}
	wrong := func(client string, want ...time.Duration) {
		t.Helper()
		for _, w := range want {
			x.Wrong(client)
			wantWait(client, w)
			now += w
		}
	}
	const s = time.Second
	wrong("192.0.2.1:1000", 0, 0, 0, 0, 0, s, 2*s, 4*s, 8*s, 10*s, 10*s)
	x.Wrong("192.0.2.1")
	wantWait("192.0.2.1:2000", 10*s) // another port is the same one
	wantWait("[::ffff:192.0.2.1]:2000", 10*s)
	wantWait("192.0.2.2:1000", 0)
	now += 3 * s
	wantWait("192.0.2.1:1000", 7*s)
	now += 7 * s
	wantWait("192.0.2.1:1000", 0)
	x.Right("192.0.2.1:1000")
	wrong("192.0.2.1:1000", 0, 0, 0, 0, 0, s)
	now += guessMemory + s
	wrong("192.0.2.1:1000", 0, 0, 0, 0, 0, s)

	// A host has all of its IPv6 network.
	for i := range freeGuesses + 1 {
		x.Wrong(fmt.Sprintf("[2001:db8::%d]:1", i))
	}
	wantWait("[2001:db8::ffff]:1", s)
	wantWait("[2001:db8:0:1::1]:1", 0)
}

// TestMemoryIsBounded: the quietest is forgotten for a new one.
func TestMemoryIsBounded(t *testing.T) {
	var now time.Duration
	x := NewThrottle(func() time.Duration { return now })
	for range freeGuesses + 1 {
		x.Wrong("192.0.2.1")
	}
	for i := range 3 * maxSources {
		now++
		x.Wrong(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255))
	}
	if len(x.sources) != maxSources {
		t.Errorf("%d sources are remembered", len(x.sources))
	}
	if x.Wait("192.0.2.1") != 0 {
		t.Error("the first one is remembered")
	}
}
