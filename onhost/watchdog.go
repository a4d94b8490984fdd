package onhost

import (
	"context"
	"fmt"
	"os"
	"time"
)

// device is a watchdog device of Linux.
type device interface {
	// feed has it wait for its timeout from now on.
	feed() error
	// timeout is how long it waits before it resets the host.
	timeout() time.Duration
	// disarm ends the wait; leave closes the device and has it wait on.
	disarm() error
	leave() error
}

// watchdog is the host's, or none. It implements controllers.Watchdog.
type watchdog struct{ device }

// Timeout is how long it waits; 0 is no watchdog.
func (w *watchdog) Timeout() time.Duration {
	if w.device == nil {
		return 0
	}
	return w.timeout()
}

// Feed lets it wait for its whole time again.
func (w *watchdog) Feed(context.Context) error {
	if w.device == nil {
		return fmt.Errorf("the host has no watchdog")
	}
	return w.feed()
}

func (w *watchdog) disarm() error {
	if w.device == nil {
		return nil
	}
	return w.device.disarm()
}

func (w *watchdog) leave() error {
	if w.device == nil {
		return nil
	}
	return w.device.leave()
}

// linuxWatchdog is /dev/watchdog0 or the like.
type linuxWatchdog struct {
	file  *os.File
	waits time.Duration
}

func (w *linuxWatchdog) timeout() time.Duration { return w.waits }

func (w *linuxWatchdog) feed() error {
	_, err := w.file.Write([]byte{0})
	return err
}

// disarm is the magic close: without the V a device that is closed goes on waiting. One
// that knows no way out does so all the same.
func (w *linuxWatchdog) disarm() error {
	if _, err := w.file.Write([]byte("V")); err != nil {
		return fmt.Errorf("disarm the watchdog: %w", err)
	}
	return w.file.Close()
}

func (w *linuxWatchdog) leave() error { return w.file.Close() }
