package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// port is a loopback TCP port that stays ours for as long as it is held, so that nobody can take it before the API
// server listens on it or between two of its lives. It is bound with SO_REUSEPORT but never listens: the API server
// (--permit-port-sharing) gets every connection, and without one a connection is refused as on any closed port.
type port struct {
	number uint16
	socket *os.File
}

func holdPort() (*port, error) {
	number, socket, err := bindPort()
	if err != nil {
		return nil, fmt.Errorf("hold a port on the loopback interface: %w", err)
	}
	return &port{number, os.NewFile(uintptr(socket), "port")}, nil
}

func bindPort() (number uint16, socket int, err error) {
	socket, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
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
	// The kernel chooses a port that no other socket has, sharing or not: sharing is only for those who ask for a number.
	if err := unix.Bind(socket, &unix.SockaddrInet4{Addr: loopback.As4()}); err != nil {
		return 0, 0, os.NewSyscallError("bind", err)
	}
	name, err := unix.Getsockname(socket)
	if err != nil {
		return 0, 0, os.NewSyscallError("getsockname", err)
	}
	return uint16(name.(*unix.SockaddrInet4).Port), socket, nil
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

func (p *port) address() string {
	return net.JoinHostPort(loopback.String(), strconv.Itoa(int(p.number)))
}

func (p *port) release() error { return p.socket.Close() }
