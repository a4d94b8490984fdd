package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// looking is how long is tried how much time of the cores there is to be had.
const looking = 3 * time.Second

// look asks for what is allowed in a session of its own, as the suites have.
func look(ctx context.Context) (int, error) {
	var said, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-look")
	cmd.Stdout, cmd.Stderr = &said, &complaint
	if err := runSession(cmd); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, &complaint)
	}
	return strconv.Atoi(strings.TrimSpace(said.String()))
}

// allowed is how many stories can be told at once: as many as there are cores to be had, with the priority that this process
// has, and at least one. A guest that is emulated keeps its times only if it gets a core when it needs one, and a story that is
// told too slowly is another.
func allowed() (int, error) {
	cores := runtime.NumCPU()
	before, err := used()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	var spinning sync.WaitGroup
	for range cores {
		spinning.Go(func() {
			for time.Since(began) < looking {
			}
		})
	}
	spinning.Wait()
	took := time.Since(began)
	after, err := used()
	if err != nil {
		return 0, err
	}
	return atOnce(after-before, took, cores), nil
}

// used is how much time of the cores this process has had.
func used() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, fmt.Errorf("ask how much time of the cores was used: %w", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}

// atOnce is how many of the cores were had, by the time used of them while some was spent. One of which a third was
// somebody else's still counts: two busy loops that go last take a tenth of each, and other virtual machines may take some.
func atOnce(used, spent time.Duration, cores int) int {
	return min(max(int(used.Seconds()/spent.Seconds()+1.0/3), 1), cores)
}
