// Package systemtest is the contract of fakebmc.System as a test suite. Whatever
// a BMC controls, the in-memory host, the simulator's or a libvirt domain, must
// pass Run.
package systemtest

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
)

// Fixture is one system under test, whose guest obeys a graceful shutdown.
type Fixture struct {
	System fakebmc.System
	// Advance lets d of the system's time pass: virtual time moves on, real time
	// is waited for.
	Advance func(d time.Duration)
	// Step is how much time passes between two looks at the state; transitional
	// states that are shorter than this may go unseen.
	Step time.Duration
	// Limit is longer than any transition takes, a guest's shutdown included.
	Limit time.Duration
	// Hold is how long a settled state is watched for a change that nobody asked for.
	Hold time.Duration
	// Boots counts the boots that have begun since any fixed time, as the host
	// side sees them. A power-on and a restart each add one.
	Boots func() int
	// Image is the URL of an image that can be inserted into a MediaBay.
	Image string
	// Serial is a system whose world takes one step at a time, so that nothing
	// calls it concurrently. What is asked at once elsewhere is asked in a row here.
	Serial bool
	// Real is a system whose time is real, so that not every pair of words is tried.
	Real bool
}

// Run runs the suite. start returns a fresh system that is On and settled, or Off
// if on is false; it registers its own clean-up with t.
//
// It is long because it is a list of tests.
func Run(t *testing.T, start func(t *testing.T, on bool) Fixture) {
	for _, c := range []struct {
		name   string
		on     bool
		resets []fakebmc.ResetType // one after the other, each once the one before has settled
		via    []fakebmc.PowerState
		final  fakebmc.PowerState
		boots  int
	}{
		{"on", false, resets(fakebmc.ResetOn), states(fakebmc.Off, fakebmc.PoweringOn), fakebmc.On, 1},
		{"on when on changes nothing", true, resets(fakebmc.ResetOn), states(fakebmc.On), fakebmc.On, 0},
		{"force off", true, resets(fakebmc.ResetForceOff), states(fakebmc.On, fakebmc.PoweringOff), fakebmc.Off, 0},
		{"force off when off changes nothing", false, resets(fakebmc.ResetForceOff), states(fakebmc.Off), fakebmc.Off, 0},
		{"graceful shutdown", true, resets(fakebmc.ResetGracefulShutdown), states(fakebmc.On, fakebmc.PoweringOff), fakebmc.Off, 0},
		{"graceful shutdown when off changes nothing", false, resets(fakebmc.ResetGracefulShutdown), states(fakebmc.Off), fakebmc.Off, 0},
		{"force restart", true, resets(fakebmc.ResetForceRestart),
			states(fakebmc.On, fakebmc.PoweringOff, fakebmc.Off, fakebmc.PoweringOn), fakebmc.On, 1},
		{"power cycle", true, resets(fakebmc.ResetForceOff, fakebmc.ResetOn),
			states(fakebmc.On, fakebmc.PoweringOff, fakebmc.Off, fakebmc.PoweringOn), fakebmc.On, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := begin(t, start, c.on)
			for i, r := range c.resets {
				s.reset(r)
				if i < len(c.resets)-1 {
					s.settle()
				}
			}
			s.await(c.final, c.via, c.boots)
			s.stays(c.final)
			s.wantBoots(c.boots)
		})
	}

	t.Run("force off overtakes a graceful shutdown", func(t *testing.T) {
		s := begin(t, start, true)
		s.reset(fakebmc.ResetGracefulShutdown)
		s.reset(fakebmc.ResetForceOff)
		s.await(fakebmc.Off, states(fakebmc.On, fakebmc.PoweringOff), 0)
		s.stays(fakebmc.Off)
		s.wantBoots(0)
	})
	t.Run("force off overtakes a power-on", func(t *testing.T) {
		s := begin(t, start, false)
		s.reset(fakebmc.ResetOn)
		s.reset(fakebmc.ResetForceOff)
		s.await(fakebmc.Off, states(fakebmc.PoweringOn, fakebmc.On, fakebmc.PoweringOff), 1)
		s.stays(fakebmc.Off)
		s.wantBoots(1)
	})
	t.Run("on during power-off is done or refused", func(t *testing.T) {
		s := begin(t, start, true)
		s.reset(fakebmc.ResetForceOff)
		err := s.System.Reset(fakebmc.ResetOn)
		switch final := s.settle(); {
		case err == nil && final != fakebmc.On:
			t.Errorf("On was accepted during a power-off, but the system settled in %s", final)
		case err != nil && !errors.Is(err, fakebmc.ErrConflict):
			t.Errorf("On during a power-off: %v; want nil or ErrConflict", err)
		case err != nil && final != fakebmc.Off:
			t.Errorf("On was refused during a power-off, but the system settled in %s", final)
		}
	})
	t.Run("force restart when off is refused", func(t *testing.T) {
		s := begin(t, start, false)
		if err := s.System.Reset(fakebmc.ResetForceRestart); !errors.Is(err, fakebmc.ErrConflict) {
			t.Errorf("ForceRestart of a system that is off: %v; want ErrConflict", err)
		}
		s.stays(fakebmc.Off)
		s.wantBoots(0)
	})
	t.Run("unknown reset types are refused", func(t *testing.T) {
		s := begin(t, start, true)
		for _, r := range resets("", "forceoff", "ForceOff ", "Explode") {
			if err := s.System.Reset(r); !errors.Is(err, fakebmc.ErrUnsupported) {
				t.Errorf("Reset(%q) = %v; want ErrUnsupported", r, err)
			}
		}
		s.stays(fakebmc.On)
		s.wantBoots(0)
	})
	t.Run("repeated force off leads to one power-off", func(t *testing.T) {
		s := begin(t, start, true)
		for range 3 {
			s.reset(fakebmc.ResetForceOff)
		}
		s.await(fakebmc.Off, states(fakebmc.On, fakebmc.PoweringOff), 0)
		s.reset(fakebmc.ResetOn)
		s.await(fakebmc.On, states(fakebmc.Off, fakebmc.PoweringOn), 1)
		s.stays(fakebmc.On)
		s.wantBoots(1)
	})
	t.Run("repeated force off does not put the power-off off", func(t *testing.T) {
		s := begin(t, start, true)
		s.until("the system is Off, however often it is forced off", func() bool {
			s.reset(fakebmc.ResetForceOff)
			return s.state() == fakebmc.Off
		})
		s.stays(fakebmc.Off)
		s.wantBoots(0)
	})
	t.Run("concurrent use", func(t *testing.T) {
		s := begin(t, start, true)
		var all sync.WaitGroup
		do := all.Go
		if s.Serial {
			do = func(f func()) { f() }
		}
		for _, r := range resets(fakebmc.ResetOn, fakebmc.ResetForceOff, fakebmc.ResetGracefulShutdown, fakebmc.ResetForceRestart) {
			do(func() {
				if err := s.System.Reset(r); err != nil && !errors.Is(err, fakebmc.ErrConflict) {
					t.Errorf("Reset(%s) = %v", r, err)
				}
				if _, err := s.System.PowerState(); err != nil {
					t.Errorf("PowerState: %v", err)
				}
			})
		}
		all.Wait()
		s.settle()
	})
	t.Run("watch", func(t *testing.T) { testWatch(t, begin(t, start, true)) })
	runOptional(t, start)
	t.Run("interrupted", func(t *testing.T) { runInterrupted(t, start) })
}

