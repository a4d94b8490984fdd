package child

import "golang.org/x/sys/unix"

// errSystem is why nothing can be started on this system.
var errSystem error

// awaitEnd returns once a child has ended, and leaves it to be reaped.
func awaitEnd(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// awaitStop returns once every thread of a child stands still.
func awaitStop(pid int) error {
	for {
		// WNOWAIT leaves the news where it is, so that pausing twice doesn't wait for a second one.
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil); err != unix.EINTR {
			return err
		}
	}
}
