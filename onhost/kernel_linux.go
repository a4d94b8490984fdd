package onhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// uptime is how long this boot has lasted, and goes on while the host sleeps.
func uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("read the clock: %v", err)) // Linux has had it since 2.6.39
	}
	return time.Duration(ts.Nano())
}

// rebootKernel reboots at once, without asking any process: by the kernel's own key, which
// works in a container as well, or by the system call.
func rebootKernel(context.Context) error {
	err := os.WriteFile("/proc/sysrq-trigger", []byte("b"), 0)
	if err == nil {
		select {} // it is on its way
	}
	return errors.Join(err, unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART))
}

// openWatchdog opens the device, which arms it, and sets its time unless that is 0.
func openWatchdog(path string, timeout time.Duration) (device, error) {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the watchdog: %w; name none to do without, and the host will be rebooted by software", err)
	}
	fd := int(file.Fd())
	if timeout > 0 {
		seconds := int((timeout + time.Second - 1) / time.Second)
		if err := unix.IoctlSetPointerInt(fd, unix.WDIOC_SETTIMEOUT, seconds); err != nil {
			return nil, fmt.Errorf("set the time of the watchdog %s to %s: %w", path, timeout, err)
		}
	}
	seconds, err := unix.IoctlGetInt(fd, unix.WDIOC_GETTIMEOUT)
	if err != nil {
		return nil, fmt.Errorf("ask the watchdog %s for its time: %w", path, err)
	}
	return &linuxWatchdog{file, time.Duration(seconds) * time.Second}, nil
}
