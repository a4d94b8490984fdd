// Package network is the network of a lab's guests: a switch inside this process. Every frame
// between two guests, and between a guest and a service such as the API server, passes it, so a
// link can be cut in one direction without privilege, bridge or kernel module, and in the same way
// on every machine.
//
// What a link connects is an endpoint: host/NAME is a guest, whose QEMU connects to a Unix socket
// ([Switch.Listen]); any other name, such as api, is a service: an address of this network behind
// which one TCP port of this machine is reached ([Switch.Serve]). Nothing else of this machine, and
// nothing beyond it, can be reached.
//
// The TCP/IP stack in front of services is gVisor's.
package network

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// Link is one direction between two endpoints. An empty one is every other.
type Link struct{ From, To string }

func (l Link) String() string { return l.From + " -> " + l.To }

// Host is the endpoint of a guest.
func Host(name string) string { return hostPrefix + name }

// HostOf is the guest's name, if the endpoint is a guest's.
func HostOf(endpoint string) (name string, is bool) { return strings.CutPrefix(endpoint, hostPrefix) }

const hostPrefix = "host/"

// Both are the two directions between two endpoints.
func Both(a, b string) []Link { return []Link{{a, b}, {b, a}} }

// All are both directions between an endpoint and every other.
func All(endpoint string) []Link { return Both(endpoint, "") }

// Prefix is the length of the network's prefix, which guests configure with their address.
const Prefix = 16

// first is the first endpoint's address. Every switch uses the same ones: two of them have nothing
// in common.
var first = netip.AddrFrom4([4]byte{10, 0, 2, 2})

// backlog is how many frames may be on their way to one endpoint. Those beyond it are lost, as in
// any switch: a guest that is paused takes none, and must not hold the others up.
const backlog = 1024

// Switch connects endpoints. Its methods may be called from any goroutine.
type Switch struct {
	mu       sync.Mutex
	ports    map[string]*port // by endpoint
	byMAC    map[mac]*port
	cut      map[Link]bool
	poor     map[Link]Impairment
	transits map[Link]*transit
	next     netip.Addr
	closed   bool
	done     chan struct{}  // closed with it
	closers  []func() error // of listeners and services
	running  sync.WaitGroup
}

type mac [6]byte

// port is an endpoint's place at the switch.
type port struct {
	endpoint string
	address  netip.Addr
	mac      mac
	inbox    chan frame // to what is plugged in; nil while nothing is
}

// frame is one Ethernet frame on its way. from is nil for what the switch itself says.
type frame struct {
	from *port
	data []byte
}

// New returns a switch without any endpoint.
func New() *Switch {
	return &Switch{
		ports: map[string]*port{}, byMAC: map[mac]*port{}, cut: map[Link]bool{}, poor: map[Link]Impairment{}, transits: map[Link]*transit{},
		next: first, done: make(chan struct{}),
	}
}

// Address is the endpoint's address. It is allotted when the endpoint is first spoken of, and
// stays.
func (s *Switch) Address(endpoint string) netip.Addr { return s.port(endpoint).address }

// MAC is the hardware address that the endpoint's network card must have.
func (s *Switch) MAC(endpoint string) net.HardwareAddr {
	m := s.port(endpoint).mac
	return m[:]
}

func (s *Switch) port(endpoint string) *port {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.ports[endpoint]
	if p == nil {
		p = &port{endpoint: endpoint, address: s.next, mac: mac{0x52, 0x54}}
		s.next = s.next.Next()
		address := p.address.As4()
		copy(p.mac[2:], address[:])
		s.ports[endpoint], s.byMAC[p.mac] = p, p
	}
	return p
}

// Cut lets nothing pass these links any more, and returns those that were not cut before. What
// several of them cover passes when all are restored. A frame that is just being handed over still
// arrives.
func (s *Switch) Cut(links ...Link) []Link { return s.set(true, links) }

// Restore ends Cut and Impair, and returns the links that were cut or poor.
func (s *Switch) Restore(links ...Link) []Link {
	changed := s.set(false, links)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range links {
		if _, poor := s.poor[l]; !poor {
			continue
		}
		delete(s.poor, l)
		if !slices.Contains(changed, l) {
			changed = append(changed, l)
		}
	}
	return changed
}

// Faulty are the links that are cut or poor, in order.
func (s *Switch) Faulty() []Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	links := slices.AppendSeq(slices.Collect(maps.Keys(s.cut)), maps.Keys(s.poor))
	slices.SortFunc(links, func(a, b Link) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(links)
}

