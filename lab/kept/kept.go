// Package kept keeps labs for developers: [Up] makes one, [Find] finds those that there are, and
// [Lab.Down] removes one.
//
// A lab that is kept lives in a process of its own, which runs [Keep], and has a directory of its
// own, by which it is found and in which it listens. However that process ends, the lab goes with
// it, as with any other (package keeper); Down also removes what is left when the keepers were
// killed, too.
package kept

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fencelab/fencelab/lab"
	"github.com/fencelab/fencelab/lab/cluster/kind"
	"github.com/fencelab/fencelab/vms"
	"github.com/fencelab/fencelab/vms/keeper"
)

const (
	// prefix is that of the directory of a lab.
	prefix = "fencelab-up"
	// The files in it.
	control    = "control"
	kubeconfig = "kubeconfig"
	password   = "bmc-password"
	events     = "events.log"
	talk       = "lab.log"
	// The two things that a lab can be asked for.
	askState, askDown = "state", "down"

	// sayAfter is how long a lab is silent at most while it is made or removed.
	sayAfter = 15 * time.Second
	// silence is how long one may be silent that is asked for something, before it counts as stuck.
	silence = 4 * sayAfter
	// killed limits how long the kernel may take to end a process that was killed.
	killed = 10 * time.Second
)

// Status is a lab's report on itself. While it is being made, there is no State.
type Status struct {
	Name     string    `json:"name"`
	Scenario string    `json:"scenario"`
	Made     string    `json:"made"` // of which parts
	Dir      string    `json:"dir"`
	Since    time.Time `json:"since"`
	Doing    string    `json:"doing,omitempty"` // what it does to come up, or to go

	*lab.State
}

// Kubeconfig, Password and Events are files of the lab: an administrator's, the one of the BMCs'
// account, and what happens.
func (s *Status) Kubeconfig() string { return filepath.Join(s.Dir, kubeconfig) }
func (s *Status) Password() string   { return filepath.Join(s.Dir, password) }
func (s *Status) Events() string     { return filepath.Join(s.Dir, events) }

// message is a line from a lab: on its standard output while it is made, and to each client.
type message struct {
	Say    string  `json:"say,omitempty"`
	Status *Status `json:"status,omitempty"`
	Error  *failed `json:"error,omitempty"`
}

// failed is an error that crosses processes.
type failed struct {
	Text string `json:"text"`
	Code int    `json:"code"` // the exit code that it leads to
}

// Lab is one that was found, which may have ended since.
type Lab struct {
	Name string
	Dir  string
}

var directory = regexp.MustCompile(`^` + prefix + `-([a-z2-7]+)-[0-9]+$`)

// Find returns the labs of this user below [os.TempDir], sorted by name.
func Find() ([]Lab, error) {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"-*"))
	if err != nil {
		return nil, fmt.Errorf("look for labs: %w", err)
	}
	var labs []Lab
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		match := directory.FindStringSubmatch(filepath.Base(dir))
		if err != nil || match == nil || !keeper.IsName(match[1]) {
			continue // it is gone, or not one of ours
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); ok && info.IsDir() && int(owner.Uid) == os.Getuid() {
			labs = append(labs, Lab{match[1], dir})
		}
	}
	slices.SortFunc(labs, func(a, b Lab) int { return strings.Compare(a.Name, b.Name) })
	return labs, nil
}

// ErrEnded is the error of requests to a lab whose process has ended.
var ErrEnded = errors.New("its process has ended")

// ask opens a connection to the lab's process, and asks it for something.
func (l Lab) ask(ctx context.Context, what string) (net.Conn, error) {
	conn, err := dial(ctx, l.Dir)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
		return nil, ErrEnded
	}
	if err == nil {
		_, err = fmt.Fprintln(conn, what)
	}
	if err != nil {
		if conn != nil {
			conn.Close()
		}
		return nil, l.unanswered(ctx, fmt.Errorf("ask the lab %s: %w", l.Name, err))
	}
	return conn, nil
}

// unanswered is ErrEnded if the process died while it was asked: it holds a connection until it has
// answered. Else it is the error.
func (l Lab) unanswered(ctx context.Context, err error) error {
	for _, died := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, died) && l.gone(ctx) == nil {
			return ErrEnded
		}
	}
	return err
}

// Status asks the lab how it is. The error is [ErrEnded] if no process is there to answer.
func (l Lab) Status(ctx context.Context) (*Status, error) {
	conn, err := l.ask(ctx, askState)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(sayAfter)); err != nil {
		return nil, fmt.Errorf("ask the lab %s: %w", l.Name, err)
	}
	var m message
	if err := json.NewDecoder(conn).Decode(&m); err != nil {
		return nil, l.unanswered(ctx, fmt.Errorf("ask the lab %s how it is: no answer: %w", l.Name, err))
	}
	return m.Status, nil
}

// Down removes the lab, and calls say with each step. A process that doesn't obey is killed. The
// error lists what is left.
func (l Lab) Down(ctx context.Context, say func(string)) error {
	if err := l.end(ctx, say); err != nil {
		return err
	}
	if err := errors.Join(keeper.Sweep(l.Name, vms.Marks), kind.Sweep(ctx, l.Name)); err != nil {
		return fmt.Errorf("remove the lab %s: %w", l.Name, err)
	}
	return nil
}

// end ends the lab's process, if there is one.
func (l Lab) end(ctx context.Context, say func(string)) error {
	conn, err := l.ask(ctx, askDown)
	if errors.Is(err, ErrEnded) {
		say("the lab's process has ended: removing what it left behind")
		return nil
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	process, err := peer(conn)
	if err != nil {
		return fmt.Errorf("find the process of the lab %s: %w", l.Name, err)
	}
	defer process.Release()
	for said := json.NewDecoder(conn); ; {
		var m message
		if err := conn.SetReadDeadline(time.Now().Add(silence)); err != nil {
			return err
		}
		switch err := said.Decode(&m); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			say(fmt.Sprintf("the lab has not responded for %v: killing it", silence))
			if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return fmt.Errorf("kill the process of the lab %s: %w", l.Name, err)
			}
			return l.gone(ctx)
		case err != nil: // the end: it holds the connection as long as it lives
			return l.gone(ctx)
		case m.Error != nil:
			say("the lab says: " + m.Error.Text) // what is left is removed all the same
		case m.Say != "":
			say(m.Say)
		}
	}
}

// gone waits until no process listens in the lab's directory any more.
func (l Lab) gone(ctx context.Context) error {
	for deadline := time.Now().Add(killed); ; {
		conn, err := dial(ctx, l.Dir)
		if err != nil {
			return nil
		}
		conn.Close()
		if time.Now().After(deadline) {
			return fmt.Errorf("remove the lab %s: its process is still running", l.Name)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// dial and listen go by way of the directory's descriptor, since the path of a socket is limited to
// 108 bytes.
func dial(ctx context.Context, dir string) (net.Conn, error) {
	opened, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	return new(net.Dialer).DialContext(ctx, "unix", socket(opened))
}

func listen(dir string) (net.Listener, error) {
	opened, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	l, err := net.Listen("unix", socket(opened))
	if err == nil {
		l.(*net.UnixListener).SetUnlinkOnClose(false) // it goes with the directory
	}
	return l, err
}

func socket(dir *os.File) string { return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), control) }
