package main

import (
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// programs are those of others that run in this guest, as PID 1 sees them.
type programs struct {
	all []*program
	out *witness
	// ready are the processes that have said so.
	ready chan *exec.Cmd
}

type program struct {
	evidence.Program
	process *exec.Cmd // nil while it doesn't run
	over    bool      // it is not started again in this boot
}

func newPrograms(config []evidence.Program, out *witness) *programs {
	p := &programs{out: out, ready: make(chan *exec.Cmd)}
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
	one.process = cmd
	go func() {
		defer ours.Close()
		if n, _ := ours.Read(make([]byte, 1)); n > 0 {
			p.ready <- cmd
		}
	}()
	return nil
}

// started takes notice that a process is ready.
func (p *programs) started(cmd *exec.Cmd) {
	for _, one := range p.all {
		if one.process == cmd {
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
		switch {
		case one.Name != name:
		case command == evidence.StartProgram:
			return p.start(one)
		case one.process != nil:
			return one.process.Process.Signal(signals[command])
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
			if err := one.process.Process.Kill(); err != nil {
				return fmt.Errorf("kill %s: %w", one.Name, err)
			}
		}
	}
	return nil
}

// ended takes notice of the end of a process.
func (p *programs) ended(pid int) {
	for _, one := range p.all {
		if one.process != nil && one.process.Process.Pid == pid {
			one.process = nil
			p.out.write(evidence.Line{Kind: evidence.ProgramStopped, Process: one.Name})
		}
	}
}
