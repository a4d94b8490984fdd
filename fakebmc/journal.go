package fakebmc

import (
	"slices"
	"time"
)

// Entry is a reset of the host in its BMC's log, as a client can read it.
type Entry struct {
	ID     uint64 // counts from 1
	At     time.Duration
	Reset  ResetType
	Client string
}

// maxEntries is how many a log has, the newest ones.
const maxEntries = 100

// journal is a BMC's log.
type journal struct {
	entries []Entry
	last    uint64
}

// enter adds a reset to the log.
func (m *memory) enter(now time.Duration, client string, t ResetType) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.log == nil {
		m.log = new(journal)
	}
	m.log.last++
	all := append(m.log.entries, Entry{m.log.last, now, t, client})
	m.log.entries = all[max(0, len(all)-maxEntries):]
}

// Entries are the resets that the BMC has carried out, the oldest first. They outlive its restarts.
func (b *BMC) Entries() []Entry {
	b.mem.mu.Lock()
	defer b.mem.mu.Unlock()
	if b.mem.log == nil {
		return nil
	}
	return slices.Clone(b.mem.log.entries)
}

// ClearEntries empties the log.
func (b *BMC) ClearEntries() {
	b.mem.mu.Lock()
	defer b.mem.mu.Unlock()
	if b.mem.log != nil {
		b.mem.log.entries = nil
	}
}

// Age is how long ago something happened.
func (b *BMC) Age(e Entry) time.Duration { return b.clk.Now() - e.At }
