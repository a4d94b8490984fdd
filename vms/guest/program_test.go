package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// TestProgramsInPods: the kubelet starts them whenever it likes, and they run when they may.
func TestProgramsInPods(t *testing.T) {
	var did []string
	note := func(format string, args ...any) { did = append(did, fmt.Sprintf(format, args...)) }
	complain := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	port := new(writes)
	p := newPrograms([]evidence.Program{{Name: "watchdog", InPod: true, FeedsWatchdog: true}, {Name: "other", InPod: true}}, &witness{port: port, boot: "boot-1"})
	process := func(pid int) started {
		return started{program: "watchdog", pid: pid, process: signalled(func(s os.Signal) { note("%d: %v", pid, s) }), allow: func() { note("%d may run", pid) }}
	}
	for _, step := range []struct {
		what string
		do   func()
		want string // what was done to processes
		says string // kinds of lines that were written
	}{
		{"PID 1 starts none", func() { p.startAll(complain) }, "", ""},
		{"the first comes", func() { p.waits(process(1)) }, "1 may run", ""},
		{"and is ready", func() { p.started(process(1)) }, "", "program-started"},
		{"its successor comes too early", func() { p.waits(process(2)) }, "", ""},
		{"somebody else is killed", func() { complain(p.do(evidence.KillProgram, "other")) }, "", ""},
		{"it is killed", func() { complain(p.do(evidence.KillProgram, "watchdog")) }, "1: killed", ""},
		{"and is gone, for as long as it is to be dead", func() { p.ended(1) }, "", "program-stopped"},
		{"the kubelet loses one that waits", func() { p.ended(2) }, "", ""},
		{"and starts another", func() { p.waits(process(3)) }, "", ""},
		{"which may run now", func() { complain(p.do(evidence.StartProgram, "watchdog")) }, "3 may run", ""},
		{"paused before it is ready", func() { complain(p.do(evidence.PauseProgram, "watchdog")) }, "3: stopped (signal)", ""},
		{"one that is not the one that runs says that it is ready", func() { p.started(process(2)) }, "", ""},
		{"it ends by itself", func() { p.ended(3) }, "", "program-stopped"},
		{"its successor may run at once", func() { p.waits(process(4)) }, "4 may run", ""},
		{"it ends with its boot", func() { p.ending = true; p.ended(4) }, "", ""},
		{"in the next boot one may run again", func() { p.ending = false; p.waits(process(4)) }, "4 may run", ""},
		{"no watchdog is to be fed in this boot", func() { complain(p.starve()) }, "4: killed", ""},
		{"gone", func() { p.ended(4) }, "", "program-stopped"},
		{"no other may run", func() { p.waits(process(5)) }, "", ""},
		{"whatever it is told", func() { complain(p.do(evidence.StartProgram, "watchdog")) }, "", ""},
	} {
		did, *port = nil, nil
		step.do()
		var says []string
		for _, line := range *port {
			_, kind, _ := strings.Cut(line, `"kind":"`)
			kind, _, _ = strings.Cut(kind, `"`)
			says = append(says, kind)
		}
		if got := strings.Join(did, "; "); got != step.want {
			t.Errorf("%s: %q was done, want %q", step.what, got, step.want)
		}
		if got := strings.Join(says, " "); got != step.says {
			t.Errorf("%s: it said %q, want %q", step.what, got, step.says)
		}
	}
}

type signalled func(os.Signal)

func (f signalled) Signal(s os.Signal) error {
	f(s)
	return nil
}
