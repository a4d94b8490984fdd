package fakebmc

import (
	"slices"
	"strconv"
	"sync"
	"time"
)

// memory is the BMC's internal state: what it knows about its host beyond what
// the host is now. A restart that forgets loses all but the restore policy.
type memory struct {
	mu     sync.Mutex
	under  *underway
	boot   *bootReport
	policy RestorePolicy
	tasks  []*task
	nextID int
	timer  Watchdog
	// edges are the power states seen and when, oldest first; kept only while a
	// rule needs them, and then never empty.
	edges   []edge
	changed time.Duration // when the last edge was seen to happen, or Never
	// restarted is when the BMC was up again after its last restart, or Never.
	restarted time.Duration
	log       *journal // which forgets nothing; nil before the first entry
}

type edge struct {
	at    time.Duration
	state PowerState
}

// underway is a reset that was accepted and not executed: yet, or ever.
type underway struct {
	reset  ResetType
	report string
	from   PowerState    // of the host; when it leaves this, the BMC believes it
	until  time.Duration // Never is for ever
	chore  *chore        // that will execute it
}

// bootReport is what a BMC says of its host when it has just booted.
type bootReport struct {
	report string
	until  time.Duration
}

// remember appends an edge and drops those that no lag reaches any more.
func (m *memory) remember(now time.Duration, s PowerState, maxLag time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.edges); n > 0 {
		if m.edges[n-1].state == s {
			return
		}
		m.changed = now
	}
	m.edges = append(m.edges, edge{now, s})
	drop := 0
	for drop+1 < len(m.edges) && m.edges[drop+1].at <= now-maxLag {
		drop++
	}
	m.edges = slices.Delete(m.edges, 0, drop)
}

func (m *memory) forgetEdges() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.edges, m.changed = nil, Never
}

// forget is what a restart may do. Edges are no knowledge of the BMC's but of
// what a rule must repeat.
func (m *memory) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.under, m.boot, m.tasks, m.timer = nil, nil, nil, Watchdog{}
}

func (m *memory) changedWithin(now, d time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed != Never && now-m.changed < d
}

func (m *memory) upAgain(now time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.restarted = now
}

func (m *memory) restartedWithin(now, d time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.restarted != Never && now-m.restarted < d
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

// replace begins a reset that is under way, or none, and returns the one before.
func (m *memory) replace(u *underway) *underway {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.under
	m.under = u
	return old
}

// transits reports whether a reset of this type waits for its execution already.
func (m *memory) transits(t ResetType) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.under != nil && m.under.chore != nil && m.under.reset == t
}

func (m *memory) insist(report string, until time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boot = &bootReport{report, until}
}

// believed bends the actual state by what the BMC thinks is under way.
func (m *memory) believed(now time.Duration, actual PowerState) PowerState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.believe(now, actual)
}

// believe is believed under mu.
func (m *memory) believe(now time.Duration, actual PowerState) PowerState {
	if m.boot != nil {
		if m.boot.until == Never || now < m.boot.until {
			return told(m.boot.report)
		}
		m.boot = nil
	}
	u := m.under
	if u == nil {
		return actual
	}
	if actual != u.from || u.until != Never && now >= u.until {
		if u.chore == nil {
			m.under = nil // a later boot is none of its business
		}
		return actual
	}
	if u.report != "" {
		return told(u.report)
	}
	return actual
}

// Task is a request that was answered with 202.
type Task struct {
	ID       string    `json:"id"`
	Of       string    `json:"of,omitempty"` // TaskOfManager or TaskOfMedia; empty is a reset of the host
	Reset    ResetType `json:"reset,omitempty"`
	Finished bool      `json:"finished,omitempty"` // it is done, or has failed
	Failure  *Answer   `json:"-"`                  // what it failed with
}

// What a Task does beside resetting the host.
const (
	TaskOfManager = "manager" // resets the BMC
	TaskOfMedia   = "media"   // puts an image into a drive
)

type task struct {
	Task
	begun time.Duration
	fault TaskFault
	looks uint64 // at its monitor
	idle  bool   // it was accepted, and is not being done
}

// newTask returns the task that it begins, as it is then.
func (m *memory) newTask(host string, begins task) *Task {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nextID++
	n := &begins
	n.ID = host + "-" + strconv.Itoa(m.nextID)
	m.tasks = append(m.tasks, n)
	if len(m.tasks) > maxTasks {
		m.tasks = slices.Delete(m.tasks, 0, 1)
	}
	begun := n.Task
	return &begun
}

// maxTasks is how many tasks a BMC remembers, the newest ones.
const maxTasks = 32

// Tasks returns the ids of the tasks that the BMC remembers, oldest first.
func (b *BMC) Tasks() []string {
	b.mem.mu.Lock()
	defer b.mem.mu.Unlock()
	var ids []string
	for _, t := range b.mem.tasks {
		ids = append(ids, t.ID)
	}
	return ids
}

// Task returns a task, and whether there is one of this id. A look at its monitor
// counts: a rule may hide it from the first ones.
func (b *BMC) Task(id string, monitor bool) (t Task, ok bool) {
	now, actual := b.clk.Now(), b.actual()
	b.mem.mu.Lock()
	defer b.mem.mu.Unlock()
	i := slices.IndexFunc(b.mem.tasks, func(t *task) bool { return t.ID == id })
	if i < 0 {
		return Task{}, false
	}
	x := b.mem.tasks[i]
	if monitor {
		if x.looks++; x.looks <= x.fault.Missing {
			return Task{}, false
		}
	}
	late := now >= x.begun+time.Duration(x.fault.After)
	if x.fault.Fails != nil {
		if x.Finished = late; late {
			a := x.fault.Fails.answer()
			x.Failure = &a
		}
		return x.Task, true
	}
	x.Finished = x.Finished || x.fault.Early || late && x.done(actual, b.mem.restarted)
	return x.Task, true
}

// done reports whether what the task is about has come about.
func (t *task) done(actual PowerState, restarted time.Duration) bool {
	switch t.Of {
	case TaskOfManager:
		return restarted >= t.begun
	case TaskOfMedia:
		return !t.idle
	}
	return t.Reset.leadsTo(actual)
}
