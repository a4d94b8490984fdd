package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/vms/guest/evidence"
	"time"
)

// portFD is the descriptor on which the kubelet and the workloads inherit the port: the kernel lets
// it be opened only once.
const portFD = 3

// witness writes evidence to the port. Its lines are short, so each is one buffer of the port and
// never torn.
type witness struct {
	port    io.Writer
	boot    string
	process string
	seq     uint64
}

func newWitness(port io.Writer, process string) (*witness, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("read boot id: %w", err)
	}
	return &witness{port: port, boot: strings.TrimSpace(string(id)), process: process}, nil
}

func (w *witness) say(kind evidence.Kind, detail string) {
	w.write(evidence.Line{Kind: kind, Process: w.process, Detail: detail})
}

// beat is for the process's main goroutine only.
func (w *witness) beat() {
	w.seq++
	w.write(evidence.Line{Kind: evidence.Heartbeat, Process: w.process, Seq: w.seq})
}

func (w *witness) write(line evidence.Line) {
	line.Boot, line.Uptime = w.boot, uptime()
	text, err := json.Marshal(line)
	if err == nil {
		_, err = w.port.Write(append(text, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fencelab guest: write evidence:", err)
	}
}

func uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

// openPort finds the port by its name, as udev would, and waits until the device is there.
func openPort(wanted string) (*os.File, error) {
	for {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
		for _, path := range names {
			if name, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(name)) == wanted {
				return openBlocking("/dev/"+filepath.Base(filepath.Dir(path)), os.O_RDWR)
			}
		}
		if uptime() > deviceTimeout {
			return nil, fmt.Errorf("find virtio port %s: not there after %v", wanted, deviceTimeout)
		}
		time.Sleep(devicePoll)
	}
}

// openBlocking opens a device without Go's poller, which can't share a descriptor's blocking mode
// with other processes.
func openBlocking(path string, flags int) (*os.File, error) {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}
