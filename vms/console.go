//go:build cgo && libvirt_dlopen

package vms

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"time"
)

// ConsoleLine holds a line that a guest wrote to its serial console, without its line ending.
type ConsoleLine struct {
	At   time.Duration // when the line was seen to begin, in terms of [Event.At]: up to glance late
	Host string
	Text string
}

// glance is how often consoles are looked at.
const glance = 25 * time.Millisecond

// consoles follow the logs of the hosts' consoles, which QEMU writes.
type consoles struct {
	now  func() time.Duration
	stop chan struct{}
	done chan struct{}

	mu    sync.Mutex
	files []*console
	lines []ConsoleLine
}

// console keeps the position up to which a log has been read.
type console struct {
	host, path string
	read       int64
	open       *ConsoleLine // one that has no end yet
}

func followConsoles(now func() time.Duration) *consoles {
	c := &consoles{now: now, stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(c.done)
		tick := time.NewTicker(glance)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.look()
			case <-c.stop:
				c.look()
				return
			}
		}
	}()
	return c
}

// add follows the console of a host as well, from the end of what it has written.
func (c *consoles) add(host, path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &console{host: host, path: path}
	if info, err := os.Stat(path); err == nil {
		f.read = info.Size()
	}
	c.files = append(c.files, f)
}

// look reads what is new.
func (c *consoles) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.now()
	for _, f := range c.files {
		text := f.next()
		for len(text) > 0 {
			if f.open == nil {
				f.open = &ConsoleLine{At: at, Host: f.host}
			}
			line, rest, ended := bytes.Cut(text, []byte("\n"))
			f.open.Text += string(line)
			if text = rest; ended {
				c.end(f)
			}
		}
	}
}

func (c *consoles) end(f *console) {
	f.open.Text = strings.TrimRight(f.open.Text, "\r")
	c.lines = append(c.lines, *f.open)
	f.open = nil
}

// next returns the bytes written since the last call. A failed read is repeated by the next call.
func (f *console) next() []byte {
	info, err := os.Stat(f.path)
	if err != nil || info.Size() <= f.read {
		return nil
	}
	file, err := os.Open(f.path)
	if err != nil {
		return nil
	}
	defer file.Close()
	text := make([]byte, info.Size()-f.read)
	n, _ := file.ReadAt(text, f.read)
	f.read += int64(n)
	return text[:n]
}

// close reads the rest; lines without an end are ended.
func (c *consoles) close() {
	close(c.stop)
	<-c.done
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.files {
		if f.open != nil {
			c.end(f)
		}
	}
}

// ConsoleLines returns the lines that the guests have written to their consoles so far, in the
// order in which they were seen.
func (l *Lab) ConsoleLines() []ConsoleLine {
	l.consoles.mu.Lock()
	defer l.consoles.mu.Unlock()
	return append([]ConsoleLine(nil), l.consoles.lines...)
}
