package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// programs keeps PID 1's view of the foreign programs that run in this guest.
type programs struct {
	all []*program
	out *witness
	// ready receives processes that have said that they are ready. Processes in Pods aren't PID
	// 1's children: waiting receives those that ask whether they may run, and gone those that have
	// ended.
	ready, waiting, gone chan started
	// ending says that the boot ends in good order, with all of them; none is said to be gone then.
	ending bool
}

type program struct {
	evidence.Program
	process process // nil while it doesn't run
	pid     int     // of that
	over    bool    // it is not started again in this boot
	// held says of one in a Pod, which the kubelet starts again, that it was killed and is to be
	// dead until it is started.
	held    bool
	waiters []started // the processes in Pods that wait to be allowed to run
}

// started is a process of a program.
type started struct {
	program string
	process process
	pid     int
	allow   func() // of one that waits
}

// process is one that can be signalled.
type process interface{ Signal(os.Signal) error }

func newPrograms(config []evidence.Program, out *witness) *programs {
	p := &programs{out: out, ready: make(chan started), waiting: make(chan started), gone: make(chan started)}
	for _, c := range config {
		p.all = append(p.all, &program{Program: c})
	}
	return p
}

// feed reports whether one of them feeds the watchdog.
func (p *programs) feed() bool {
	for _, one := range p.all {
		if one.FeedsWatchdog {
			return true
		}
	}
	return false
}

// start starts a program that doesn't run.
func (p *programs) start(one *program) error {
	if one.InPod {
		one.held = false
		one.admit()
		return nil
	}
	if one.process != nil || one.over {
		return nil
	}
	ours, its, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", one.Name, err)
	}
	cmd := exec.Command(evidence.ProgramPath, one.ConfigPath())
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{its} // evidence.ReadyFD
	err = cmd.Start()
	its.Close()
	if err != nil {
		ours.Close()
		return fmt.Errorf("start %s: %w", one.Name, err)
	}
	one.process, one.pid = cmd.Process, cmd.Process.Pid
	go func() {
		defer ours.Close()
		if n, _ := ours.Read(make([]byte, 1)); n > 0 {
			p.ready <- started{program: one.Name, process: cmd.Process, pid: cmd.Process.Pid}
		}
	}()
	return nil
}

// waits takes notice that a process in a Pod waits to be allowed to run.
func (p *programs) waits(s started) {
	for _, one := range p.all {
		if one.Name == s.program {
			one.waiters = append(one.waiters, s)
			one.admit()
		}
	}
}

// admit has a process go on that waits, if it may: one at a time, as a Pod's successor can be there
// before it has ended.
func (p *program) admit() {
	if len(p.waiters) == 0 || p.process != nil || p.held || p.over {
		return
	}
	next := p.waiters[0]
	p.waiters = p.waiters[1:]
	p.process, p.pid = next.process, next.pid
	next.allow()
}

// started takes notice that a process is ready.
func (p *programs) started(s started) {
	for _, one := range p.all {
		if one.process != nil && one.pid == s.pid {
			p.out.write(evidence.Line{Kind: evidence.ProgramStarted, Process: one.Name})
		}
	}
}

// startAll starts all.
func (p *programs) startAll(complain func(error)) {
	for _, one := range p.all {
		complain(p.start(one))
	}
}

// do does what a command says to the program of a name.
func (p *programs) do(command evidence.Command, name string) error {
	for _, one := range p.all {
		if one.Name != name {
			continue
		}
		if command == evidence.StartProgram {
			return p.start(one)
		}
		one.held = one.held || command == evidence.KillProgram
		if one.process != nil {
			return one.process.Signal(signals[command])
		}
	}
	return nil
}

var signals = map[evidence.Command]unix.Signal{
	evidence.KillProgram: unix.SIGKILL, evidence.PauseProgram: unix.SIGSTOP, evidence.ResumeProgram: unix.SIGCONT,
}

// starve kills those that feed the watchdog, for this boot.
func (p *programs) starve() error {
	for _, one := range p.all {
		if !one.FeedsWatchdog {
			continue
		}
		one.over = true
		if one.process != nil {
			if err := one.process.Signal(unix.SIGKILL); err != nil {
				return fmt.Errorf("kill %s: %w", one.Name, err)
			}
		}
	}
	return nil
}

// ended takes notice of the end of a process.
func (p *programs) ended(pid int) {
	for _, one := range p.all {
		one.waiters = slices.DeleteFunc(one.waiters, func(s started) bool { return s.pid == pid })
		if one.process != nil && one.pid == pid {
			one.process = nil
			if p.ending {
				continue
			}
			p.out.write(evidence.Line{Kind: evidence.ProgramStopped, Process: one.Name})
			one.admit()
		}
	}
}
