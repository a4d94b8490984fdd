// Package device has a process begin in a network of its own, and configures the network devices
// there.
package device

import (
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Loopback is the device of the loopback interface. In a network that was just made it is down.
const Loopback = "lo"

// OwnNetwork starts a process in a network namespace of its own, with the right to configure it.
// Only root may make one, so another user gets a user namespace as well, unless it has one already.
func OwnNetwork(a *syscall.SysProcAttr) {
	a.Cloneflags |= unix.CLONE_NEWNET
	if os.Geteuid() == 0 || a.Cloneflags&unix.CLONE_NEWUSER != 0 {
		return
	}
	a.Cloneflags |= unix.CLONE_NEWUSER
	a.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
}

// Up has a device carry packets.
func Up(device string) error {
	return set(device, unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP); return nil })
}

// SetAddress gives a device an IPv4 address, and the network around it.
func SetAddress(device string, address netip.Prefix) error {
	err := set(device, unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(address.Addr().AsSlice()) })
	if err != nil {
		return err
	}
	mask := ^uint32(0) << (32 - address.Bits())
	return set(device, unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error {
		return r.SetInet4Addr([]byte{byte(mask >> 24), byte(mask >> 16), byte(mask >> 8), byte(mask)})
	})
}

func set(device string, request uint, fill func(*unix.Ifreq) error) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(socket)
	r, err := unix.NewIfreq(device)
	if err == nil {
		err = fill(r)
	}
	if err != nil {
		return err
	}
	return os.NewSyscallError("configure "+device, unix.IoctlIfreq(socket, request, r))
}
