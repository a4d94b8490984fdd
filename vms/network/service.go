package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// mtu is Ethernet's, in front of which the header comes.
	mtu = 1500
	// handshakes is how many connections may be in the making at a service. Where answers are cut
	// off, each of them is so until TCP gives up.
	handshakes = 1024
	// nic is the only card that a stack has.
	nic = 1
)

// Target is a service: a host:port of this machine.
type Target struct {
	To string
	// At is where guests reach it, if that is beyond the network: they need a route to it by way of
	// the endpoint. The zero value is the endpoint's address, with the port of the target.
	At netip.AddrPort
}

// Serve makes targets services of one endpoint of the network, and returns where guests reach them.
// Whatever other port they ask for is refused.
func (s *Switch) Serve(endpoint string, targets ...Target) (at []netip.AddrPort, err error) {
	fail := func(err error) ([]netip.AddrPort, error) {
		return nil, fmt.Errorf("serve at %s: %w", endpoint, err)
	}
	p := s.port(endpoint)
	behind := make(map[netip.AddrPort]string)
	addresses := []netip.Prefix{netip.PrefixFrom(p.address, Prefix)}
	for _, target := range targets {
		address, err := netip.ParseAddrPort(target.To)
		if err != nil {
			return fail(err)
		}
		where := target.At
		if !where.IsValid() {
			where = netip.AddrPortFrom(p.address, address.Port())
		}
		if other, taken := behind[where]; taken {
			return fail(fmt.Errorf("%s and %s would both be at %s", target.To, other, where))
		}
		if one := netip.PrefixFrom(where.Addr(), 32); where.Addr() != p.address && !slices.Contains(addresses, one) {
			addresses = append(addresses, one)
		}
		behind[where], at = target.To, append(at, where)
	}
	machine, err := newMachine(p.mac, addresses, tcp.NewProtocol)
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	relays := &relays{}
	forwarder := tcp.NewForwarder(machine.stack, 0, handshakes, func(r *tcp.ForwarderRequest) {
		local := netip.AddrFrom4(r.ID().LocalAddress.As4())
		target, served := behind[netip.AddrPortFrom(local, r.ID().LocalPort)]
		if !served || !relays.begin() {
			r.Complete(true)
			return
		}
		defer relays.end()
		relay(ctx, r, target)
	})
	machine.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, forwarder.HandlePacket)
	unplug, err := s.plug(p, machine.inject)
	if err != nil {
		cancel()
		machine.close()
		return fail(err)
	}
	closer := func() error { cancel(); return nil }
	if err := s.run(closer, func() {
		machine.emit(ctx, func(data []byte) { s.forward(p, data) })
		unplug()
		machine.close()
		relays.wait()
	}); err != nil {
		return fail(err)
	}
	return at, nil
}

// relays counts connections, and lets none begin once it is waited for them.
type relays struct {
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

func (r *relays) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.running.Add(1)
	}
	return !r.closed
}

func (r *relays) end() { r.running.Done() }

func (r *relays) wait() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.running.Wait()
}

// relay takes a guest's connection and carries what comes to the target, and back, until either end
// is done with it.
func relay(ctx context.Context, r *tcp.ForwarderRequest, target string) {
	// The target first: a guest whose connection is refused there is refused here.
	var dialer net.Dialer
	outer, err := dialer.DialContext(ctx, "tcp", target)
	if err != nil {
		r.Complete(true)
		return
	}
	var queue waiter.Queue
	endpoint, failure := r.CreateEndpoint(&queue)
	r.Complete(false)
	if failure != nil {
		outer.Close()
		return
	}
	keepAlive(endpoint)
	inner := gonet.NewTCPConn(&queue, endpoint)
	defer closeBoth(inner, outer)
	defer context.AfterFunc(ctx, func() { closeBoth(inner, outer) })()
	var half sync.WaitGroup
	half.Go(func() { pipe(outer.(*net.TCPConn), inner) })
	half.Go(func() { pipe(inner, outer) })
	half.Wait()
}

// keepAlive sets the times of Go's servers, so that the target notices the end of a guest that was
// switched off as late as it would if it were connected to the guest itself.
func keepAlive(endpoint tcpip.Endpoint) {
	idle, interval := tcpip.KeepaliveIdleOption(15*time.Second), tcpip.KeepaliveIntervalOption(15*time.Second)
	endpoint.SetSockOpt(&idle)
	endpoint.SetSockOpt(&interval)
	endpoint.SetSockOptInt(tcpip.KeepaliveCountOption, 9)
	endpoint.SocketOptions().SetKeepAlive(true)
}

func closeBoth(a, b io.Closer) {
	a.Close()
	b.Close()
}

type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// pipe carries one direction to its end. One that ends in disorder ends the other, too.
func pipe(to halfCloser, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		closeBoth(to, from)
		return
	}
	to.CloseWrite()
}

// machine is a TCP/IP stack with one network card.
type machine struct {
	stack *stack.Stack
	card  *channel.Endpoint
}

// newMachine has the addresses: first the one in the network, then others.
func newMachine(hardware mac, addresses []netip.Prefix, transports ...stack.TransportProtocolFactory) (*machine, error) {
	m := &machine{
		stack: stack.New(stack.Options{
			NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
			TransportProtocols: transports,
		}),
		card: channel.New(backlog, mtu+headerLength, tcpip.LinkAddress(hardware[:])),
	}
	if err := m.stack.CreateNIC(nic, ethernet.New(m.card)); err != nil {
		m.close()
		return nil, errors.New(err.String())
	}
	for i, address := range addresses {
		prefixed := tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4(address.Addr().As4()), PrefixLen: address.Bits()}
		if err := m.stack.AddProtocolAddress(nic, tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: prefixed}, stack.AddressProperties{}); err != nil {
			m.close()
			return nil, errors.New(err.String())
		}
		if i == 0 {
			m.stack.SetRouteTable([]tcpip.Route{{Destination: prefixed.Subnet(), NIC: nic}})
		}
	}
	return m, nil
}

// inject hands the machine a frame.
func (m *machine) inject(data []byte) {
	packet := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(data)})
	defer packet.DecRef()
	m.card.InjectInbound(0, packet)
}

// emit takes the machine's frames until ctx ends.
func (m *machine) emit(ctx context.Context, take func(data []byte)) {
	for {
		packet := m.card.ReadContext(ctx)
		if packet == nil {
			return
		}
		view := packet.ToView()
		take(append([]byte(nil), view.AsSlice()...))
		view.Release()
		packet.DecRef()
	}
}

func (m *machine) close() {
	m.card.Close()
	m.stack.Destroy()
}
