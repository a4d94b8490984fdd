package fakebmc

import "time"

// State is what is, beside what the BMC remembers and would answer about it.
type State struct {
	Actual PowerState `json:"actual"` // of the machine; empty when the System can't say
	// Reported is what a read would get that no rule's client, path or header
	// selects; empty for null, and while the BMC is not up.
	Reported PowerState `json:"reported"`
	Boots    *int       `json:"boots"` // since any fixed time; null when the System doesn't count them
	Internal Internal   `json:"internal"`
}

// Internal is what a BMC remembers.
type Internal struct {
	Up bool `json:"up"`
	// Reset was accepted and is not done, as far as the BMC knows: yet, or ever.
	Reset         *Underway     `json:"reset"`
	RestorePolicy RestorePolicy `json:"restorePolicy"`
	Watchdog      *Countdown    `json:"watchdog"` // null while it doesn't run
	Rules         []string      `json:"rules"`    // in force
}

// Underway is a reset that a BMC believes to be under way.
type Underway struct {
	Type   ResetType  `json:"type,omitempty"` // empty when it will never be done
	From   PowerState `json:"from"`
	Report string     `json:"report,omitempty"` // meanwhile; empty is the truth
}

// Countdown is a watchdog that runs.
type Countdown struct {
	Action    ResetType `json:"action"` // empty is none
	Remaining Duration  `json:"remaining"`
}

// BootCounter is a System that counts the boots that have begun since any fixed time.
type BootCounter interface {
	Boots() int
}

// State returns the truth beside what clients read. To look changes nothing: no rule
// counts it, and what the BMC believes stays as it is.
func (b *BMC) State() State {
	now := b.clk.Now()
	s := State{Actual: b.actual(), Internal: Internal{Up: b.life.Load() == up, RestorePolicy: b.RestorePolicy(), Rules: []string{}}}
	for _, r := range b.Rules() {
		s.Internal.Rules = append(s.Internal.Rules, r.Name)
	}
	if w := b.Watchdog(); w.Running {
		s.Internal.Watchdog = &Countdown{w.Action, Duration(w.Remaining)}
	}
	if c, ok := b.sys.(BootCounter); ok {
		n := c.Boots()
		s.Boots = &n
	}
	m := &b.mem
	m.mu.Lock()
	under, boot := m.under, m.boot
	believed := m.believe(now, s.Actual)
	if m.under != nil {
		s.Internal.Reset = &Underway{m.under.reset, m.under.from, m.under.report}
	}
	m.under, m.boot = under, boot
	m.mu.Unlock()
	if s.Internal.Up && s.Actual != "" {
		s.Reported = b.foreseen(now, s.Actual, believed)
	}
	return s
}

// foreseen is what reported would be.
func (b *BMC) foreseen(now time.Duration, actual, believed PowerState) PowerState {
	a := &arrival{Request: b.PowerRequest(""), bmc: b, kind: read, now: now, actual: actual, looked: true}
	e := judge(*b.rules.Load(), a, false).effects
	if r := e.First(func(e *Effect) bool { return e.Report != "" }); r != nil {
		return told(r.Report)
	}
	if lag := e.lag(); lag > 0 {
		if past, ok := b.mem.stateAt(now - lag); ok {
			return past
		}
	}
	return believed
}