func testWatch(t *testing.T, s *subject) {
	w, ok := s.System.(fakebmc.Watcher)
	if !ok {
		t.Skip("the system is no Watcher")
	}
	var (
		mu   sync.Mutex
		seen []fakebmc.PowerState
	)
	stop := w.Watch(func(p fakebmc.PowerState) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, p)
	})
	told := func() []fakebmc.PowerState {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
	toldLast := func(p fakebmc.PowerState) func() bool {
		return func() bool { e := told(); return len(e) > 0 && e[len(e)-1] == p }
	}
	s.reset(fakebmc.ResetGracefulShutdown)
	s.reset(fakebmc.ResetForceOff)
	s.until("the watcher is told Off", toldLast(fakebmc.Off))
	s.reset(fakebmc.ResetOn)
	s.until("the watcher is told On", toldLast(fakebmc.On))
	stop()
	edges := told()
	s.reset(fakebmc.ResetForceOff)
	s.await(fakebmc.Off, states(fakebmc.On, fakebmc.PoweringOff), 1)
	if after := told(); !slices.Equal(after, edges) {
		t.Errorf("told %v after stop", after[len(edges):])
	}
	if distinct := slices.Compact(slices.Clone(edges)); !slices.Equal(distinct, edges) {
		t.Errorf("told %v, which repeats a state", edges)
	}
	// Transitional states are the system's choice.
	edges = slices.DeleteFunc(edges, func(p fakebmc.PowerState) bool {
		return p == fakebmc.PoweringOn || p == fakebmc.PoweringOff
	})
	if want := states(fakebmc.Off, fakebmc.On); !slices.Equal(edges, want) {
		t.Errorf("told the settled states %v, want %v", edges, want)
	}
}

