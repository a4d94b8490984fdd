package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/lab/device"
)

// Network gives a program with hard-coded ports a loopback interface of its own, with no other
// sockets on it. Addresses outside that it has to reach are the same inside. It needs no root.
//
// The sockets inside are made by the process that becomes the program, and handed to this one. So
// this process needs no way into the network and no helper in there.
type Network struct {
	reach        []string
	outer, inner *os.File // of a socket by which it gets those inside

	ready chan struct{} // closed when they have come, or failed to
	err   error
	calls chan int // sockets inside that aren't connected

	mu     sync.Mutex
	closed bool
	open   map[io.Closer]bool
}

// NewNetwork returns one from which some addresses of the loopback interface, host:port, can be
// reached.
func NewNetwork(reach ...string) (*Network, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	return &Network{
		reach: reach, outer: os.NewFile(uintptr(pair[0]), "network"), inner: os.NewFile(uintptr(pair[1]), "network"),
		ready: make(chan struct{}), calls: make(chan int, calls), open: make(map[io.Closer]bool),
	}, nil
}

// Enter has a command begin in the network. One that doesn't run an image is of a process of this
// program first: see [Main].
func (n *Network) Enter(cmd *exec.Cmd) error {
	if !mainCalled {
		return errors.New("give a program a network of its own: call container.Main first in main or TestMain")
	}
	if err := (secluded{Reach: n.reach}).enter(cmd, n.inner); err != nil {
		return err
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	device.OwnNetwork(cmd.SysProcAttr)
	return nil
}

// Serve carries what is said through the network, once its command was started and until it is
// closed.
func (n *Network) Serve() {
	go func() {
		n.err = errors.Join(n.inner.Close(), n.receive()) // once the program has its end, it is the last one
		close(n.ready)
	}()
}

// receive gets the sockets inside.
func (n *Network) receive() error {
	defer n.outer.Close()
	said, rights := make([]byte, 1024), make([]byte, unix.CmsgSpace(4*(len(n.reach)+calls)))
	length, rightsLength, _, _, err := unix.Recvmsg(int(n.outer.Fd()), said, rights, unix.MSG_CMSG_CLOEXEC)
	switch {
	case err != nil:
		return os.NewSyscallError("receive the sockets of a program's network", err)
	case length == 0:
		return errors.New("the program has ended before it had a network of its own")
	case length > 1:
		return fmt.Errorf("make a network for a program: %s", said[:length])
	}
	messages, err := unix.ParseSocketControlMessage(rights[:rightsLength])
	if err != nil || len(messages) != 1 {
		return fmt.Errorf("receive the sockets of a program's network: %d messages: %w", len(messages), err)
	}
	sockets, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(sockets) != len(n.reach)+calls {
		return fmt.Errorf("receive the sockets of a program's network: %d of %d: %w", len(sockets), len(n.reach)+calls, err)
	}
	for i, address := range n.reach {
		file := os.NewFile(uintptr(sockets[i]), address)
		listener, err := net.FileListener(file)
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
		if n.keep(listener) {
			go n.accept(listener, address)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, socket := range sockets[len(n.reach):] {
		if n.closed {
			_ = unix.Close(socket)
		} else {
			n.calls <- socket
		}
	}
	return nil
}

// keep notes what has to be closed with the network, and reports whether that is still there.
func (n *Network) keep(c io.Closer) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		_ = c.Close()
		return false
	}
	n.open[c] = true
	return true
}

func (n *Network) drop(c io.Closer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.open, c)
	_ = c.Close() // which one of two copies may have done
}

// accept carries connections out of the network.
func (n *Network) accept(inside net.Listener, address string) {
	for {
		from, err := inside.Accept()
		if err != nil {
			return
		}
		go func() {
			to, err := net.Dial("tcp", address)
			if err != nil {
				_ = from.Close() // as on a port without a listener
				return
			}
			if !n.keep(from) || !n.keep(to) {
				return
			}
			var both sync.WaitGroup
			both.Go(func() { pass(to, from) })
			both.Go(func() { pass(from, to) })
			both.Wait()
			n.drop(from)
			n.drop(to)
		}()
	}
}

// pass copies one direction of a connection, and its end.
func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.(*net.TCPConn).CloseWrite()
}

// DialContext connects to an address inside.
func (n *Network) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !to.Addr().Is4() {
		return nil, fmt.Errorf("connect to %s in a program's network: name a port of 127.0.0.1", address)
	}
	select {
	case <-n.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	closed := n.closed
	n.mu.Unlock()
	switch {
	case n.err != nil:
		return nil, n.err
	case closed:
		return nil, fmt.Errorf("connect to %s in a program's network: %w", address, net.ErrClosed)
	}
	select {
	case socket := <-n.calls:
		err := connect(ctx, socket, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
		if err != nil {
			n.calls <- socket // it can try again
			return nil, fmt.Errorf("connect to %s in a program's network: %w", address, err)
		}
		file := os.NewFile(uintptr(socket), address)
		connection, err := net.FileConn(file)
		return connection, errors.Join(err, file.Close())
	default:
		return nil, fmt.Errorf("connect to %s in a program's network: that was done %d times", address, calls)
	}
}

// connect connects a socket that doesn't block.
func connect(ctx context.Context, socket int, to unix.Sockaddr) error {
	for {
		switch err := unix.Connect(socket, to); err {
		case nil, unix.EISCONN:
			return nil
		case unix.EINPROGRESS, unix.EALREADY, unix.EINTR:
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond): // on the loopback interface it is done at once
		}
	}
}

// Close ends all connections.
func (n *Network) Close() {
	n.mu.Lock()
	n.closed = true
	for c := range n.open {
		_ = c.Close()
	}
	clear(n.open)
	n.mu.Unlock()
	_ = n.inner.Close() // unless it was served
	_ = n.outer.Close()
	for {
		select {
		case socket := <-n.calls:
			_ = unix.Close(socket)
		default:
			return
		}
	}
}

// settle brings the network up and sends its sockets to the process outside. Then it executes the
// program in its own place, unless a container will run it.
func (s *secluded) settle() error {
	sockets, err := s.sockets()
	said := []byte{0}
	if err != nil {
		said, sockets = []byte(err.Error()), nil
	}
	if sendErr := unix.Sendmsg(int(s.To), said, unix.UnixRights(sockets...), nil, 0); err == nil {
		err = os.NewSyscallError("hand over sockets", sendErr)
	}
	for _, socket := range append(sockets, int(s.To)) {
		_ = unix.Close(socket)
	}
	if err != nil || len(s.Command) == 0 {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return os.NewSyscallError("drop capabilities", err)
	}
	return unix.Exec(s.Command[0], s.Command, os.Environ())
}

func (s *secluded) sockets() (sockets []int, err error) {
	if err := device.Up(device.Loopback); err != nil {
		return nil, err
	}
	for range calls + len(s.Reach) {
		socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, os.NewSyscallError("socket", err)
		}
		sockets = append(sockets, socket)
	}
	for i, address := range s.Reach {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return nil, err
		}
		if err := unix.Bind(sockets[i], &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
			return nil, os.NewSyscallError("listen at "+address, err)
		}
		if err := unix.Listen(sockets[i], unix.SOMAXCONN); err != nil {
			return nil, os.NewSyscallError("listen at "+address, err)
		}
	}
	return sockets, nil
}
