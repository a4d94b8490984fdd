// Package slots shares a machine among all that is heavy and has to keep times: labs, clusters of
// kind's, browsers. Each takes as many slots as it costs, and waits until there is room. That holds
// for all processes of the machine, whoever started them: a slot is a lock on a file in a directory
// that all users share, so the kernel frees it however its holder ends.
//
// Beginnings cost most, so they come one after the other: whoever has been let in holds the door
// until it says [Turn.Begun]. Whoever waits stands in a line, and the first in it is the next to be
// let in: what is big is not overtaken for ever by what is small.
package slots

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fencelab/fencelab/lab/machine"
)

const (
	// Variable says how a process that is started takes its slots: with Held it does without, since
	// whoever started it has them; with Last it takes all of the machine, after everybody else.
	Variable = "FENCELAB_SLOTS"
	Held     = "held"
	Last     = "last"

	// All is the cost of what is to have the machine for itself, after everybody else.
	All = math.MaxInt

	// perCore is the number of slots of a core. A lab of two small guests costs four, and takes a
	// sixth of a core: with four to a core the machine was idle for two thirds of make e2e.
	// HasRoom guards against a core that is busier than usual.
	perCore = 8
	// perSlot is the memory that goes with a slot.
	perSlot = 512 << 20

	// poll is the interval of looks for a place, which others may leave at any time.
	poll = 200 * time.Millisecond
	// sayAfter is the wait before the first message to a waiter.
	sayAfter = 15 * time.Second
	// busy is the share of the time in which something waits for a core, from which on it is
	// measured what is left of one; and enough the share of a core that has to be left for another
	// to be let in. What has a positive nice value doesn't count then.
	busy, enough = 0.4, 0.6
)

// Gate is a directory of slots.
type Gate struct {
	Dir  string
	Size machine.Size
	// HasRoom reports whether there is time of the cores to be had.
	HasRoom func() bool
	// Available returns the memory that is available, in bytes.
	Available func() int64
}

// Machine is the gate of this machine.
func Machine() *Gate {
	size := machine.Look(machine.Root)
	return &Gate{
		Dir: "/tmp/fencelab-slots", Size: size, HasRoom: (&pressure{limited: size.Cores < float64(runtime.NumCPU())}).hasRoom,
		Available: func() int64 { return machine.Available(machine.Root) },
	}
}

// Count returns the number of slots.
func (g *Gate) Count() int {
	return max(1, min(int(g.Size.Cores*perCore), int(g.Size.Memory/perSlot)))
}

// pressure looks at how busy the machine is, by what the kernel counts, and where it is busy by
// trying.
type pressure struct {
	// limited says that a cgroup grants less than the cores that there are. Whether it is used up
	// shows by trying alone: what waits for it waits for no core.
	limited bool
	at      time.Time
	stalled time.Duration
}

// glance is from one look to the next: trying takes time of a core, too.
const glance = 2 * time.Second

func (p *pressure) hasRoom() bool {
	now := time.Now()
	if now.Sub(p.at) < glance {
		return false
	}
	stalled, known := machine.Stalled(machine.Root)
	share := (stalled - p.stalled).Seconds() / now.Sub(p.at).Seconds()
	first := p.at.IsZero()
	p.at, p.stalled = now, stalled
	if known && !first && share < busy && !p.limited {
		return true
	}
	return machine.Measure().Got >= enough
}

// taken holds the turns of this process that were not released. Without a reference, garbage
// collection would close the file of a turn and free its slot.
var taken sync.Map

// Turn is a place among the heavy. The nil Turn is one that needs none.
type Turn struct {
	mu    sync.Mutex
	door  *os.File
	slots []*os.File
	// place is the turn's in the line, as long as it waits.
	place *os.File
}

// Take waits until cost slots are free, and takes them. A cost above the machine's number of slots
// takes all of them, so that there is always room where nothing else holds a slot. While it waits
// it calls say with the reason, unless say is nil.
func (g *Gate) Take(ctx context.Context, name string, cost int, say func(format string, args ...any)) (*Turn, error) {
	last := os.Getenv(Variable) == Last || cost == All
	if os.Getenv(Variable) == Held {
		return nil, nil
	}
	if err := g.open(); err != nil {
		return nil, fmt.Errorf("wait for room for %s: %w", name, err)
	}
	count := g.Count()
	if cost = min(cost, count); last {
		cost = count
	}
	turn := new(Turn)
	began := time.Now()
	for said := began; ; {
		if turn.place == nil && !last {
			turn.place = g.join(name)
		}
		if turn.door == nil && g.isNext(turn.place) {
			turn.door = g.lock("door", name)
		}
		if turn.door != nil && turn.fill(g, name, cost, count) {
			turn.leave()
			taken.Store(turn, true)
			return turn, nil
		}
		if last { // those that come later go first
			turn.Begun()
		}
		if say != nil && time.Since(said) >= sayAfter {
			said = time.Now()
			say("waiting for room on this machine for %s: %s", time.Since(began).Round(time.Second), g.describe(cost))
		}
		select {
		case <-ctx.Done():
			turn.Release()
			return nil, context.Cause(ctx)
		case <-time.After(poll):
		}
	}
}

