package network

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

// patience bounds what must happen. What must not is never waited for: something later on the same
// way shows that it didn't.
const patience = 30 * time.Second

// network is a switch whose guests are TCP/IP stacks behind QEMU's framing.
type network struct {
	*Switch
	t   testing.TB
	dir string
}

func newNetwork(t testing.TB, guests ...string) *network {
	t.Helper()
	dir, err := os.MkdirTemp("", "net-*") // short, as a socket's path has to be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &network{New(), t, dir}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range guests {
		if err := n.Listen("host/"+name, n.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func (n *network) path(guest string) string { return filepath.Join(n.dir, guest) }

// guest is one life of a guest: a stack at a connection to its socket. It has a UDP socket at port
// 9.
type guest struct {
	*machine
	t    testing.TB
	name string
	conn net.Conn
	udp  *gonet.UDPConn
	end  func()
}

func (n *network) boot(name string) *guest {
	n.t.Helper()
	conn, err := net.Dial("unix", n.path(name))
	if err != nil {
		n.t.Fatal(err)
	}
	m, err := newMachine(mac(n.MAC("host/"+name)), []netip.Prefix{netip.PrefixFrom(n.Address("host/"+name), Prefix)}, tcp.NewProtocol, udp.NewProtocol)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	written, read := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		m.emit(ctx, func(data []byte) { conn.Write(framed(data)) })
	}()
	go func() {
		defer close(read)
		for in := bufio.NewReader(conn); ; {
			data, err := unframed(in)
			if err != nil {
				return
			}
			m.inject(data)
		}
	}()
	g := &guest{machine: m, t: n.t, name: name, conn: conn}
	var ended atomic.Bool
	g.end = func() {
		if ended.Swap(true) {
			return
		}
		conn.Close()
		cancel()
		<-written
		<-read
		m.close()
	}
	n.t.Cleanup(g.end)
	n.await(name, true)
	if g.udp, err = gonet.DialUDP(m.stack, &tcpip.FullAddress{Port: 9}, nil, ipv4.ProtocolNumber); err != nil {
		n.t.Fatal(err)
	}
	return g
}

// await waits until the switch has noticed that a guest is connected, or is no more.
func (n *network) await(guest string, connected bool) {
	n.t.Helper()
	p := n.port("host/" + guest)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		n.mu.Lock()
		is := p.inbox != nil
		n.mu.Unlock()
		if is == connected {
			return
		}
	}
	n.t.Fatalf("%s connected: not %t", guest, connected)
}

func framed(data []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
}

func unframed(in io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return nil, err
	}
	data := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, err := io.ReadFull(in, data)
	return data, err
}

func (g *guest) send(to netip.Addr, text string) {
	g.t.Helper()
	if _, err := g.udp.WriteTo([]byte(text), &net.UDPAddr{IP: to.AsSlice(), Port: 9}); err != nil {
		g.t.Fatalf("%s sends %q: %v", g.name, text, err)
	}
}

// hears fails unless this is the very next datagram that reaches the guest.
func (g *guest) hears(text string) {
	g.t.Helper()
	g.udp.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 2000)
	n, _, err := g.udp.ReadFrom(buf)
	if err != nil || string(buf[:n]) != text {
		g.t.Fatalf("%s hears %q, %v, and not %q", g.name, buf[:n], err, text)
	}
}

func TestLinks(t *testing.T) {
	n := newNetwork(t, "a", "b", "c")
	a, b, c := n.boot("a"), n.boot("b"), n.boot("c")
	address := func(g *guest) netip.Addr { return n.Address("host/" + g.name) }
	passes := func(from, to *guest, text string) {
		t.Helper()
		from.send(address(to), text)
		to.hears(text)
	}
	// What from sends is on its way to to when the witness has heard from it, and what the witness
	// then says comes behind.
	stopped := func(from, to, witness *guest, text string) {
		t.Helper()
		from.send(address(to), text)
		passes(from, witness, "I sent it")
		passes(witness, to, "it was sent")
	}
	passes(a, b, "1")
	passes(b, a, "2")
	passes(a, c, "3")

	link := Link{"host/a", "host/b"}
	if changed := n.Cut(link, link); len(changed) != 1 || changed[0] != link {
		t.Errorf("cut %v", changed)
	}
	stopped(a, b, c, "4")
	passes(b, a, "5")
	if changed := n.Restore(link, Link{"host/a", "host/c"}); len(changed) != 1 || changed[0] != link {
		t.Errorf("restored %v", changed)
	}
	passes(a, b, "6")

	n.Cut(Both("host/a", "host/b")...)
	stopped(a, b, c, "7")
	stopped(b, a, c, "8")
	n.Restore(Both("host/a", "host/b")...)
	passes(a, b, "9")
	passes(b, a, "10")

	// All of a's links; the one to b is cut twice, and so has to be restored twice.
	open := func(from, to *guest) bool {
		return n.passes(frame{from: n.port("host/" + from.name)}, n.port("host/"+to.name))
	}
	n.Cut(append(All("host/a"), link)...)
	if open(a, b) || open(b, a) || open(a, c) || open(c, a) || !open(b, c) || !open(c, b) {
		t.Error("not just a is cut off")
	}
	n.Restore(All("host/a")...)
	stopped(a, b, c, "13")
	passes(c, a, "14")
	if left := n.Faulty(); len(left) != 1 || left[0] != link {
		t.Errorf("still cut: %v", left)
	}
	n.Restore(n.Faulty()...)
	passes(a, b, "15")
}

