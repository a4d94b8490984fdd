// Package keeper removes what a process made, also when that process is killed with SIGKILL.
//
// A keeper is a second process: the program executes itself again, in a session of its own, and
// holds the write end of a pipe to it. The kernel closes that pipe however the program ends, and
// then the keeper kills every process that carries one of its marks and removes every directory
// that it made.
//
// A mark is an environment entry (or an argument, where the environment isn't ours to make).
// Marking beats a list of process ids: a child carries its mark from the moment it executes, so
// nothing can slip through between a start and its registration; grandchildren inherit it; and a
// reused process id doesn't carry it. Directories are made by the keeper itself for the same
// reason.
//
// Several programs may do this at once, of one user or of several. Their marks are drawn at random,
// and everything that bears a name has the program's own in it, see [Name].
//
// The program calls [Main] first thing in main and in TestMain, and [Start] when it is about to
// make something.
package keeper

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

const (
	// roleVariable marks the executed copy as the keeper.
	roleVariable = "FENCELAB_KEEPER_ROLE"
	markVariable = "FENCELAB_KEEPER"
	// minMark guards against a mark whose variable part came out empty.
	minMark = 20
	// nameLength is for paths of Unix sockets, which are short.
	nameLength = 8
	// argument names a keeper in lists of processes. The name of its owner follows.
	argument = "fencelab-keeper"
)

// markOf returns the prefix of the marks of all keepers of a process.
func markOf(name string) string { return markVariable + "=" + name + "-" }

var mainCalled bool

// Name is this process's own, in the names of all that it makes: directories, domains, processes.
// So two labs at once never meet, and who looks for leftovers finds only those of one.
var Name = sync.OnceValue(func() string { return strings.ToLower(rand.Text()[:nameLength]) })

// Keeper is the program's handle on its keeper process. Its methods may be called from any
// goroutine.
type Keeper struct {
	mark string
	cmd  *exec.Cmd

	mu       sync.Mutex
	requests io.WriteCloser
	replies  *bufio.Scanner
	closed   bool
	held     []*os.File // the directories
}

// request and reply are one line of JSON each. The end of requests is the order to clean.
type request struct {
	Mark    string   `json:"mark,omitempty"`    // kill processes that have an environment entry or an argument with this prefix
	TempDir string   `json:"tempDir,omitempty"` // make a directory of this pattern, and remove it at the end
	Command *command `json:"command,omitempty"` // execute this at the end
	Cgroup  string   `json:"cgroup,omitempty"`  // remove the cgroups at this path at the end
}

// command is executed with only the environment that is given here.
type command struct {
	Args []string `json:"args"`
	Env  []string `json:"env"`
}

type reply struct {
	Dir   string `json:"dir,omitempty"`
	Error string `json:"error,omitempty"`
}

// Main does a keeper's work and exits if the process was started as a keeper; otherwise it returns
// at once.
func Main() {
	if os.Getenv(roleVariable) == "" {
		mainCalled = true
		return
	}
	os.Exit(keep(os.Stdin, os.Stdout))
}

// Start starts a keeper. It fails if [Main] hasn't been called, since the executed copy would then
// run the program anew.
func Start() (*Keeper, error) {
	if !mainCalled {
		return nil, errors.New("start keeper: call keeper.Main first in main or TestMain")
	}
	k := &Keeper{mark: markOf(Name()) + rand.Text()}
	k.cmd = exec.Command("/proc/self/exe")
	k.cmd.Args = []string{argument, Name()}
	// Nothing of our environment: we may ourselves be marked by another keeper, which must not kill
	// this one.
	k.cmd.Env = []string{roleVariable + "=1", "TMPDIR=" + os.TempDir()}
	k.cmd.Dir = "/"
	k.cmd.Stderr = os.Stderr
	// A session of its own, because an interrupt from the terminal goes to the whole process group.
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	requests, err := k.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start keeper: %w", err)
	}
	replies, err := k.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start keeper: %w", err)
	}
	if err := k.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start keeper: %w", err)
	}
	k.requests, k.replies = requests, bufio.NewScanner(replies)
	if err := k.KillMarked(k.mark); err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

