package ipmi

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/wall"
	"github.com/fencelab/fencelab/front"
)

// Limits of the protocol and of what a stranger may use up.
const (
	maxName        = 16
	maxPassword    = 20
	maxSessions    = 16 // by default
	maxPacket      = 1024
	sessionTimeout = 60 * time.Second // section 6.12.15, within its tolerance
)

// Config is the account of a Server. RMCP+ can't do without one: there is no
// default, on loopback neither.
type Config struct {
	Username string // at most 16 bytes
	Password string // at most 20 bytes
	// Suites are the cipher suites that are offered, 3 and 17 or one of them; none is both.
	Suites []int
	// MaxSessions is the limit of concurrent sessions; 0 is 16.
	MaxSessions int
	// Clock is what sessions age on; nil is wall.Clock.
	Clock fakebmc.Clock
}

// Server is the LAN interface of one BMC.
type Server struct {
	cfg   Config
	bmc   *fakebmc.BMC
	guid  [16]byte
	conn  *net.UDPConn
	ended sync.WaitGroup
	// unhook ends what Close must.
	unhook func()
	// suites are those that are offered.
	suites []suite
	// guesses slows down whoever guesses the password. An open session doesn't wait.
	guesses *front.Throttle

	mu         sync.Mutex
	nextID     uint32
	handshakes handshakes
	sessions   []*session
	boot       bootOptions
	cause      byte // of the host's last restart
	failed     bool // the last power event was a loss of AC power
}

// Listen serves a BMC on an address, host:port; an empty host is 127.0.0.1,
// port 0 a free one.
func Listen(addr string, b *fakebmc.BMC, cfg Config) (*Server, error) {
	switch {
	case cfg.Username == "" || cfg.Password == "":
		return nil, fmt.Errorf("serving ipmi for %s: set a user name and a password", b.Host())
	case len(cfg.Username) > maxName || len(cfg.Password) > maxPassword:
		return nil, fmt.Errorf("serving ipmi for %s: the protocol has room for %d bytes of user name and %d of password", b.Host(), maxName, maxPassword)
	}
	for _, id := range cfg.Suites {
		if !slices.ContainsFunc(suites, func(x suite) bool { return int(x.id) == id }) {
			return nil, fmt.Errorf("serving ipmi for %s: there is no cipher suite %d here: choose of 3 and 17", b.Host(), id)
		}
	}
	if cfg.MaxSessions < 0 {
		return nil, fmt.Errorf("serving ipmi for %s: a limit of %d sessions is negative", b.Host(), cfg.MaxSessions)
	}
	if cfg.Clock == nil {
		cfg.Clock = wall.Clock()
	}
	if strings.HasPrefix(addr, ":") {
		addr = "127.0.0.1" + addr
	}
	udp, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, fmt.Errorf("serving ipmi for %s on %s: %w", b.Host(), addr, err)
	}
	conn, err := net.ListenUDP("udp", udp)
	if err != nil {
		return nil, fmt.Errorf("serving ipmi for %s on %s: %w", b.Host(), addr, err)
	}
	s := newServer(b, cfg)
	s.conn = conn
	s.ended.Go(s.serve)
	return s, nil
}

func newServer(b *fakebmc.BMC, cfg Config) *Server {
	cfg.MaxSessions = cmp.Or(cfg.MaxSessions, maxSessions)
	s := &Server{cfg: cfg, bmc: b, guesses: front.NewThrottle(cfg.Clock.Now), handshakes: newHandshakes(), suites: slices.Clone(suites)}
	if len(cfg.Suites) > 0 {
		s.suites = slices.DeleteFunc(s.suites, func(x suite) bool { return !slices.Contains(cfg.Suites, int(x.id)) })
	}
	s.unhook = b.Hook(fakebmc.Hooks{Reset: s.aboutToReset, Forget: s.forget})
	hash := sha256.Sum256([]byte("fakebmc ipmi " + b.Host()))
	copy(s.guid[:], hash[:])
	return s
}

// Addr is where the Server listens.
func (s *Server) Addr() net.Addr { return s.conn.LocalAddr() }

// Close ends the Server, not the BMC. When it returns nothing is left running.
func (s *Server) Close() error {
	err := s.conn.Close()
	s.ended.Wait()
	s.unhook()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (s *Server) serve() {
	packet := make([]byte, maxPacket)
	for {
		n, client, err := s.conn.ReadFromUDPAddrPort(packet)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			continue // an ICMP error of an earlier answer
		}
		s.handle(client.String(), packet[:n], func(answer []byte) {
			_, _ = s.conn.WriteToUDPAddrPort(answer, client) // a client that left is not our trouble
		})
	}
}

// handle answers one packet, at once, later or never. Whatever is malformed,
// unauthenticated or replayed has no answer, as the specification has it.
func (s *Server) handle(client string, packet []byte, reply func([]byte)) {
	if len(packet) < rmcpHeader || packet[0] != rmcpVersion || !s.bmc.Reachable(client) {
		return
	}
	body := packet[rmcpHeader:]
	switch packet[3] {
	case classASF:
		if pong := presencePong(body); pong != nil {
			reply(append([]byte{rmcpVersion, 0, rmcpNoAck, classASF}, pong...))
		}
	case classIPMI:
		if len(body) == 0 {
			return
		}
		if body[0] == authRMCPPlus {
			s.handlePlus(client, body, reply)
		} else {
			s.handleOutside(body, reply)
		}
	}
}

// handleOutside answers a message in the IPMI 1.5 format, which is there for what
// comes before a session.
func (s *Server) handleOutside(body []byte, reply func([]byte)) {
	payload, ok := parseOutside(body)
	if !ok {
		return
	}
	if m, ok := parseMessage(payload); ok {
		if code, data, known := s.beforeSession(m); known {
			reply(wrapOutside(m.answer(code, data)))
		}
	}
}

func (s *Server) handlePlus(client string, body []byte, reply func([]byte)) {
	p, ok := parsePlus(body)
	if !ok {
		return
	}
	if p.session == 0 {
		if p.encrypted || p.authenticated {
			return
		}
		switch p.kind {
		case payloadOpenSession:
			reply(wrapPlus(payloadOpenSession+1, s.openSession(client, p.payload)))
		case payloadRAKP1:
			reply(wrapPlus(payloadRAKP1+1, s.rakp1(p.payload)))
		case payloadRAKP3:
			reply(wrapPlus(payloadRAKP3+1, s.rakp3(client, p.payload)))
		case payloadIPMI:
			if m, ok := parseMessage(p.payload); ok {
				if code, data, known := s.beforeSession(m); known {
					reply(wrapPlus(payloadIPMI, m.answer(code, data)))
				}
			}
		}
		return
	}
	x := s.sessionOf(p.session)
	if x == nil || p.kind != payloadIPMI {
		return
	}
	message, ok := x.open(p)
	if !ok {
		return
	}
	if m, ok := parseMessage(message); ok {
		s.execute(client, x, m, func(code byte, data []byte) {
			if sealed, err := x.seal(m.answer(code, data)); err == nil {
				reply(sealed)
			}
		})
	}
}