// A guest can't get past a cut by writing another's name on its frames.
func TestSenderIsNotWhatItSays(t *testing.T) {
	n := newNetwork(t, "a", "b", "c")
	a, b, c := n.boot("a"), n.boot("b"), n.boot("c")
	c.send(n.Address("host/b"), "from c")
	b.hears("from c")
	n.Cut(Link{"host/a", "host/b"})
	// An empty packet is as good as any: the switch looks no further.
	forged := append(append([]byte(nil), n.MAC("host/b")...), n.MAC("host/c")...)
	forged = append(forged, 8, 0)
	seen := make(chan []byte, 10)
	b.end()
	n.await("b", false)
	conn := n.dial("b")
	n.await("b", true)
	go func() {
		for in := bufio.NewReader(conn); ; {
			data, err := unframed(in)
			if err != nil {
				return
			}
			seen <- data
		}
	}()
	if _, err := a.conn.Write(framed(forged)); err != nil {
		t.Fatal(err)
	}
	a.send(n.Address("host/c"), "I sent it")
	c.hears("I sent it")
	c.send(n.Address("host/b"), "it was sent")
	for {
		select {
		case data := <-seen:
			if bytes.Equal(data, forged) {
				t.Error("a's frame in c's name reached b")
			}
			if bytes.Contains(data, []byte("it was sent")) {
				return
			}
		case <-time.After(patience):
			t.Fatal("b hears nothing")
		}
	}
}

func (n *network) dial(guest string) net.Conn {
	n.t.Helper()
	conn, err := net.Dial("unix", n.path(guest))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { conn.Close() })
	return conn
}

// The bytes follow RFC 826 and QEMU's stream, and are written by hand.
func TestARPIsAnsweredForWhoeverIsCutOff(t *testing.T) {
	n := newNetwork(t)
	n.Address("api") // 10.0.2.2
	if err := n.Listen("host/a", n.path("a")); err != nil {
		t.Fatal(err)
	}
	if got := n.Address("host/a").String() + " " + n.MAC("host/a").String(); got != "10.0.2.3 52:54:0a:00:02:03" {
		t.Errorf("a is %s", got)
	}
	n.Cut(Both("host/a", "api")...)
	conn := n.dial("a")
	ask := func(target string) string {
		return "0000002a" + "ffffffffffff" + "52540a000203" + "0806" + "0001080006040001" + "52540a000203" + "0a000203" + "000000000000" + target
	}
	for _, target := range []string{
		"0a000203", // its own: no other endpoint has it
		"0a0002ff", // an address without an endpoint
		"0a000202",
	} {
		frame, err := hex.DecodeString(ask(target))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(frame); err != nil {
			t.Fatal(err)
		}
	}
	want := "0000002a" + "52540a000203" + "52540a000202" + "0806" + "0001080006040002" + "52540a000202" + "0a000202" + "52540a000203" + "0a000203"
	got := make([]byte, len(want)/2)
	conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(conn, got); err != nil || hex.EncodeToString(got) != want {
		t.Errorf("answered %x, %v, and not %s", got, err, want)
	}
}

func TestGuestConnectsAgain(t *testing.T) {
	n := newNetwork(t, "a", "b", "c")
	b, c := n.boot("b"), n.boot("c")
	// So that b knows where a is, and what it sends goes at once.
	a := n.boot("a")
	b.send(n.Address("host/a"), "0")
	a.hears("0")
	a.end()
	n.await("a", false)
	for _, life := range []string{"first", "second", "third"} {
		// What is sent to a guest that is off is lost; when c has heard, it was sent.
		b.send(n.Address("host/a"), "before the "+life)
		b.send(n.Address("host/c"), life)
		c.hears(life)
		a := n.boot("a")
		a.send(n.Address("host/b"), life)
		b.hears(life)
		b.send(n.Address("host/a"), life)
		a.hears(life)
		a.end()
		n.await("a", false)
	}
}

