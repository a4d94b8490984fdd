package child

import (
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Port is a loopback TCP port that stays ours for as long as it is held, so that no other process
// can take it before a server listens on it or between two of its lives. It is bound with
// SO_REUSEPORT but never listens: the server, which has to share by SO_REUSEPORT as well, gets
// every connection, and without one a connection is refused as on any closed port.
type Port struct {
	address netip.AddrPort
	socket  *os.File
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// HoldPort takes a free port.
func HoldPort() (*Port, error) {
	number, socket, err := bindPort()
	if err != nil {
		return nil, fmt.Errorf("hold a port on the loopback interface: %w", err)
	}
	return &Port{netip.AddrPortFrom(loopback, number), os.NewFile(uintptr(socket), "port")}, nil
}

func bindPort() (number uint16, socket int, err error) {
	syscall.ForkLock.RLock() // a child that is started meanwhile would inherit it
	socket, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(socket)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return 0, 0, os.NewSyscallError("socket", err)
	}
	defer func() {
		if err != nil {
			unix.Close(socket)
		}
	}()
	if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return 0, 0, os.NewSyscallError("setsockopt", err)
	}
	// The kernel chooses a port that no other socket has, sharing or not: sharing is only for those
	// who ask for a number.
	if err := unix.Bind(socket, &unix.SockaddrInet4{Addr: loopback.As4()}); err != nil {
		return 0, 0, os.NewSyscallError("bind", err)
	}
	name, err := unix.Getsockname(socket)
	if err != nil {
		return 0, 0, os.NewSyscallError("getsockname", err)
	}
	return uint16(name.(*unix.SockaddrInet4).Port), socket, nil
}

// ShareByAddress lets a server have the port that shares by SO_REUSEADDR instead, as most do; and
// with it any stranger who asks for this very number.
func (p *Port) ShareByAddress() error {
	err := unix.SetsockoptInt(int(p.socket.Fd()), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	return os.NewSyscallError("setsockopt", err)
}

// Number is the port's.
func (p *Port) Number() uint16 { return p.address.Port() }

// Address is the port's on the loopback interface, host:port.
func (p *Port) Address() string { return p.address.String() }

// Release lets the port go. One that was never held needs no release.
func (p *Port) Release() error {
	if p == nil {
		return nil
	}
	return p.socket.Close()
}