// Mark returns the environment entry ("NAME=value") that makes a process one of ours: append it to
// exec.Cmd.Env.
func (k *Keeper) Mark() string { return k.mark }

// KillMarked extends the keeper's duty to processes that have an environment entry or an argument
// beginning with prefix, for programs whose environment is made by others (libvirt clears its
// children's). The prefix must be unique to what we make, such as one that names a directory from
// [Keeper.TempDir].
func (k *Keeper) KillMarked(prefix string) error {
	if len(prefix) < minMark {
		return fmt.Errorf("have keeper kill processes marked %q: that is too short to be unique to us", prefix)
	}
	_, err := k.ask(request{Mark: prefix})
	return err
}

// TempDir makes a directory (mode 0700), which is removed with all its content at the end. It is a
// new one below [os.TempDir] called PREFIX-NAME-NUMBER, with the [Name] of this process.
func (k *Keeper) TempDir(prefix string) (string, error) {
	if prefix == "" || prefix != filepath.Base(prefix) {
		return "", fmt.Errorf("have keeper make a directory: prefix %q is not a plain name", prefix)
	}
	r, err := k.ask(request{TempDir: prefix + "-" + Name() + "-*"})
	if err != nil {
		return "", err
	}
	held, err := hold(r.Dir) // as the keeper does, who may be killed before us
	if err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held = append(k.held, held)
	return r.Dir, nil
}

// Do extends the keeper's duty to a command, which removes what somebody else's daemon has made for
// us. It is executed at the end, in any case, and so has to succeed also if nothing is there.
func (k *Keeper) Do(env []string, args ...string) error {
	_, err := k.ask(request{Command: &command{args, env}})
	return err
}

// Cgroup is a path that is ours in every hierarchy of cgroups, below which a program may make some:
// whatever is there at the end is removed, once nothing runs in it.
func (k *Keeper) Cgroup() (string, error) {
	path := cgroupOf(Name())
	_, err := k.ask(request{Cgroup: path})
	return path, err
}

// cgroupOf is the path of a process's cgroups.
func cgroupOf(name string) string { return "/fencelab-" + name }

// Close kills and removes everything, and returns when that is done. The error says what is left.
func (k *Keeper) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil
	}
	k.closed = true
	k.requests.Close()
	var errs []error
	for k.replies.Scan() {
		var r reply
		if err := json.Unmarshal(k.replies.Bytes(), &r); err == nil && r.Error != "" {
			errs = append(errs, errors.New(r.Error))
		}
	}
	if err := k.cmd.Wait(); err != nil && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("wait for keeper: %w", err))
	}
	for _, dir := range k.held {
		_ = dir.Close()
	}
	return errors.Join(errs...)
}

func (k *Keeper) ask(q request) (reply, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return reply{}, errors.New("ask keeper: it is closed")
	}
	line, err := json.Marshal(q)
	if err != nil {
		return reply{}, fmt.Errorf("ask keeper: %w", err)
	}
	if _, err := k.requests.Write(append(line, '\n')); err != nil {
		return reply{}, fmt.Errorf("ask keeper (was it killed?): %w", err)
	}
	if !k.replies.Scan() {
		return reply{}, fmt.Errorf("ask keeper: no answer (was it killed?): %w", errors.Join(k.replies.Err(), io.ErrUnexpectedEOF))
	}
	var r reply
	if err := json.Unmarshal(k.replies.Bytes(), &r); err != nil {
		return reply{}, fmt.Errorf("ask keeper: answer %q: %w", k.replies.Text(), err)
	}
	if r.Error != "" {
		return reply{}, errors.New(r.Error)
	}
	return r, nil
}