func TestSwitchesDoNotSeeEachOther(t *testing.T) {
	one, two := newNetwork(t, "a", "b"), newNetwork(t, "a", "b")
	a1, b1, a2, b2 := one.boot("a"), one.boot("b"), two.boot("a"), two.boot("b")
	if one.Address("host/b") != two.Address("host/b") {
		t.Fatal("the two networks have different addresses")
	}
	two.Cut(Link{"host/b", "host/a"})
	a1.send(one.Address("host/b"), "one")
	b1.hears("one")
	a2.send(two.Address("host/b"), "two")
	b2.hears("two")
	b1.send(one.Address("host/a"), "not cut")
	a1.hears("not cut")
}

// A guest that stands still takes no frames. It must not hold up the others.
func TestGuestThatReadsNothingHoldsNobodyUp(t *testing.T) {
	n := newNetwork(t, "a", "b", "paused")
	a, b := n.boot("a"), n.boot("b")
	n.dial("paused")
	text := strings.Repeat("x", 1400)
	for range 2 * backlog {
		a.send(n.Address("host/paused"), text)
	}
	a.send(n.Address("host/b"), "through")
	b.hears("through")
}

func TestConnectionWithoutFraming(t *testing.T) {
	n := newNetwork(t, "a")
	conn := n.dial("a")
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(patience))
	if got, err := io.ReadAll(conn); err != nil && !strings.Contains(err.Error(), "reset") || len(got) > 0 {
		t.Errorf("answered %q, %v", got, err)
	}
}

func TestSocketIsOurs(t *testing.T) {
	n := newNetwork(t, "a")
	info, err := os.Stat(n.path("a"))
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("the socket's mode is %v", mode)
	}
}

// api serves, at the endpoint of that name, a server that counts its requests.
func (n *network) api() (at netip.AddrPort, requests *atomic.Int32) {
	n.t.Helper()
	requests = new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		io.WriteString(w, strings.Repeat(r.URL.Path, 10000))
	}))
	n.t.Cleanup(server.Close)
	services, err := n.Serve("api", Target{To: server.Listener.Addr().String()})
	if err != nil {
		n.t.Fatal(err)
	}
	return services[0], requests
}

func (g *guest) dial(at netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return gonet.DialContextTCP(ctx, g.stack, tcpip.FullAddress{Addr: tcpip.AddrFrom4(at.Addr().As4()), Port: at.Port()}, ipv4.ProtocolNumber)
}

// request writes a request without waiting for its answer.
func request(t *testing.T, conn net.Conn, path string) {
	t.Helper()
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: api\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
}

func answer(t *testing.T, in *bufio.Reader, path string) {
	t.Helper()
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || string(body) != strings.Repeat(path, 10000) {
		t.Fatalf("%s: answered %d bytes, %v", path, len(body), err)
	}
}

func TestService(t *testing.T) {
	n := newNetwork(t, "a", "b")
	api, requests := n.api()
	a, b := n.boot("a"), n.boot("b")
	conn, err := a.dial(api)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(patience))
	in := bufio.NewReader(conn)
	request(t, conn, "/1")
	answer(t, in, "/1")

	// The answers are cut off: a request takes effect, and its answer comes when it can.
	n.Cut(Link{"api", "host/a"})
	request(t, conn, "/2")
	deadline := time.Now().Add(patience)
	for requests.Load() < 2 {
		if time.Now().After(deadline) {
			t.Fatal("a request doesn't arrive although only the answers are cut off")
		}
		time.Sleep(time.Millisecond)
	}
	if in.Buffered() > 0 {
		t.Error("an answer passes a cut link")
	}
	n.Restore(Link{"api", "host/a"})
	answer(t, in, "/2")

	// The requests are cut off: what another guest asks for meanwhile is the third.
	n.Cut(Link{"host/a", "api"})
	request(t, conn, "/4")
	other, err := b.dial(api)
	if err != nil {
		t.Fatal(err)
	}
	request(t, other, "/3")
	answer(t, bufio.NewReader(other), "/3")
	if got := requests.Load(); got != 3 {
		t.Errorf("%d requests arrived", got)
	}
	n.Restore(Link{"host/a", "api"})
	answer(t, in, "/4")
}

