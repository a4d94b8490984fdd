package keeper

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// killTimeout bounds the wait for killed processes to vanish; only a process stuck in the
	// kernel takes longer than milliseconds.
	killTimeout = 10 * time.Second
	// A child that was being forked when the program died shows its mark only once it executes, so
	// one empty scan isn't enough.
	emptyScans   = 3
	scanInterval = 20 * time.Millisecond
)

// keep is the keeper process: it collects duties until its input ends, then does them.
func keep(in io.Reader, out io.Writer) int {
	// Whoever stops the program by signalling its whole group must not stop the keeper; SIGPIPE
	// comes when the program is gone.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE)
	var duty duties
	answers := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var q request
		var r reply
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			r.Error = fmt.Sprintf("keeper: request %q: %v", lines.Text(), err)
		}
		if q.Mark != "" {
			duty.marks = append(duty.marks, q.Mark)
		}
		if q.Command != nil {
			duty.commands = append(duty.commands, q.Command)
		}
		if q.Cgroup != "" {
			duty.cgroups = append(duty.cgroups, q.Cgroup)
		}
		if q.TempDir != "" {
			if dir, held, err := makeDir(q.TempDir); err != nil {
				r.Error = err.Error()
			} else {
				defer held.Close()
				r.Dir = dir
				duty.dirs = append(duty.dirs, dir)
			}
		}
		answers.Encode(r)
	}
	if err := duty.clean(); err != nil {
		if answers.Encode(reply{Error: err.Error()}) != nil {
			fmt.Fprintln(os.Stderr, "fencelab keeper:", err)
		}
		return 1
	}
	return 0
}

// making prefixes a directory's name until this process has locked it.
const making = ".making-"

// makeDir makes a directory that is held from when it has its name, so that [Left] never finds one
// of a process that lives.
func makeDir(pattern string) (dir string, held *os.File, err error) {
	made, err := os.MkdirTemp("", making+pattern)
	if err != nil {
		return "", nil, err
	}
	if held, err = hold(made); err == nil {
		dir = filepath.Join(filepath.Dir(made), strings.TrimPrefix(filepath.Base(made), making))
		err = os.Rename(made, dir)
	}
	if err != nil {
		_ = os.Remove(made)
		return "", nil, err
	}
	return dir, held, nil
}

// hold locks a directory beside others who do, until the file is closed or the process ends.
func hold(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("hold %s: %w", dir, err)
	}
	return f, nil
}

// isHeld reports whether some process holds a directory. A directory that can't be opened counts
// as held, so we leave it alone.
func isHeld(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return true
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}

// duties holds the work of a keeper at the end.
type duties struct {
	marks, dirs, cgroups []string
	commands             []*command
}

// clean kills first: a living process could write into the directories.
func (d *duties) clean() error {
	var errs []error
	deadline := time.Now().Add(killTimeout)
	for empty := 0; empty < emptyScans; time.Sleep(scanInterval) {
		alive := killMarked(d.marks)
		if len(alive) == 0 {
			empty++
			continue
		}
		empty = 0
		if time.Now().After(deadline) {
			errs = append(errs, fmt.Errorf("processes %v outlive SIGKILL by %v: look at them with ps", alive, killTimeout))
			break
		}
	}
	for _, c := range d.commands {
		errs = append(errs, c.execute())
	}
	// What has no mark of its own, since it was started by a daemon in process namespaces that we
	// killed, is dying still.
	deadline = time.Now().Add(killTimeout)
	for _, path := range d.cgroups {
		errs = append(errs, until(deadline, func() error { return removeCgroups(path) }))
	}
	for _, dir := range d.dirs {
		errs = append(errs, until(deadline, func() error { return os.RemoveAll(dir) }))
	}
	return errors.Join(errs...)
}

// until tries something until it succeeds, or time is over.
func until(deadline time.Time, try func() error) error {
	for {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(scanInterval)
	}
}

// commandTimeout bounds a foreign command.
const commandTimeout = time.Minute

func (c *command) execute() error {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Env = c.Env
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(c.Args, " "), err, output)
	}
	return nil
}

