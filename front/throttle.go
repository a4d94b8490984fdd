package front

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// freeGuesses is how many wrong passwords in a row cost nothing: a person mistypes.
	freeGuesses = 5
	// firstWait is the wait after the first password beyond freeGuesses; each further one doubles
	// it, up to longestWait.
	firstWait   = time.Second
	longestWait = 10 * time.Second
	// guessMemory is for how long a wrong password counts.
	guessMemory = 10 * time.Minute
	// maxSources bounds what strangers can have remembered.
	maxSources = 4096
)

// Throttle slows down whoever guesses passwords: it counts the wrong ones of each
// address. Those that share an address share the wait, so it is for logins only: who
// has a session doesn't wait.
type Throttle struct {
	now func() time.Duration

	mu      sync.Mutex
	sources map[netip.Prefix]*guesser
}

type guesser struct {
	wrong int // in a row
	last  time.Duration
	until time.Duration // nothing is judged before
}

// NewThrottle returns a Throttle on a clock.
func NewThrottle(now func() time.Duration) *Throttle {
	return &Throttle{now: now, sources: map[netip.Prefix]*guesser{}}
}

// Wait is how long a client, which is an address with or without a port, must wait
// before a password of its is looked at; 0 is not at all.
func (t *Throttle) Wait(client string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sources[address(client)]; s != nil {
		return max(0, s.until-t.now())
	}
	return 0
}

// Wrong counts a wrong password.
func (t *Throttle) Wrong(client string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, a := t.now(), address(client)
	s := t.sources[a]
	if s == nil {
		t.makeRoom(now)
		s = &guesser{}
		t.sources[a] = s
	}
	if now-s.last > guessMemory {
		s.wrong = 0
	}
	s.wrong++
	s.last = now
	if over := s.wrong - freeGuesses; over > 0 {
		s.until = now + min(longestWait, firstWait<<min(over-1, 10))
	}
}

// Right forgets the wrong ones.
func (t *Throttle) Right(client string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.sources, address(client))
}

// makeRoom forgets the source that has been quiet the longest.
func (t *Throttle) makeRoom(now time.Duration) {
	if len(t.sources) < maxSources {
		return
	}
	var quiet netip.Prefix
	since := now + 1
	for a, s := range t.sources {
		if s.last < since {
			quiet, since = a, s.last
		}
	}
	delete(t.sources, quiet)
}

// address returns the part of a client's address that a stranger can't change at will: for IPv6
// the network. All clients without a valid address count as one source.
func address(client string) netip.Prefix {
	ip, err := netip.ParseAddr(client)
	if port, portErr := netip.ParseAddrPort(client); portErr == nil {
		ip, err = port.Addr(), nil
	}
	if err != nil {
		return netip.Prefix{}
	}
	ip = ip.Unmap()
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.WithZone("").Prefix(bits) // of an address there is one
	return p
}