// Guests reach what is served, and nothing else of this machine.
func TestNothingElseIsReached(t *testing.T) {
	n := newNetwork(t, "a")
	n.api()
	private, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer private.Close()
	a := n.boot("a")
	at := netip.AddrPortFrom(n.Address("api"), private.Addr().(*net.TCPAddr).AddrPort().Port())
	if conn, err := a.dial(at); err == nil {
		conn.Close()
		t.Error("a guest reaches a port that isn't served")
	} else if !strings.Contains(err.Error(), "refused") {
		t.Errorf("a port that isn't served: %v", err)
	}
}

// TestServiceBeyondTheNetwork: an address of no endpoint is reached by way of the one that serves
// it, over its links, and so are the endpoint's own.
func TestServiceBeyondTheNetwork(t *testing.T) {
	n := newNetwork(t, "a", "b")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, strings.Repeat(r.URL.Path, 10000)) }))
	t.Cleanup(server.Close)
	beyond := netip.MustParseAddrPort("10.96.0.1:443")
	at, err := n.Serve("api", Target{To: server.Listener.Addr().String(), At: beyond}, Target{To: server.Listener.Addr().String()})
	if err != nil || at[0] != beyond || at[1].Addr() != n.Address("api") {
		t.Fatalf("served at %v (%v)", at, err)
	}
	a := n.boot("a")
	a.stack.AddRoute(tcpip.Route{
		Destination: tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4([4]byte{10, 96, 0, 0}), PrefixLen: 16}.Subnet(),
		Gateway:     tcpip.AddrFrom4(n.Address("api").As4()), NIC: nic,
	})
	for _, address := range at {
		conn, err := a.dial(address)
		if err != nil {
			t.Fatalf("reach %s: %v", address, err)
		}
		conn.SetDeadline(time.Now().Add(patience))
		request(t, conn, "/1")
		answer(t, bufio.NewReader(conn), "/1")
	}
	if _, err := a.dial(netip.AddrPortFrom(beyond.Addr(), at[1].Port())); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a port of the endpoint at the other address: %v", err)
	}
	n.Cut(Both("host/a", "api")...)
	if conn, err := a.dial(beyond); err == nil {
		conn.Close()
		t.Error("it is reached over a link that is cut")
	}
	if _, err := n.Serve("twice", Target{To: "127.0.0.1:1", At: beyond}, Target{To: "127.0.0.1:2", At: beyond}); err == nil || !strings.Contains(err.Error(), "would both be at 10.96.0.1:443") {
		t.Errorf("two services at one place: %v", err)
	}
}

func TestTargetIsGone(t *testing.T) {
	n := newNetwork(t, "a")
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	at, err := n.Serve("api", Target{To: gone.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.boot("a").dial(at[0]); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a service that is gone: %v", err)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	n := newNetwork(t, "a", "b")
	api, _ := n.api()
	a, b := n.boot("a"), n.boot("b")
	conn, err := a.dial(api)
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	request(t, conn, "/1")
	answer(t, in, "/1")
	// A handshake that can't be completed, and a guest that reads nothing.
	n.Cut(Link{"api", "host/b"})
	half := make(chan error)
	go func() { _, err := b.dial(api); half <- err }()
	service := n.port("api")
	for deadline := time.Now().Add(patience); b.stack.Stats().TCP.SegmentsSent.Value() == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	a.end()
	b.end()
	if err := <-half; err == nil {
		t.Error("connected in spite of a cut link")
	}
	for _, name := range []string{"a", "b"} {
		if _, err := os.Stat(n.path(name)); !os.IsNotExist(err) {
			t.Errorf("the socket of %s is left: %v", name, err)
		}
	}
	if service.inbox != nil {
		t.Error("the service is still connected")
	}
	if _, err := n.Serve("late", Target{To: "127.0.0.1:1"}); err == nil {
		t.Error("a closed switch serves")
	}
	if err := n.Listen("host/late", n.path("late")); err == nil {
		t.Error("a closed switch listens")
	}
	if _, err := os.Stat(n.path("late")); !os.IsNotExist(err) {
		t.Errorf("the socket of a closed switch is left: %v", err)
	}
	var left string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if left = goroutines(); left == "" {
			return
		}
	}
	t.Errorf("goroutines are left:\n%s", left)
}

// goroutines returns the stacks of a network's goroutines.
func goroutines() string {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	var left []string
	for _, g := range strings.Split(string(all), "\n\n") {
		if !strings.Contains(g, "testing.tRunner(") && (strings.Contains(g, "gvisor.dev/") || strings.Contains(g, "vms/network.")) {
			left = append(left, g)
		}
	}
	return strings.Join(left, "\n\n")
}
