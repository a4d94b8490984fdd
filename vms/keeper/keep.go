package keeper

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// killTimeout bounds the wait for killed processes to vanish; only a process stuck in the kernel takes longer than milliseconds.
	killTimeout = 10 * time.Second
	// A child that was being forked when the program died shows its mark only once it executes, so one empty scan isn't enough.
	emptyScans   = 3
	scanInterval = 20 * time.Millisecond
)

// keep is the keeper process: it collects duties until its input ends, then does them.
func keep(in io.Reader, out io.Writer) int {
	// Whoever stops the program by signalling its whole group must not stop the keeper; SIGPIPE comes when the program is gone.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE)
	var marks, dirs []string
	answers := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var q request
		var r reply
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			r.Error = fmt.Sprintf("keeper: request %q: %v", lines.Text(), err)
		}
		if q.Mark != "" {
			marks = append(marks, q.Mark)
		}
		if q.TempDir != "" {
			if dir, err := os.MkdirTemp("", q.TempDir); err != nil {
				r.Error = err.Error()
			} else {
				r.Dir = dir
				dirs = append(dirs, dir)
			}
		}
		answers.Encode(r)
	}
	if err := clean(marks, dirs); err != nil {
		if answers.Encode(reply{Error: err.Error()}) != nil {
			fmt.Fprintln(os.Stderr, "fencelab keeper:", err)
		}
		return 1
	}
	return 0
}

// clean kills first: a living process could write into the directories.
func clean(marks, dirs []string) error {
	var errs []error
	deadline := time.Now().Add(killTimeout)
	for empty := 0; empty < emptyScans; time.Sleep(scanInterval) {
		alive := killMarked(marks)
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
	for _, dir := range dirs {
		if err := os.RemoveAll(dir); err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

// Sweep removes what is left of a process of that [Name] which has ended, and whose keepers may have been killed as well: it
// lets those that live finish, and does the work of the others. marks are those, beside the keepers' own, that something with
// its files below a directory of theirs bears. The error says what is left.
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
	all := []string{markOf(name)}
	for _, dir := range dirs {
		all = append(all, marks(dir)...)
	}
	return clean(all, dirs)
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
		// FindProcess holds a pidfd, so what is read after it belongs to the process that the signal reaches.
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
