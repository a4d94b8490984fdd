package fakebmc

import (
	"sync"
	"time"
)

// memory is the BMC's internal state: what it knows about its host beyond what
// the host is now. A restart of the BMC would lose it.
type memory struct {
	mu    sync.Mutex
	stuck *stuckShutdown
	// edges are the power states seen and when, oldest first; kept only while a
	// lag rule needs them, and then never empty.
	edges []edge
}

type edge struct {
	at    time.Duration
	state PowerState
}

// stuckShutdown is a graceful shutdown that was accepted and never ends.
type stuckShutdown struct {
	report PowerState
	until  time.Duration // Never is for ever
}

// remember appends an edge and drops those that no lag reaches any more.
func (m *memory) remember(now time.Duration, s PowerState, maxLag time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.edges); n > 0 && m.edges[n-1].state == s {
		return
	}
	m.edges = append(m.edges, edge{now, s})
	drop := 0
	for drop+1 < len(m.edges) && m.edges[drop+1].at <= now-maxLag {
		drop++
	}
	m.edges = append(m.edges[:0], m.edges[drop:]...)
}

func (m *memory) forgetEdges() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.edges = nil
}

// stateAt is the power state at a time, or the oldest one known.
func (m *memory) stateAt(t time.Duration) (PowerState, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := len(m.edges) - 1; i >= 0; i-- {
		if m.edges[i].at <= t || i == 0 {
			return m.edges[i].state, true
		}
	}
	return "", false
}

func (m *memory) beginStuck(now time.Duration, s *Stuck) {
	m.mu.Lock()
	defer m.mu.Unlock()
	until := Never
	if s.For > 0 {
		until = now + time.Duration(s.For)
	}
	m.stuck = &stuckShutdown{report: s.Report, until: until}
}

func (m *memory) endStuck() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stuck = nil
}

// believed bends the actual state by a shutdown that the BMC thinks is under way.
func (m *memory) believed(now time.Duration, actual PowerState) PowerState {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stuck == nil {
		return actual
	}
	if actual != On || m.stuck.until != Never && now >= m.stuck.until {
		m.stuck = nil // a later boot is none of its business
		return actual
	}
	if m.stuck.report != "" {
		return m.stuck.report
	}
	return actual
}
