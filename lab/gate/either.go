package gate

import (
	"crypto/tls"
	"net"
)

// tlsHandshake is the first byte of a client that speaks TLS. No HTTP request begins with it.
const tlsHandshake = 0x16

// either lets each client choose whether to speak TLS, by how it begins: some clients of BMCs can't
// do without.
type either struct {
	net.Listener
	config *tls.Config
}

func (e either) Accept() (net.Conn, error) {
	c, err := e.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &choosing{Conn: c, config: e.config}, nil
}

// choosing is a connection on which the client's first byte decides between TLS and plain text. The
// server must therefore read before it writes. Closing it closes the connection beneath, without
// TLS's closing alert.
type choosing struct {
	net.Conn
	config *tls.Config
	// chosen is the connection by the protocol that the client speaks; nil until it has begun.
	chosen net.Conn
}

func (c *choosing) Read(p []byte) (int, error) {
	if c.chosen == nil {
		first := make([]byte, 1)
		if _, err := c.Conn.Read(first); err != nil {
			return 0, err
		}
		c.chosen = &begun{c.Conn, first}
		if first[0] == tlsHandshake {
			c.chosen = tls.Server(c.chosen, c.config)
		}
	}
	return c.chosen.Read(p)
}

func (c *choosing) Write(p []byte) (int, error) {
	if c.chosen == nil {
		return c.Conn.Write(p) // to a client that has said nothing
	}
	return c.chosen.Write(p)
}

// begun is a connection of which the first bytes have been read.
type begun struct {
	net.Conn
	first []byte
}

func (b *begun) Read(p []byte) (int, error) {
	if len(b.first) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.first)
	b.first = b.first[n:]
	return n, nil
}
