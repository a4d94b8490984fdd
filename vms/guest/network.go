package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// configureNetwork brings the loopback and the card up. Nothing lies beyond the hosts' network, so
// there is no route.
func configureNetwork(config *evidence.Network) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("configure network: %w", err)
	}
	defer unix.Close(fd)
	card, err := networkCard()
	if err != nil {
		return err
	}
	mask := [4]byte(net.CIDRMask(config.Address.Bits(), 32))
	for _, set := range []struct {
		request uint
		address [4]byte
	}{{unix.SIOCSIFADDR, config.Address.Addr().As4()}, {unix.SIOCSIFNETMASK, mask}} {
		if err := interfaceAddress(fd, set.request, card, set.address); err != nil {
			return fmt.Errorf("configure network: set address of %s: %w", card, err)
		}
	}
	for _, name := range []string{"lo", card} {
		r, err := unix.NewIfreq(name)
		if err != nil {
			return fmt.Errorf("configure network: %w", err)
		}
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r); err != nil {
			return fmt.Errorf("configure network: bring %s up: %w", name, err)
		}
	}
	return nil
}

func interfaceAddress(fd int, request uint, name string, address [4]byte) error {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := r.SetInet4Addr(address[:]); err != nil {
		return err
	}
	return unix.IoctlIfreq(fd, request, r)
}

// networkCard waits for the one interface that isn't the loopback.
func networkCard() (string, error) {
	for {
		entries, err := os.ReadDir("/sys/class/net")
		if err != nil {
			return "", fmt.Errorf("find network card: %w", err)
		}
		for _, e := range entries {
			if e.Name() != "lo" {
				return e.Name(), nil
			}
		}
		if uptime() > deviceTimeout {
			return "", fmt.Errorf("find network card: none after %v", deviceTimeout)
		}
		time.Sleep(devicePoll)
	}
}

// peerPort is the UDP port at which each guest is asked by the others.
const peerPort = 7

// A datagram between guests is one of these signs and the name of the host that it comes from.
const (
	question = "?"
	answer   = "!"
)

// peers is the guest's end of the messages between guests. Like everything of PID 1, it runs in
// the one goroutine, so that a guest whose user space is frozen answers no message.
type peers struct {
	name  string
	known map[string]netip.Addr
	conn  *net.UDPConn
	heard chan datagram
}

type datagram struct {
	text string
	from netip.AddrPort
}

func newPeers(name string, config *evidence.Network) (*peers, error) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{Port: peerPort})
	if err != nil {
		return nil, fmt.Errorf("listen to peers: %w", err)
	}
	p := &peers{name: name, known: config.Peers, conn: conn, heard: make(chan datagram)}
	go func() {
		for buf := make([]byte, 256); ; {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				time.Sleep(devicePoll) // an ICMP error of an earlier datagram; the socket is never closed
				continue
			}
			p.heard <- datagram{string(buf[:n]), from}
		}
	}()
	return p, nil
}

func (p *peers) ask(host string) error {
	address, known := p.known[host]
	if !known {
		return fmt.Errorf("ask %s: it is none of this host's peers", host)
	}
	return p.send(question, netip.AddrPortFrom(address, peerPort))
}

func (p *peers) send(sign string, to netip.AddrPort) error {
	if _, err := p.conn.WriteToUDPAddrPort([]byte(sign+p.name), to); err != nil {
		return fmt.Errorf("send to %v: %w", to, err)
	}
	return nil
}

// take says what came, and answers a question.
func (p *peers) take(d datagram, out *witness) error {
	if host, is := strings.CutPrefix(d.text, answer); is {
		out.say(evidence.Answered, host)
		return nil
	}
	host, is := strings.CutPrefix(d.text, question)
	if !is {
		return fmt.Errorf("%v says %q", d.from, d.text)
	}
	out.say(evidence.Asked, host)
	return p.send(answer, d.from)
}
