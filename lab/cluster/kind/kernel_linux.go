package kind

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaces returns the namespaces of the daemon.
func namespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET}
}

// socket makes one in the daemon's network.
func (d *daemon) socket() (int, error) {
	network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", d.process.Pid()))
	if err != nil {
		return 0, err
	}
	defer network.Close()
	if err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err != nil {
		return 0, os.NewSyscallError("setns", err)
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	return socket, os.NewSyscallError("socket", err)
}

// lacking says what the containers of our daemon do without.
func lacking() string {
	if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0); err == nil && has == 0 {
		return ", whose containers do without CAP_SYS_RESOURCE, which is missing"
	}
	return ""
}
