package ironic

import (
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// holdPort binds a loopback TCP port so that nobody else can take it before Ironic listens on it. Ironic's server
// (eventlet) shares by SO_REUSEPORT; the holder never listens, so that every connection is Ironic's, and until Ironic
// listens a connection is refused.
func holdPort() (holder *os.File, at netip.AddrPort, err error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, at, fmt.Errorf("hold a port on the loopback interface: socket: %w", err)
	}
	holder = os.NewFile(uintptr(socket), "port")
	defer func() {
		if err != nil {
			holder.Close()
			err = fmt.Errorf("hold a port on the loopback interface: %w", err)
		}
	}()
	if err = unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return nil, at, err
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if err = unix.Bind(socket, &unix.SockaddrInet4{Addr: loopback.As4()}); err != nil {
		return nil, at, err
	}
	name, err := unix.Getsockname(socket)
	if err != nil {
		return nil, at, err
	}
	return holder, netip.AddrPortFrom(loopback, uint16(name.(*unix.SockaddrInet4).Port)), nil
}
