package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tailLines is how much of a failed process's output an error quotes; kube-apiserver puts the reason last.
const tailLines = 15

// process is a child whose output goes to a file beside its data.
type process struct {
	name   string
	log    string
	cmd    *exec.Cmd
	exited chan struct{} // closed once waitErr is set
	// waitErr is how it ended; nil is exit status 0.
	waitErr error
}

func (c *Cluster) start(bin, dir, name string, args []string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), exited: make(chan struct{})}
	output, err := os.OpenFile(p.log, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	path, err := filepath.Abs(filepath.Join(bin, name))
	if err != nil {
		return nil, err
	}
	p.cmd = exec.Command(path, args...)
	p.cmd.Dir = dir
	// Nothing of our environment: etcd takes every ETCD_* variable for a flag.
	p.cmd.Env = []string{"TMPDIR=" + dir, c.keeper.Mark()}
	p.cmd.Stdout, p.cmd.Stderr = output, output
	// Ctrl-C reaches a whole process group, but we still need the API server to clean up and to report.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, err // it names the path
	}
	go func() {
		p.waitErr = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// failure describes a process that ended by itself. Call it after exited is closed.
func (p *process) failure() error {
	how := "exit status 0"
	if p.waitErr != nil {
		how = p.waitErr.Error()
	}
	return fmt.Errorf("%s ended by itself (%s); its last lines:\n%s", p.name, how, p.tail())
}

func (p *process) tail() []byte {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Appendf(nil, "(unreadable: %v)", err)
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-tailLines):], []byte("\n"))
}

// pause returns once every thread stands still.
func (p *process) pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		// WNOWAIT leaves the news where it is, so that pausing twice doesn't wait for a second one.
		switch err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil); err {
		case nil:
			return nil
		case unix.EINTR:
		default:
			return fmt.Errorf("await the pause of %s: %w", p.name, err)
		}
	}
}

func (p *process) resume() error { return p.signal(syscall.SIGCONT) }

func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %v to %s: %w", s, p.name, err)
	}
	return nil
}

// stop ends the process; the error says that it had ended before.
func (p *process) stop() error {
	select {
	case <-p.exited:
		return p.failure()
	default:
	}
	// A paused process would keep SIGTERM pending. ErrProcessDone is a process that ended meanwhile.
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := p.signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	select {
	case <-p.exited:
	case <-time.After(stopTimeout):
		if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		<-p.exited
	}
	return nil
}
