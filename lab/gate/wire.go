package gate

import (
	"fmt"
	"net"
	"sync"
)

// Wire serves a server's address of its own, from which all bytes go to the server as they come:
// for clients that show the server certificates of their own, which a [Proxy] can't pass on.
type Wire struct {
	address, target string
	running         sync.WaitGroup

	mu sync.Mutex
	// listener is nil while the wire refuses connections.
	listener net.Listener
	// hung is closed when bytes go on; nil while they do.
	hung        chan struct{}
	connections map[net.Conn]bool
	closed      bool
}

// Connect starts a wire to a server's address, from a loopback port of the kernel's choice.
func Connect(target string) (*Wire, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve a wire to %s: %w", target, err)
	}
	w := &Wire{address: listener.Addr().String(), target: target, connections: make(map[net.Conn]bool)}
	w.listen(listener)
	return w, nil
}

// Address is the wire's host and port.
func (w *Wire) Address() string { return w.address }

// listen takes what comes to a listener. It is called before the wire is known, or with mu held.
func (w *Wire) listen(l net.Listener) {
	w.listener = l
	w.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			if held := w.take(client); held {
				w.running.Go(func() { w.carry(client) })
			}
		}
	})
}

// take keeps a connection, unless none is wanted any more.
func (w *Wire) take(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener == nil || w.closed {
		c.Close()
		return false
	}
	w.connections[c] = true
	return true
}

func (w *Wire) drop(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.connections, c)
	c.Close()
}

// carry connects a client with the server, until one of them ends that.
func (w *Wire) carry(client net.Conn) {
	defer w.drop(client)
	if w.stops() {
		return
	}
	server, err := net.Dial("tcp", w.target)
	if err != nil || !w.take(server) {
		return
	}
	defer w.drop(server)
	w.running.Go(func() { w.pass(client, server) })
	w.pass(server, client)
}

// pass carries what comes from one side to the other, and ends both.
func (w *Wire) pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	for buffer := make([]byte, 32<<10); ; {
		n, err := from.Read(buffer)
		if w.stops() {
			return
		}
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}

// stops returns at once, and false, while bytes go on. Otherwise it waits until they do: what was
// held then is never delivered, since its client may have given it up.
func (w *Wire) stops() bool {
	w.mu.Lock()
	hung := w.hung
	w.mu.Unlock()
	if hung == nil {
		return false
	}
	<-hung
	return true
}

// Refuse ends every connection and refuses new ones, as the address of a server that has stopped
// does.
func (w *Wire) Refuse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener != nil {
		_ = w.listener.Close() // it has nothing to lose
		w.listener = nil
	}
	w.cut()
}

// Hang takes connections and answers nothing, as a server that stands still does.
func (w *Wire) Hang() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hung == nil {
		w.hung = make(chan struct{})
	}
}

// Accept ends Refuse and Hang. Connections that hung end. It fails if another process has taken
// the address meanwhile.
func (w *Wire) Accept() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hung != nil {
		w.cut()
		close(w.hung)
		w.hung = nil
	}
	if w.listener != nil || w.closed {
		return nil
	}
	listener, err := net.Listen("tcp", w.address)
	if err != nil {
		return fmt.Errorf("serve the wire at %s again: %w", w.address, err)
	}
	w.listen(listener)
	return nil
}

// cut ends all connections. It is called with mu held.
func (w *Wire) cut() {
	for c := range w.connections {
		_ = c.Close() // whoever reads from it hears of it
	}
}

// Close ends the wire, and returns when nothing of it is left.
func (w *Wire) Close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.Refuse()
	err := w.Accept() // of what hangs; it listens no more
	w.running.Wait()
	return err
}