// removeCgroups removes a path of cgroups from every hierarchy.
func removeCgroups(path string) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		words := strings.Fields(line) // what, where, type
		if len(words) < 3 || !strings.HasPrefix(words[2], "cgroup") {
			continue
		}
		var groups []string
		err := filepath.WalkDir(filepath.Join(words[1], path), func(group string, entry os.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				groups = append(groups, group)
			}
			if errors.Is(err, os.ErrNotExist) {
				return nil // it has gone meanwhile
			}
			return err
		})
		for _, group := range slices.Backward(groups) { // the inner ones first
			err = errors.Join(err, os.Remove(group))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Sweep removes what is left of a process of that [Name] which has ended, and whose keepers may
// have been killed as well: it lets those that live finish, and does the work of the others. marks
// returns further marks, beside the keepers' own, of processes with files below a keeper's
// directory. The error says what is left.
func Sweep(name string, marks func(dir string) []string) error {
	if !IsName(name) {
		return fmt.Errorf("sweep what is left of %q: that is no name of a process", name)
	}
	for deadline := time.Now().Add(2 * killTimeout); alive(argument + "\x00" + name + "\x00"); time.Sleep(scanInterval) {
		if time.Now().After(deadline) {
			return fmt.Errorf("sweep what is left of %s: its keepers are still at it after %v; end the processes called %s %s", name, 2*killTimeout, argument, name)
		}
	}
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), "*-"+name+"-*"))
	if err != nil {
		return fmt.Errorf("sweep what is left of %s: %w", name, err)
	}
	duty := duties{marks: []string{markOf(name)}, dirs: dirs, cgroups: []string{cgroupOf(name)}}
	for _, dir := range dirs {
		duty.marks = append(duty.marks, marks(dir)...)
	}
	return duty.clean()
}

// ours matches the directories of the keepers of fencelab's processes.
var ours = regexp.MustCompile(`^fencelab-[a-z]+-([a-z2-7]{8})-[0-9]+$`)

// Left names this user's processes of fencelab that were killed together with their keepers: their
// directories exist, but no process holds one. [Sweep] removes what they have left.
func Left() ([]string, error) {
	entries, err := os.ReadDir(os.TempDir())
	if err != nil {
		return nil, fmt.Errorf("look for what killed runs have left: %w", err)
	}
	mine, held := make(map[string]bool), make(map[string]bool)
	for _, e := range entries {
		words := ours.FindStringSubmatch(e.Name())
		info, err := e.Info()
		if words == nil || err != nil || !info.IsDir() {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == os.Getuid() {
			mine[words[1]] = true
		}
		held[words[1]] = held[words[1]] || isHeld(filepath.Join(os.TempDir(), e.Name()))
	}
	var left []string
	for _, name := range slices.Sorted(maps.Keys(mine)) {
		// A release that didn't hold its directories has its keepers all the same.
		if !held[name] && !alive(argument+"\x00"+name+"\x00") {
			left = append(left, name)
		}
	}
	return left, nil
}

// IsName reports whether a text looks like a [Name].
func IsName(text string) bool {
	return len(text) == nameLength && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// alive reports whether a process has these arguments.
func alive(arguments string) bool {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	return slices.ContainsFunc(lines, func(file string) bool {
		text, _ := os.ReadFile(file) // it may have ended meanwhile
		return string(text) == arguments
	})
}

// killMarked sends SIGKILL to every process that carries a mark and returns their ids.
func killMarked(marks []string) (alive []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		// FindProcess holds a pidfd, so what is read after it belongs to the process that the
		// signal reaches.
		process, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
		arguments, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if carries(string(environ), marks) || carries(string(arguments), marks) {
			process.Signal(syscall.SIGKILL)
			alive = append(alive, pid)
		}
		process.Release()
	}
	return alive
}

func carries(list string, marks []string) bool {
	for entry := range strings.SplitSeq(list, "\x00") {
		for _, mark := range marks {
			if strings.HasPrefix(entry, mark) {
				return true
			}
		}
	}
	return false
}
