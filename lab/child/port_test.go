package child

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestHeldPort(t *testing.T) {
	held := map[uint16]bool{}
	var p *Port
	for range 200 {
		var err error
		if p, err = HoldPort(); err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		if held[p.Number()] {
			t.Fatalf("port %d was given twice", p.Number())
		}
		held[p.Number()] = true
	}
	if _, err := net.Dial("tcp", p.Address()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connecting to a port that nobody listens on: %v, want a refusal", err)
	}
	if l, err := net.Listen("tcp", p.Address()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a stranger's listener got %v, %v; want address already in use", l, err)
	}
	sharing := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	}}
	alone := func(l net.Listener, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("the listener that the port is held for: %v", err)
		}
		// It alone gets the connections: with a share for the holder, some of these would not be
		// accepted.
		for range 50 {
			dialed, err := net.Dial("tcp", p.Address())
			if err != nil {
				t.Fatal(err)
			}
			accepted, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			accepted.Close()
			dialed.Close()
		}
		l.Close()
	}
	for range 2 { // also after a restart
		alone(sharing.Listen(context.Background(), "tcp", p.Address()))
	}
	if err := p.ShareByAddress(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		alone(net.Listen("tcp", p.Address())) // Go's own listeners do
	}
}