func (s *Switch) set(cut bool, links []Link) (changed []Link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range links {
		if s.cut[l] == cut {
			continue
		}
		changed = append(changed, l)
		if cut {
			s.cut[l] = true
		} else {
			delete(s.cut, l)
		}
	}
	return changed
}

// passes reports whether a frame may be handed to an endpoint now.
func (s *Switch) passes(f frame, to *port) bool {
	if f.from == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from := f.from.endpoint
	return !s.cut[Link{from, to.endpoint}] && !s.cut[Link{From: from}] && !s.cut[Link{To: to.endpoint}]
}

var errClosed = errors.New("the switch is closed")

// plug has every frame for the endpoint handed to take, in their order, until unplug is called.
// unplug returns when take has returned for the last time.
func (s *Switch) plug(p *port, take func(data []byte)) (unplug func(), err error) {
	inbox, done := make(chan frame, backlog), make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	if p.inbox != nil {
		return nil, errors.New("it is connected already")
	}
	p.inbox = inbox
	go func() {
		defer close(done)
		for f := range inbox {
			if s.passes(f, p) {
				take(f.data)
			}
		}
	}()
	return func() {
		s.mu.Lock()
		p.inbox = nil
		close(inbox)
		s.mu.Unlock()
		<-done
	}, nil
}

// put is called with mu held.
func (p *port) put(f frame) {
	select {
	case p.inbox <- f: // never, while it is nil
	default:
	}
}

// Offsets in a frame that the switch looks at: Ethernet's header, and ARP for IPv4 over Ethernet
// behind it (RFC 826).
const (
	headerLength = 14
	typeIPv4     = 0x0800
	typeARP      = 0x0806
	arpLength    = headerLength + 28
)

// arpHead begins every ARP packet of this kind, before the operation.
var arpHead = []byte{0, 1, 8, 0, 6, 4}

// forward takes a frame from an endpoint. Its sender is where it came from and not what it says, so
// no guest can pose as another on a link that is cut. What is neither ARP nor IPv4 to an endpoint
// of ours goes nowhere.
func (s *Switch) forward(from *port, data []byte) {
	if len(data) < headerLength {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch binary.BigEndian.Uint16(data[12:]) {
	case typeARP:
		if answer := s.resolve(from, data); answer != nil {
			from.put(frame{data: answer})
		}
	case typeIPv4:
		if to := s.byMAC[mac(data)]; to != nil && to != from {
			s.send(from, to, data)
		}
	}
}

// resolve answers an ARP request in its subject's place, whatever is cut: were it for the
// endpoints themselves to answer, a link that is cut in one direction would be dead in both as
// soon as a neighbour was asked for anew. An endpoint that asks for its own address, to see if
// another has it, gets no answer. It is called with mu held.
func (s *Switch) resolve(from *port, data []byte) []byte {
	const request, reply = 1, 2
	if len(data) < arpLength || !bytes.HasPrefix(data[headerLength:], arpHead) {
		return nil
	}
	arp := data[headerLength:arpLength]
	wanted := netip.AddrFrom4([4]byte(arp[24:]))
	if binary.BigEndian.Uint16(arp[6:]) != request || wanted == from.address {
		return nil
	}
	for _, p := range s.ports {
		if p.address != wanted {
			continue
		}
		answer := make([]byte, 0, arpLength)
		answer = append(answer, data[6:12]...)
		answer = append(answer, p.mac[:]...)
		answer = binary.BigEndian.AppendUint16(answer, typeARP)
		answer = append(answer, arpHead...)
		answer = binary.BigEndian.AppendUint16(answer, reply)
		answer = append(answer, p.mac[:]...)
		answer = append(answer, arp[24:28]...)
		return append(answer, arp[8:18]...) // the asker's addresses, both
	}
	return nil
}

// run runs f until it returns, which it must do when the closer is called; Close waits for it.
func (s *Switch) run(closer func() error, f func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.Join(errClosed, closer())
	}
	s.closers = append(s.closers, closer)
	s.running.Go(f)
	return nil
}

// Close disconnects every endpoint. Nothing of the switch runs any more when it returns, and no
// socket is left.
func (s *Switch) Close() error {
	s.mu.Lock()
	if !s.closed {
		close(s.done)
	}
	s.closed = true
	closers := s.closers
	s.closers = nil
	s.mu.Unlock()
	var errs []error
	for _, c := range closers {
		errs = append(errs, c())
	}
	s.running.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close network: %w", err)
	}
	return nil
}
