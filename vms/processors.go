//go:build cgo && libvirt_dlopen

package vms

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Processors are the host's, since it was switched on; false if it is off, or if the kernel doesn't
// say.
func (d *Domain) Processors() (p Processors, on bool) {
	if p.Process = d.lab.hypervisor.process(d.spec.name); p.Process == 0 {
		return p, false
	}
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", p.Process)) // the pattern is a good one
	for _, thread := range threads {
		name, _ := os.ReadFile(filepath.Join(thread, "comm")) // it may have ended meanwhile
		if !strings.HasPrefix(string(name), "CPU ") {
			continue
		}
		text, _ := os.ReadFile(filepath.Join(thread, "schedstat"))
		var ran, waited time.Duration
		if _, err := fmt.Sscan(string(text), &ran, &waited); err == nil {
			p.Ran, p.Waited, on = p.Ran+ran, p.Waited+waited, true
		}
	}
	return p, on
}
