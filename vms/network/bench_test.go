package network

import (
	"io"
	"net"
	"net/netip"
	"testing"
)

// reflector is a server that answers what it hears.
func reflector(b *testing.B) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// BenchmarkService measures what the way from a guest to a service costs: an exchange of 100 bytes,
// and a stream of them. The guest is a TCP/IP stack in this process; "direct" is the same
// connection without a switch.
func BenchmarkService(b *testing.B) {
	dials := map[string]func(b *testing.B, to string) net.Conn{
		"direct": func(b *testing.B, to string) net.Conn {
			conn, err := net.Dial("tcp", to)
			if err != nil {
				b.Fatal(err)
			}
			return conn
		},
		"switch": func(b *testing.B, to string) net.Conn {
			n := newNetwork(b, "a")
			at, err := n.Serve("api", Target{To: to})
			if err != nil {
				b.Fatal(err)
			}
			conn, err := n.boot("a").dial(at[0])
			if err != nil {
				b.Fatal(err)
			}
			return conn
		},
	}
	for _, way := range []string{"direct", "switch"} {
		b.Run("exchange/"+way, func(b *testing.B) {
			conn := dials[way](b, reflector(b))
			defer conn.Close()
			message := make([]byte, 100)
			for b.Loop() {
				if _, err := conn.Write(message); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(conn, message); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("stream/"+way, func(b *testing.B) {
			conn := dials[way](b, reflector(b))
			defer conn.Close()
			const piece = 64 << 10
			b.SetBytes(2 * piece) // there and back
			go func() {
				for message := make([]byte, piece); ; {
					if _, err := conn.Write(message); err != nil {
						return
					}
				}
			}()
			message := make([]byte, piece)
			for b.Loop() {
				if _, err := io.ReadFull(conn, message); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDatagram measures a datagram from one guest to another, and its answer.
func BenchmarkDatagram(b *testing.B) {
	n := newNetwork(b, "a", "b")
	one, other := n.boot("a"), n.boot("b")
	go func() {
		for message := make([]byte, 100); ; {
			length, from, err := other.udp.ReadFrom(message)
			if err != nil {
				return
			}
			other.udp.WriteTo(message[:length], from)
		}
	}()
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.Address("host/b"), 9))
	message := make([]byte, 100)
	for b.Loop() {
		if _, err := one.udp.WriteTo(message, to); err != nil {
			b.Fatal(err)
		}
		if _, _, err := one.udp.ReadFrom(message); err != nil {
			b.Fatal(err)
		}
	}
}
