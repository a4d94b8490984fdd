package record

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/vms"
)

const (
	// window is how long a host has to starve before the lab says so: it is longer than what a boot
	// takes of a quiet machine.
	window = 4 * time.Second
	// wanted is the share of the window in which the host's processors had work to do, at least,
	// and starved that of this in which they waited for one of ours: then the host is as slow as if
	// it had a quarter of one.
	wanted, starved = 0.5, 0.75
)

// starving records which hosts get too little of this machine: an emulated processor is a thread
// that has to wait for a core. A program in such a guest can't help being late, feeding no
// watchdog and missing heartbeats.
type starving struct {
	hosts func() map[string]vms.Processors // that are on
	looks []look
}

// look holds the time that the hosts' processors had used at a moment.
type look struct {
	at    time.Duration
	hosts map[string]vms.Processors
}

// now looks, and says who starves, or nothing.
func (s *starving) now(at time.Duration) string {
	if s == nil {
		return ""
	}
	s.looks = append(s.looks, look{at, s.hosts()})
	for len(s.looks) > 1 && at-s.looks[1].at >= window {
		s.looks = s.looks[1:]
	}
	first, last := s.looks[0], s.looks[len(s.looks)-1]
	passed := last.at - first.at
	if passed < window {
		return ""
	}
	var names []string
	for host, after := range last.hosts {
		before, on := first.hosts[host]
		ran, waited := after.Ran-before.Ran, after.Waited-before.Waited
		if !on || before.Process != after.Process || ran < 0 || waited < 0 {
			continue
		}
		if (ran+waited).Seconds() >= wanted*passed.Seconds() && waited.Seconds() >= starved*(ran+waited).Seconds() {
			names = append(names, fmt.Sprintf("the processors of %s waited %s and ran %s of %s", host,
				waited.Round(100*time.Millisecond), ran.Round(100*time.Millisecond), passed.Round(100*time.Millisecond)))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
