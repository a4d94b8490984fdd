package fakebmc

import (
	"fmt"
	"time"
)

// Watchdog is the timer by which a host proves to its BMC that it is alive
// (IPMI 2.0, section 27). When it expires the BMC resets the host as ClientWatchdog.
// The BMC forgets it when it restarts and forgets.
type Watchdog struct {
	Enabled bool
	Action  ResetType     // "" (none), ForceRestart, ForceOff or PowerCycle
	Timeout time.Duration // from each feeding to the action
	Use     uint8         // IPMI timer use, 1 to 5: what kind of software feeds it

	// What Watchdog reports and SetWatchdog leaves alone.
	Running   bool
	Expired   bool // since it was set last
	Remaining time.Duration

	deadline time.Duration
	chore    *chore
	round    int // of feeding; an older timer that fires late is void
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
	b.mem.timer = Watchdog{Enabled: w.Enabled, Action: w.Action, Timeout: w.Timeout, Use: w.Use, round: b.mem.timer.round + 1}
	b.mem.mu.Unlock()
	if old != nil {
		b.cancel(old)
	}
	return nil
}

// FeedWatchdog starts the timer anew. It is false when there is none to start.
func (b *BMC) FeedWatchdog() bool {
	b.mem.mu.Lock()
	w := &b.mem.timer
	if !w.Enabled || w.Timeout == 0 {
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
	chore := b.later(timeout, func() { b.expire(round) })
	b.mem.mu.Lock()
	defer b.mem.mu.Unlock()
	if w.round == round {
		w.chore = chore
	}
	return true
}

func (b *BMC) expire(round int) {
	b.mem.mu.Lock()
	w := &b.mem.timer
	mine := w.Running && w.round == round
	if mine {
		w.Running, w.Expired, w.chore = false, true, nil
	}
	action := w.Action
	b.mem.mu.Unlock()
	if mine && action != "" {
		b.act(ClientWatchdog, action)
	}
}
