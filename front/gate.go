package front

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The connections that a listener has at a time, from one client and in all. More than
// a test needs, and few enough that their memory is small.
const (
	PerClient   = 1024
	PerListener = 4096
	everywhere  = 16384 // at all listeners of a Gate
)

// grace is how long a connection has at least to send its first request: while even the
// oldest unfinished one is younger, new ones wait to be accepted. So a client is heard
// however fast another one opens connections.
const grace = 250 * time.Millisecond

// Gate counts the connections of some listeners. When there are too many it makes room
// for a new one: whoever has the most loses the connection that has got the least far.
// A client that opens connections and leaves requests unfinished so loses its own,
// also to a well-behaved one that shares its address, as all do on loopback; a request
// that is being answered is never cut off for that. A Gate may be used concurrently.
type Gate struct {
	most int

	mu sync.Mutex // also of the listeners' crowds
	crowd
}

// NewGate returns a Gate that lets in as many connections as half of the descriptors
// that this process may have, but not more than 16,384.
func NewGate() *Gate {
	most := uint64(everywhere)
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil {
		most = min(most, files.Cur/2)
	}
	return newGate(int(most))
}

func newGate(most int) *Gate { return &Gate{most: most, crowd: newCrowd()} }

// crowd is connections by their clients.
type crowd struct {
	clients map[netip.Prefix]map[*conn]bool
	number  *int
}

func newCrowd() crowd { return crowd{map[netip.Prefix]map[*conn]bool{}, new(int)} }

func (w crowd) add(c *conn) {
	if w.clients[c.client] == nil {
		w.clients[c.client] = map[*conn]bool{}
	}
	w.clients[c.client][c] = true
	*w.number++
}

func (w crowd) remove(c *conn) {
	delete(w.clients[c.client], c)
	if len(w.clients[c.client]) == 0 {
		delete(w.clients, c.client)
	}
	*w.number--
}

// worst chooses the connection to close: one of the client that has the most.
func (w crowd) worst() *conn {
	var most map[*conn]bool
	for _, conns := range w.clients {
		if len(conns) > len(most) {
			most = conns
		}
	}
	return worst(most)
}

// worst chooses the connection that has got the least far, and of those the oldest. It returns nil
// if all are busy.
func worst(conns map[*conn]bool) (worst *conn) {
	for c := range conns {
		if c.stage == busy {
			continue
		}
		if worst == nil || c.stage < worst.stage || c.stage == worst.stage && c.since.Before(worst.since) {
			worst = c
		}
	}
	return worst
}

// stage is how far a connection has got; what has got further is worth more.
type stage int

const (
	unfinished stage = iota // a handshake or a request isn't complete
	idle                    // between two requests
	busy                    // a request is being answered
)

// conn is a connection that a Gate has let in.
type conn struct {
	net.Conn
	gate     *Gate
	listener *listener
	client   netip.Prefix

	// Under the gate's mu:
	stage stage
	since time.Time // it is in it

	trusted atomic.Bool
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.gate.forget(c)
	return c.Conn.Close()
}

// CloseWrite lets net/http say goodbye before it closes, so that a refusal arrives.
func (c *conn) CloseWrite() error {
	if t, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return t.CloseWrite()
	}
	return nil
}

// NetConn returns the connection beneath, as that of a *tls.Conn does.
func (c *conn) NetConn() net.Conn { return c.Conn }

type listener struct {
	net.Listener
	gate                   *Gate
	perClient, perListener int
	crowd
}

// Listener returns a listener whose connections pass the gate.
func (g *Gate) Listener(l net.Listener) net.Listener {
	return &listener{Listener: l, gate: g, perClient: PerClient, perListener: PerListener, crowd: newCrowd()}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: raw, gate: l.gate, listener: l, client: address(raw.RemoteAddr().String())}
		wait, ok := l.gate.admit(c)
		for wait > 0 {
			time.Sleep(wait)
			wait, ok = l.gate.admit(c)
		}
		if ok {
			return c, nil
		}
		Abort(raw)
	}
}

// admit takes a connection in, and makes room for it if need be. It is false when there
// is none, since all are busy, or none yet.
func (g *Gate) admit(c *conn) (wait time.Duration, ok bool) {
	g.mu.Lock()
	l := c.listener
	var out *conn
	full := true
	switch mine := l.clients[c.client]; {
	case len(mine) >= l.perClient:
		out = worst(mine)
	case *l.number >= l.perListener:
		out = l.worst()
	case *g.number >= g.most:
		out = g.worst()
	default:
		full = false
	}
	if full {
		switch {
		case out == nil:
			g.mu.Unlock()
			return 0, false
		case out.stage == unfinished && time.Since(out.since) < grace:
			g.mu.Unlock()
			return grace - time.Since(out.since), false
		}
		g.drop(out)
	}
	c.since = time.Now()
	g.add(c)
	l.add(c)
	g.mu.Unlock()
	if out != nil {
		Abort(out.Conn)
	}
	return 0, true
}

func (g *Gate) forget(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(c)
}

// drop is called with mu held.
func (g *Gate) drop(c *conn) {
	if g.clients[c.client][c] {
		g.remove(c)
		c.listener.remove(c)
	}
}

func (c *conn) reach(s stage) {
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	if c.stage != s {
		c.stage, c.since = s, time.Now()
	}
}

// under finds the Gate's connection beneath another one, such as a *tls.Conn.
func under(c net.Conn) *conn {
	for {
		switch x := c.(type) {
		case *conn:
			return x
		case interface{ NetConn() net.Conn }:
			c = x.NetConn()
		default:
			return nil
		}
	}
}

type connKey struct{}

// Serve returns a server for listeners of the Gate. Whoever sets its ConnState calls the
// one that it has.
func Serve(h http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // BMCs speak no other, and HTTP/2 has no connection to reset
	return &http.Server{
		Handler: h, Protocols: protocols,
		ReadHeaderTimeout: Timeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: MaxHeader,
		ErrorLog: log.New(io.Discard, "", 0), // broken handshakes; requests are in the records
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, under(c))
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			switch x := under(c); {
			case x == nil:
			case state == http.StateIdle:
				x.reach(idle)
			case state == http.StateActive:
				x.reach(unfinished)
			case state == http.StateHijacked, state == http.StateClosed:
				x.gate.forget(x)
			}
		},
	}
}

// answering says that a request is complete, so that it is not cut off for others any more.
func answering(r *http.Request) {
	if c, _ := r.Context().Value(connKey{}).(*conn); c != nil {
		c.reach(busy)
	}
}

// Trust says that who sends a request has proved to know the password, and Trusted
// whether that was done on the request's connection: then a wrong password that somebody
// else has sent from the same address is no reason to let it wait.
func Trust(r *http.Request) {
	if c, _ := r.Context().Value(connKey{}).(*conn); c != nil {
		c.trusted.Store(true)
	}
}

// Trusted is the counterpart of Trust.
func Trusted(r *http.Request) bool {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c != nil && c.trusted.Load()
}

// Abort breaks a connection as a dead BMC does.
func Abort(c net.Conn) {
	for {
		t, ok := c.(interface{ NetConn() net.Conn }) // a *tls.Conn would say goodbye first
		if !ok {
			break
		}
		c = t.NetConn()
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
