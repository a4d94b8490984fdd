package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"time"
)

// looking is how long the cores are looked at.
const looking = 5 * time.Second

// allowed is how many stories can be told at once: as many as cores have nothing else to do, and at least one. A guest that
// is emulated keeps its times only if it gets a core when it needs one, and a story that is told too slowly is another.
func allowed() (int, error) {
	before, err := readStat()
	if err != nil {
		return 0, err
	}
	time.Sleep(looking)
	after, err := readStat()
	if err != nil {
		return 0, err
	}
	return atOnce(before, after, runtime.NumCPU())
}

func readStat() ([]byte, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil, fmt.Errorf("look at how busy the cores are: %w; say how many stories to tell at once: PROCS=n", err)
	}
	return stat, nil
}

// atOnce compares two readings of /proc/stat.
func atOnce(before, after []byte, cores int) (int, error) {
	idleBefore, allBefore, err := idleTime(before)
	if err != nil {
		return 0, err
	}
	idleAfter, allAfter, err := idleTime(after)
	if err != nil {
		return 0, err
	}
	if allAfter <= allBefore {
		return 0, fmt.Errorf("look at how busy the cores are: no time has passed in /proc/stat; say how many stories to tell at once: PROCS=n")
	}
	idle := math.Round((idleAfter - idleBefore) / (allAfter - allBefore) * float64(bytes.Count(after, []byte("\ncpu"))))
	return min(max(int(idle), 1), cores), nil
}

// idleTime is how long all cores had nothing to do, and how long they have been there, in the same unit: see proc(5).
func idleTime(stat []byte) (idle, all float64, err error) {
	total, _, _ := strings.Cut(string(stat), "\n")
	fields := strings.Fields(total)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, 0, fmt.Errorf("look at how busy the cores are: /proc/stat begins with %q", total)
	}
	for i, field := range fields[1:9] { // what guests use is in user and nice already
		var ticks float64
		if _, err := fmt.Sscan(field, &ticks); err != nil {
			return 0, 0, fmt.Errorf("look at how busy the cores are: /proc/stat begins with %q", total)
		}
		all += ticks
		if i == 3 || i == 4 { // idle, and idle while something is read
			idle += ticks
		}
	}
	return idle, all, nil
}
