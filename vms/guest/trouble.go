package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// panicNow ends the kernel, which is to stay as it is then: its command line has it reboot after a
// panic.
func panicNow() error {
	if err := os.WriteFile("/proc/sys/kernel/panic", []byte("0"), 0); err != nil {
		return fmt.Errorf("panic: %w", err)
	}
	if err := os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0); err != nil {
		return fmt.Errorf("panic: %w", err)
	}
	return errors.New("panic: the kernel goes on")
}

// setClock changes the clock of the machine by so much. How long something takes is measured by
// another.
func setClock(by time.Duration) error {
	now := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &now); err != nil {
		return fmt.Errorf("set the clock by %v: %w", by, err)
	}
	return nil
}

// ballast is the file that fills the disk.
const ballast = nodeRoot + "/var/lib/fencelab/ballast"

// disk fills the disk of the node, or makes room again.
func (n *realNode) disk(command evidence.Command) error {
	if command == evidence.FreeDisk {
		if err := os.Remove(ballast); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("make room on the disk: %w", err)
		}
		return nil
	}
	fail := func(err error) error { return fmt.Errorf("fill the disk: %w", err) }
	var disk unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(ballast), &disk); err != nil {
		return fail(err)
	}
	file, err := os.Create(ballast)
	if err != nil {
		return fail(err)
	}
	defer file.Close()
	// In pieces that become smaller, since the file system needs some room for itself.
	size, blocks := int64(0), int64(disk.Bfree)
	for piece := blocks * disk.Bsize; piece >= disk.Bsize; {
		switch err := unix.Fallocate(int(file.Fd()), 0, size, piece); err {
		case nil:
			size += piece
		case unix.ENOSPC:
			piece /= 2
		case unix.EINTR:
		default:
			return fail(err)
		}
	}
	return nil
}
