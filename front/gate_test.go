package front

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// from is a connection of an address, which is only ever closed.
type from struct {
	net.Conn
	address string
	closed  bool
}

func (f *from) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.address))
}
func (f *from) Close() error { f.closed = true; return nil }

// TestGate opens connections, which are named for their clients, and lets them get as
// far as they say; then the ones that are left.
func TestGate(t *testing.T) {
	const a, b, c = "192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"
	for _, tc := range []struct {
		name    string
		steps   string // of connections: +NAME opens, >NAME is being answered, .NAME is idle, <NAME begins a request, -NAME closes, |NAME opens at another listener
		left    string
		refused string
	}{
		{"room for all", "+a1 +a2 +b1", "a1 a2 b1", ""},
		{"of a client the oldest unfinished one goes", "+a1 +a2 +a3 +a4", "a2 a3 a4", ""},
		{"what gets on stays", "+a1 >a1 +a2 +a3 +a4 +a5 +a6", "a1 a5 a6", ""},
		{"an idle one goes after all unfinished ones", "+a1 >a1 .a1 +a2 +a3 +a4", "a1 a3 a4", ""},
		{"the longest idle one goes", "+a1 >a1 +a2 >a2 .a2 +a3 >a3 .a3 .a1 +a4", "a1 a3 a4", ""},
		{"one that begins again is the youngest", "+a1 >a1 .a1 +a2 +a3 <a1 +a4", "a1 a3 a4", ""},
		{"requests that are answered are left alone", "+a1 >a1 +a2 >a2 +a3 >a3 +a4 +b1", "a1 a2 a3 b1", "a4"},
		{"a place is free again", "+a1 >a1 +a2 >a2 +a3 >a3 -a2 +a4", "a1 a3 a4", ""},
		{"a full listener: the client with the most makes room", "+b1 +a1 +a2 +a3 +b2 +c1", "a2 a3 b1 b2 c1", ""},
		{"all listeners: the client with the most makes room", "+b1 +a1 +a2 +a3 +b2 |a4 |b3 |c1", "a2 a3 a4 b1 b2 b3 c1", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newGate(7)
			here := &listener{gate: g, perClient: 3, perListener: 5, crowd: newCrowd()}
			there := &listener{gate: g, perClient: 3, perListener: 5, crowd: newCrowd()}
			conns, raw := map[string]*conn{}, map[string]*from{}
			now := time.Now().Add(-time.Hour)
			var refused []string
			for _, step := range strings.Fields(tc.steps) {
				name := step[1:]
				now = now.Add(time.Second)
				x := conns[name]
				switch step[0] {
				case '+', '|':
					raw[name] = &from{address: map[byte]string{'a': a, 'b': b, 'c': c}[name[0]]}
					x = &conn{Conn: raw[name], gate: g, listener: here, client: address(raw[name].address)}
					if step[0] == '|' {
						x.listener = there
					}
					conns[name] = x
					if _, ok := g.admit(x); !ok {
						refused = append(refused, name)
						delete(raw, name)
					}
				case '>':
					x.reach(busy)
				case '.':
					x.reach(idle)
				case '<':
					x.reach(unfinished)
				case '-':
					x.Close()
				}
				x.since = now
			}
			var left []string
			for name, x := range raw {
				if !x.closed {
					left = append(left, name)
				}
			}
			slices.Sort(left)
			if got := strings.Join(left, " "); got != tc.left || strings.Join(refused, " ") != tc.refused {
				t.Errorf("left are %s and refused %v, want %s and %s", got, refused, tc.left, tc.refused)
			}
			if *g.number != len(left) || *here.number+*there.number != len(left) {
				t.Errorf("counted are %d in all, %d and %d at the listeners", *g.number, *here.number, *there.number)
			}
		})
	}
}

// TestEverybodyIsHeard: however fast connections come, each has time for its request.
func TestEverybodyIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = ReadBody(w, r) }))
		l := pipes{make(chan net.Conn)}
		gate := NewGate().Listener(l).(*listener)
		gate.perClient = 3
		go server.Serve(gate)
		defer server.Close()
		normal := l.dial()
		flood, stop := context.WithCancel(t.Context())
		var attack sync.WaitGroup
		attack.Go(func() {
			for flood.Err() == nil {
				client, served := net.Pipe()
				defer client.Close()
				select {
				case l.conns <- served:
				case <-flood.Done():
				}
			}
		})
		time.Sleep(grace / 2)
		synctest.Wait()
		fmt.Fprint(normal, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		answer, err := io.ReadAll(normal)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
			t.Errorf("%v %q", err, answer)
		}
		time.Sleep(2 * grace)
		stop()
		attack.Wait()
	})
}