// fill takes the slots if enough are free, and there is processor time and memory to be had, or if
// no other turn has any.
func (t *Turn) fill(g *Gate, name string, cost, count int) bool {
	others := 0
	for i := range count {
		slot := g.lock(fmt.Sprintf("slot-%d", i), name)
		if slot == nil {
			others++
			continue
		}
		t.slots = append(t.slots, slot)
	}
	if len(t.slots) >= cost && (others == 0 || g.Available() >= int64(cost)*perSlot && g.HasRoom()) {
		free(t.slots[cost:])
		t.slots = t.slots[:cost]
		return true
	}
	free(t.slots)
	t.slots = nil
	return false
}

// inLine prefixes the files of waiters; the number of their place follows.
const inLine = "waits-"

// join takes the last place in the line, or returns nil if another process takes one just now.
func (g *Gate) join(name string) *os.File {
	line := g.lock("line", name)
	if line == nil {
		return nil
	}
	defer free([]*os.File{line})
	last := 0
	for _, place := range g.line() {
		last = max(last, place)
	}
	return g.lock(fmt.Sprintf("%s%d", inLine, last+1), name)
}

// line returns the places of waiters, including any that were killed while they waited.
func (g *Gate) line() []int {
	entries, err := os.ReadDir(g.Dir)
	if err != nil {
		return nil
	}
	var places []int
	for _, entry := range entries {
		if number, ok := strings.CutPrefix(entry.Name(), inLine); ok {
			if place, err := strconv.Atoi(number); err == nil {
				places = append(places, place)
			}
		}
	}
	slices.Sort(places)
	return places
}

// isNext reports whether this waiter is first in line. One that has no place yet is behind
// everybody.
func (g *Gate) isNext(mine *os.File) bool {
	for _, place := range g.line() {
		file := fmt.Sprintf("%s%d", inLine, place)
		switch {
		case mine != nil && filepath.Base(mine.Name()) == file:
			return true
		case g.holder(file) != "":
			return false
		default:
			g.clear(file)
		}
	}
	return mine == nil
}

// clear removes the place of a waiter that was killed; no place can be taken meanwhile.
func (g *Gate) clear(file string) {
	line := g.lock("line", "who clears it")
	if line == nil {
		return
	}
	defer free([]*os.File{line})
	if g.holder(file) == "" {
		_ = os.Remove(filepath.Join(g.Dir, file)) // which only its owner may
	}
}

// leave leaves the line.
func (t *Turn) leave() {
	if t.place != nil {
		_ = os.Remove(t.place.Name()) // or whoever finds it unlocked does
		free([]*os.File{t.place})
		t.place = nil
	}
}

func free(locked []*os.File) {
	for _, f := range locked {
		_ = f.Truncate(0) // the name of its holder
		_ = f.Close()     // which unlocks it
	}
}

// Begun lets the next begin: what costs most is over.
func (t *Turn) Begun() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.door != nil {
		free([]*os.File{t.door})
		t.door = nil
	}
}

// Release gives the slots back.
func (t *Turn) Release() {
	if t == nil {
		return
	}
	t.Begun()
	t.mu.Lock()
	defer t.mu.Unlock()
	taken.Delete(t)
	t.leave()
	free(t.slots)
	t.slots = nil
}

// open makes the directory, unless it is there. It is everybody's, as that for temporary files is.
func (g *Gate) open() error {
	switch err := os.Mkdir(g.Dir, 0o777); {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return err
	}
	return os.Chmod(g.Dir, 0o777|fs.ModeSticky)
}

// lock locks a file and writes the holder's name in it; nil if another process has it locked. It
// first opens an existing file: in a directory that all share, a file of another user may not be
// opened with the flag that makes one.
func (g *Gate) lock(file, name string) *os.File {
	file = filepath.Join(g.Dir, file)
	f, err := os.OpenFile(file, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if f, err = os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666); err == nil {
			err = f.Chmod(0o666)
		}
	}
	if err != nil {
		return nil // somebody makes it just now
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		_ = f.Close()
		return nil
	}
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintf(f, "%s, process %d", name, os.Getpid()) // for who waits, which is a courtesy
	}
	return f
}

// describe names the holders of the slots that a waiter needs.
func (g *Gate) describe(cost int) string {
	count := g.Count()
	var holders []string
	full := 0
	for i := range count {
		holder := g.holder(fmt.Sprintf("slot-%d", i))
		if holder == "" {
			continue
		}
		full++
		if !slices.Contains(holders, holder) {
			holders = append(holders, holder)
		}
	}
	text := fmt.Sprintf("it takes %d of %d slots, of which %d are taken", cost, count, full)
	if full > 0 {
		text += " by " + strings.Join(holders, " and by ")
	}
	if begins := g.holder("door"); begins != "" {
		text += "; now begins, or is next, " + begins
	}
	return text
}

// holder returns the name in a locked file, or nothing if it isn't locked: a process that was
// killed has left its name.
func (g *Gate) holder(file string) string {
	f, err := os.Open(filepath.Join(g.Dir, file))
	if err != nil {
		return ""
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil {
		return ""
	}
	name, _ := io.ReadAll(f) // which is a courtesy
	return string(name)
}
