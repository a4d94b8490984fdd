package record

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	thismachine "github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/scenarios/play"
)

// The phases of a lab, for its account.
const (
	ComingUp = "coming up"
	Telling  = "story"
	Leaving  = "going"
)

// tally is how often the account is brought up to date: of a process that ends, what it took since
// then is lost.
const tally = 2 * time.Second

// Account records a lab's use of this machine's processors: seconds for each part in each phase.
// It doesn't include what a foreign daemon has started, such as kind's containers.
type Account struct {
	mu    sync.Mutex
	phase string
	known map[int]time.Duration // of each process
	spent map[[2]string]time.Duration
}

// Enter begins a phase.
func (a *Account) Enter(phase string) {
	if a == nil {
		return
	}
	a.Update()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.phase = phase
}

// Update adds what was spent since the last time to the phase.
func (a *Account) Update() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil {
		a.known, a.spent = make(map[int]time.Duration), make(map[[2]string]time.Duration)
	}
	var own syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &own) == nil {
		a.add(os.Getpid(), "fencelab", time.Duration(own.Utime.Nano()+own.Stime.Nano()))
	}
	lists, _ := filepath.Glob("/proc/self/task/*/children") // the pattern is a good one
	for _, list := range lists {
		children, _ := os.ReadFile(list) // the thread may have ended meanwhile
		for child := range strings.FieldsSeq(string(children)) {
			if pid, err := strconv.Atoi(child); err == nil {
				if part, took, ok := childAt(pid); ok {
					a.add(pid, part, took)
				}
			}
		}
	}
}

// add is called with mu held. Before the first phase nothing is the lab's.
func (a *Account) add(pid int, part string, took time.Duration) {
	before, known := a.known[pid]
	if pid == os.Getpid() && !known {
		before = took
	}
	a.known[pid] = took
	if a.phase != "" {
		a.spent[[2]string{a.phase, part}] += max(0, took-before)
	}
}

// ticks is how many of them a second has in /proc.
const ticks = 100

// childAt returns the name of a child process, and the processor time that it has used.
func childAt(pid int) (part string, took time.Duration, ok bool) {
	arguments, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended meanwhile
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, found := bytes.Cut(stat, []byte(") "))
	words := bytes.Fields(rest)
	if !found || len(words) < 15 {
		return "", 0, false
	}
	for _, word := range words[11:15] { // its own time and that of its children, of users and of the system
		n, err := strconv.Atoi(string(word))
		if err != nil {
			return "", 0, false
		}
		took += time.Duration(n) * time.Second / ticks
	}
	name, _, _ := bytes.Cut(arguments, []byte{0})
	part, _, _ = strings.Cut(filepath.Base(string(name)), "[") // behind it stands whose it is
	if strings.HasPrefix(part, "qemu") {
		part = "hosts"
	}
	return part, took, part != "."
}

// Keep brings the account up to date until the run ends.
func (a *Account) Keep(ctx context.Context) {
	for thismachine.Sleep(ctx, tally) {
		a.Update()
	}
}

// Spent returns the time that was spent, in the order of phases and parts.
func (a *Account) Spent() (all []play.Spent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for of, took := range a.spent {
		if seconds := took.Round(10 * time.Millisecond).Seconds(); seconds > 0 {
			all = append(all, play.Spent{Phase: of[0], Part: of[1], Seconds: seconds})
		}
	}
	slices.SortFunc(all, func(a, b play.Spent) int {
		return cmp.Or(strings.Compare(a.Phase, b.Phase), strings.Compare(a.Part, b.Part))
	})
	return all
}
