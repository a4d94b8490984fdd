// Package child starts other people's programs as child processes for tests and labs: each writes
// to a log that errors quote, can be paused, and is known to have ended by itself. A port of the
// loopback interface can be held for one before it listens, and its executable looked for before it
// is started.
//
// Killing what is left when we are killed is a keeper's work: give the child's environment its
// mark.
package child

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/vms/keeper"
)

const (
	// tailLines is how much of a process's output an error quotes: the reason is at its end, behind
	// a traceback in Python.
	tailLines = 30
	// stopTimeout limits how long a process may take between SIGTERM and SIGKILL. kube-apiserver
	// needs about a second.
	stopTimeout = 10 * time.Second
)

// Process is a child whose output goes to a file, with the processes that it starts itself: as in a
// container, they stand still and are killed with it, and none outlives it. One that leaves the
// process group is out of reach.
type Process struct {
	name   string
	log    string
	cmd    *exec.Cmd
	exited chan struct{} // closed once waitErr is set
	// waitErr is how it ended; nil is exit status 0.
	waitErr error

	mu     sync.Mutex
	reaped bool // its id may be another's
}

// Start starts a command, which errors and lists of processes call name, with its output appended
// to the file log.
func Start(name string, cmd *exec.Cmd, log string) (*Process, error) {
	if errSystem != nil {
		return nil, fmt.Errorf("start %s: %w", name, errSystem)
	}
	output, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Args[0] = fmt.Sprintf("%s[%s]", name, keeper.Name()) // whose it is, for who lists the machine's processes
	// Ctrl-C reaches a whole process group, but we still need the child to clean up and to report.
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{name: name, log: log, cmd: cmd, exited: make(chan struct{})}
	go p.wait()
	return p, nil
}

// wait waits for the end of the process, and kills what it leaves behind.
func (p *Process) wait() {
	// Until it is reaped, no other process group has its id.
	awaitEnd(p.Pid())
	p.mu.Lock()
	_ = unix.Kill(-p.Pid(), unix.SIGKILL) // there may be none
	p.waitErr = p.cmd.Wait()
	p.reaped = true
	p.mu.Unlock()
	close(p.exited)
}

// Pid is the process's id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Failure describes a process that ended by itself, with its last lines. Call it after Exited is
// closed.
func (p *Process) Failure() error {
	how := "exit status 0"
	if p.waitErr != nil {
		how = p.waitErr.Error()
	}
	return fmt.Errorf("%s ended by itself (%s); its last lines:\n%s", p.name, how, p.Tail())
}

// Tail is the last lines of the process's output.
func (p *Process) Tail() []byte { return Tail(p.log) }

// Tail is the last lines of a log.
func Tail(log string) []byte {
	text, err := os.ReadFile(log)
	if err != nil {
		return fmt.Appendf(nil, "(unreadable: %v)", err)
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-tailLines):], []byte("\n"))
}

// Pause stops the process with SIGSTOP, returns once every thread stands still, and has stopped
// what it has started by then. That comes second: one that starts a command by vfork stands still
// only when the command has its own program, which it never has if it was stopped before.
func (p *Process) Pause() error {
	if err := p.signal(p.Pid(), syscall.SIGSTOP); err != nil {
		return err
	}
	if err := awaitStop(p.Pid()); err != nil {
		return fmt.Errorf("await the pause of %s: %w", p.name, err)
	}
	return p.signal(-p.Pid(), syscall.SIGSTOP)
}

// Resume undoes Pause.
func (p *Process) Resume() error { return p.signal(-p.Pid(), syscall.SIGCONT) }

// Kill sends the process SIGKILL, unless it has ended.
func (p *Process) Kill() error {
	if err := p.signal(-p.Pid(), syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// signal sends a signal to a process, or with a negative id to a group of them.
func (p *Process) signal(pid int, s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := os.ErrProcessDone
	if !p.reaped {
		err = unix.Kill(pid, s)
	}
	if err != nil {
		return fmt.Errorf("send %v to %s: %w", s, p.name, err)
	}
	return nil
}

// Stop ends the process; the error says that it had ended before. A process that was never started
// needs no end.
func (p *Process) Stop() error {
	if p == nil {
		return nil
	}
	select {
	case <-p.exited:
		return p.Failure()
	default:
	}
	// It ends what it has started by itself. A paused process would keep SIGTERM pending.
	// ErrProcessDone is one that ended meanwhile.
	if err := errors.Join(p.signal(p.Pid(), syscall.SIGTERM), p.Resume()); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(stopTimeout):
	}
	err := p.Kill()
	if err == nil {
		<-p.exited
	}
	return err
}
