package fakebmc

import (
	"fmt"
	"time"
)

// Watchdog is the timer by which a host proves to its BMC that it is alive (IPMI 2.0, section 27).
// When it expires the BMC resets the host as ClientWatchdog. It stops whenever the host goes off or
// is reset, and must be set anew then. The BMC forgets it when it restarts and forgets.
type Watchdog struct {
	Enabled bool
	Action  ResetType     // "" (none), ForceRestart, ForceOff or PowerCycle
	Timeout time.Duration // from each feeding to the action
	// Use is the timer use of IPMI, 1 to 5: what kind of software feeds it. It is 0 for one that
	// only Redfish has set, which knows no timeout: it can't be fed before it has one.
	Use uint8
	// Unlogged and Warning, in seconds, are IPMI's "don't log" and pre-timeout interval. They are
	// kept; nothing here acts by them.
	Unlogged bool
	Warning  uint8
	// Expired has the bit 1<<Use of each use in which it has expired. SetWatchdog keeps those that
	// it is given; only a loss of memory clears them otherwise.
	Expired uint8

	// What Watchdog reports and SetWatchdog leaves alone.
	Running   bool
	Remaining time.Duration

	deadline time.Duration
	// primed says that it was set since the host went off or was reset the last time.
	primed bool
	chore  *chore
	round  int // of feeding; an older timer that fires late is void
}

// Watchdog returns the timer as it is now.
func (b *BMC) Watchdog() Watchdog {
	b.mem.mu.Lock()
	defer b.mem.mu.Unlock()
	w := b.mem.timer
	w.Remaining = w.Timeout
	if w.Running {
		w.Remaining = max(0, w.deadline-b.clk.Now())
	}
	return w
}

// SetWatchdog sets the timer and stops it; the next FeedWatchdog starts it.
func (b *BMC) SetWatchdog(w Watchdog) error {
	switch w.Action {
	case "", ResetForceRestart, ResetForceOff, ResetPowerCycle:
	default:
		return fmt.Errorf("setting the host watchdog of %s: %q is no action of it", b.host, w.Action)
	}
	if w.Timeout < 0 || w.Timeout > time.Duration(maxDuration) {
		return fmt.Errorf("setting the host watchdog of %s: a timeout of %v is out of range", b.host, w.Timeout)
	}
	b.mem.mu.Lock()
	old := b.mem.timer.chore
	b.mem.timer = Watchdog{
		Enabled: w.Enabled, Action: w.Action, Timeout: w.Timeout, Use: w.Use, Unlogged: w.Unlogged, Warning: w.Warning,
		Expired: b.mem.timer.Expired & w.Expired, primed: true, round: b.mem.timer.round + 1,
	}
	b.mem.mu.Unlock()
	if old != nil {
		b.cancel(old)
	}
	return nil
}

// FeedWatchdog restarts the timer, and returns false if none is set. A timer whose timeout is zero
// expires at once.
func (b *BMC) FeedWatchdog() bool {
	b.watchForTimer()
	b.mem.mu.Lock()
	w := &b.mem.timer
	if !w.Enabled || !w.primed || w.Timeout == 0 && w.Use == 0 {
		b.mem.mu.Unlock()
		return false
	}
	w.round++
	w.Running, w.deadline = true, b.clk.Now()+w.Timeout
	round, timeout, old := w.round, w.Timeout, w.chore
	b.mem.mu.Unlock()
	if old != nil {
		b.cancel(old)
	}
	if timeout == 0 {
		b.expire(round)
		return true
	}
	chore := b.later(timeout, func() { b.expire(round) })
	b.mem.mu.Lock()
	defer b.mem.mu.Unlock()
	if w.round == round {
		w.chore = chore
	}
	return true
}

// watchForTimer sees to it that the timer stops when the host goes off by itself, if that can be
// seen.
func (b *BMC) watchForTimer() {
	w, ok := b.sys.(Watcher)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !ok || b.unwatchTimer != nil || b.life.Load() == closed {
		return
	}
	b.unwatchTimer = w.Watch(func(s PowerState) {
		if s == Off {
			b.stopTimer()
		}
	})
}

// stopTimer is what becomes of the timer when the host goes off or is reset (IPMI 2.0, sections
// 27.1, 27.2 and 27.6): it has to be set again before it can be started, and is logged again.
func (b *BMC) stopTimer() {
	b.mem.mu.Lock()
	w := &b.mem.timer
	old := w.chore
	w.Running, w.Unlogged, w.primed, w.chore = false, false, false, nil
	w.round++
	b.mem.mu.Unlock()
	if old != nil {
		b.cancel(old)
	}
}

func (b *BMC) expire(round int) {
	isOff := b.actual() == Off // of which no event came
	b.mem.mu.Lock()
	w := &b.mem.timer
	mine := w.Running && w.round == round
	switch {
	case mine && isOff:
		b.mem.mu.Unlock()
		b.stopTimer()
		return
	case mine:
		w.Running, w.Unlogged, w.chore = false, false, nil
		w.Expired |= 1 << w.Use
	}
	action := w.Action
	b.mem.mu.Unlock()
	if mine && action != "" {
		b.act(ClientWatchdog, action)
	}
}
