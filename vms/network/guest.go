package network

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
)

// maxFrame is far above what a card with an MTU of 1500 sends; QEMU's own limit is 68 KiB.
const maxFrame = 1 << 16

// Listen takes the connections of a guest's QEMU (-netdev stream) at a Unix socket, one at a time:
// each is one life of the QEMU process. Only this user's processes may connect.
func (s *Switch) Listen(endpoint, path string) error {
	p := s.port(endpoint)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("connect %s to the network: %w", endpoint, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("connect %s to the network: %w", endpoint, errors.Join(err, listener.Close()))
	}
	var mu sync.Mutex // guards the two below
	var current net.Conn
	closed := false
	closer := func() error {
		mu.Lock()
		defer mu.Unlock()
		closed = true
		if current != nil {
			current.Close()
		}
		return listener.Close()
	}
	err = s.run(closer, func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			mu.Lock()
			current = conn
			if closed {
				conn.Close()
			}
			mu.Unlock()
			s.attach(p, conn)
		}
	})
	if err != nil {
		return fmt.Errorf("connect %s to the network: %w", endpoint, err)
	}
	return nil
}

// attach exchanges frames with a guest until the connection ends. On a stream QEMU writes each
// frame behind its length, four bytes, big endian.
func (s *Switch) attach(p *port, conn net.Conn) {
	var out []byte
	unplug, err := s.plug(p, func(data []byte) {
		out = append(binary.BigEndian.AppendUint32(out[:0], uint32(len(data))), data...)
		conn.Write(out) // an error is the connection's end, which the reader sees
	})
	if err != nil {
		conn.Close()
		return
	}
	in := bufio.NewReaderSize(conn, maxFrame)
	var length [4]byte
	for {
		if _, err := io.ReadFull(in, length[:]); err != nil {
			break
		}
		n := binary.BigEndian.Uint32(length[:])
		if n > maxFrame {
			break // this isn't QEMU
		}
		data := make([]byte, n)
		if _, err := io.ReadFull(in, data); err != nil {
			break
		}
		s.forward(p, data)
	}
	conn.Close() // lets go whom the writer waits for
	unplug()
}