// subject is a fixture in the hands of one test.
type subject struct {
	Fixture
	t     *testing.T
	boots int
}

func begin(t *testing.T, start func(*testing.T, bool) Fixture, on bool) *subject {
	s := &subject{Fixture: start(t, on), t: t}
	want := fakebmc.Off
	if on {
		want = fakebmc.On
	}
	if got := s.state(); got != want {
		t.Fatalf("the fixture starts %s, want %s", got, want)
	}
	s.boots = s.Boots()
	return s
}

func resets(r ...fakebmc.ResetType) []fakebmc.ResetType   { return r }
func states(p ...fakebmc.PowerState) []fakebmc.PowerState { return p }

func (s *subject) state() fakebmc.PowerState {
	s.t.Helper()
	p, err := s.System.PowerState()
	if err != nil {
		s.t.Fatalf("PowerState: %v", err)
	}
	return p
}

func (s *subject) reset(r fakebmc.ResetType) {
	s.t.Helper()
	if err := s.System.Reset(r); err != nil {
		s.t.Fatalf("Reset(%s) when %s: %v", r, s.state(), err)
	}
}

// until lets time pass until done, and fails at the limit.
func (s *subject) until(what string, done func() bool) {
	s.t.Helper()
	for passed := time.Duration(0); !done(); passed += s.Step {
		if passed >= s.Limit {
			s.t.Fatalf("not within %v: %s (the system is %s)", s.Limit, what, s.state())
		}
		s.Advance(s.Step)
	}
}

// await lets time pass until the system is in a state after a number of boots (a
// restart may begin and end On), and wants no other states on the way than via.
func (s *subject) await(final fakebmc.PowerState, via []fakebmc.PowerState, boots int) {
	s.t.Helper()
	s.until("the system is "+string(final), func() bool {
		p := s.state()
		if p != final && !slices.Contains(via, p) {
			s.t.Fatalf("the system is %s on its way to %s", p, final)
		}
		return p == final && s.Boots()-s.boots >= boots
	})
}

// settle lets every transition end and returns the state then.
func (s *subject) settle() fakebmc.PowerState {
	s.t.Helper()
	s.Advance(s.Limit)
	p := s.state()
	if p != fakebmc.On && p != fakebmc.Off {
		s.t.Fatalf("the system is still %s after %v", p, s.Limit)
	}
	return p
}

func (s *subject) stays(want fakebmc.PowerState) {
	s.t.Helper()
	for passed := time.Duration(0); passed < s.Hold; passed += s.Step {
		s.Advance(s.Step)
		if p := s.state(); p != want {
			s.t.Fatalf("the system went from %s to %s by itself after %v", want, p, passed)
		}
	}
}

func (s *subject) wantBoots(n int) {
	s.t.Helper()
	if got := s.Boots() - s.boots; got != n {
		s.t.Errorf("%d boots began, want %d", got, n)
	}
}
