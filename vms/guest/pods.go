package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// pods executes commands on foreign Pods, like those on programs that know of PID 1. The kubelet
// restarts whatever ends in its Pods, so a Pod that has to stay dead is killed whenever it starts.
type pods struct {
	out *witness

	mu   sync.Mutex
	dead map[string]bool // by UID
}

func newPods(out *witness) *pods { return &pods{out: out, dead: make(map[string]bool)} }

// do executes a command on the Pod of a UID. A Pod that is gone needs nothing.
func (p *pods) do(command evidence.Command, uid string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch command {
	case evidence.KillPod:
		if !p.dead[uid] {
			p.dead[uid] = true
			go p.keepDead(uid)
		}
	case evidence.StartPod:
		delete(p.dead, uid)
	case evidence.PausePod:
		return freeze(uid, "1")
	case evidence.ResumePod:
		return freeze(uid, "0")
	}
	return nil
}

// keepDead kills what runs in a Pod until that is to run again, and says when it is gone for the
// first time.
func (p *pods) keepDead(uid string) {
	for said := false; ; time.Sleep(killPoll) {
		p.mu.Lock()
		over := !p.dead[uid]
		if !over {
			left := kill(uid)
			if !left && !said {
				p.out.say(evidence.PodStopped, uid)
				said = true
			}
		}
		p.mu.Unlock()
		if over {
			return
		}
	}
}

// kill kills all processes of a Pod but the one that holds its namespaces, and reports whether
// there were any.
func kill(uid string) (were bool) {
	for _, pid := range running(groupOf(uid)) {
		if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); bytes.Equal(line, []byte("/guest\x00pause\x00")) {
			continue
		}
		were = unix.Kill(pid, unix.SIGKILL) == nil || were
	}
	return were
}

func freeze(uid, value string) error {
	err := os.WriteFile(filepath.Join(groupOf(uid), "cgroup.freeze"), []byte(value), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// groupOf is the cgroup of a Pod, below that of its class; a name that doesn't exist if there is
// none.
func groupOf(uid string) string {
	for _, pattern := range []string{"/pod" + uid, "/*/pod" + uid} {
		if found, _ := filepath.Glob(podsGroup + pattern); len(found) > 0 {
			return found[0]
		}
	}
	return podsGroup + "/none"
}
