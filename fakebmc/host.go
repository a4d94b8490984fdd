package fakebmc

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Timing is how long the transitions of an in-memory Host take.
type Timing struct {
	On       time.Duration // from Off through PoweringOn to On
	Off      time.Duration // hard, from any state through PoweringOff to Off
	Shutdown time.Duration // graceful, by the guest, through PoweringOff to Off
}

// Host is a System in memory, for tests and for BMCs at scale. A restart keeps
// it On and counts as a boot, as a reset line does on real boards.
type Host struct {
	clk    Clock
	timing Timing

	mu       sync.Mutex
	state    PowerState
	graceful bool // PoweringOff by the guest, which a hard reset overtakes
	boots    int
	cancel   func() bool // of the transition under way
	round    int         // the transition's number; a late timer of an older one is void
	watchers []*func(PowerState)
	untold   []PowerState
	telling  bool
}

// NewHost returns a Host that is On, in its first boot, or Off.
func NewHost(clk Clock, t Timing, on bool) *Host {
	h := &Host{clk: clk, timing: t, state: Off}
	if on {
		h.state, h.boots = On, 1
	}
	return h
}

// PowerState implements System.
func (h *Host) PowerState() (PowerState, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state, nil
}

// Boots counts the boots that have begun.
func (h *Host) Boots() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boots
}

// Reset implements System. On is refused with ErrConflict while the host powers
// off: accepting it would mean to forget it.
func (h *Host) Reset(t ResetType) error {
	h.mu.Lock()
	err := h.begin(t)
	h.mu.Unlock()
	h.tell()
	return err
}

func (h *Host) begin(t ResetType) error {
	conflict := func() error { return fmt.Errorf("%s of a host that is %s: %w", t, h.state, ErrConflict) }
	switch t {
	case ResetOn:
		switch h.state {
		case PoweringOff:
			return conflict()
		case Off:
			h.boots++
			h.pass(PoweringOn, h.timing.On, On)
		}
	case ResetForceOff:
		if h.state != Off && (h.state != PoweringOff || h.graceful) {
			h.pass(PoweringOff, h.timing.Off, Off)
			h.graceful = false
		}
	case ResetGracefulShutdown:
		switch h.state {
		case PoweringOn:
			return conflict() // no guest yet to hear of it
		case On:
			h.pass(PoweringOff, h.timing.Shutdown, Off)
			h.graceful = true
		}
	case ResetForceRestart:
		if h.state == Off || h.state == PoweringOff && !h.graceful {
			return conflict()
		}
		h.boots++
		if h.state == PoweringOff {
			h.stopTransition()
			h.become(On)
		}
	default:
		return fmt.Errorf("%w: %q", ErrUnsupported, t)
	}
	return nil
}

// pass goes to a final state through a transitional one, instead of the
// transition under way.
func (h *Host) pass(through PowerState, d time.Duration, final PowerState) {
	h.stopTransition()
	h.become(through)
	round := h.round
	h.cancel = h.clk.AfterFunc(d, func() {
		h.mu.Lock()
		if h.round == round {
			h.cancel = nil
			h.become(final)
		}
		h.mu.Unlock()
		h.tell()
	})
}

func (h *Host) stopTransition() {
	h.round++
	if h.cancel != nil {
		h.cancel()
		h.cancel = nil
	}
}

func (h *Host) become(s PowerState) {
	if s != h.state {
		h.state = s
		h.untold = append(h.untold, s)
	}
}

// Watch implements Watcher.
func (h *Host) Watch(f func(PowerState)) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers = append(slices.Clip(h.watchers), &f)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.watchers = slices.DeleteFunc(slices.Clone(h.watchers), func(w *func(PowerState)) bool { return w == &f })
	}
}

// tell hands edges to the watchers, in order and without the lock. One caller
// tells at a time; it also tells what others add meanwhile.
func (h *Host) tell() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.telling {
		return
	}
	h.telling = true
	for len(h.untold) > 0 {
		s, watchers := h.untold[0], h.watchers
		h.untold = h.untold[1:]
		h.mu.Unlock()
		for _, w := range watchers {
			(*w)(s)
		}
		h.mu.Lock()
	}
	h.telling = false
}
