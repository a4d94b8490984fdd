package redfish

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/wall"
	"github.com/fencelab/fencelab/front"
)

// Config says how a Server talks to its clients. The zero value serves HTTP
// without authentication, on loopback addresses only.
type Config struct {
	// Username and Password are the account for Basic and session authentication.
	// There is none by default, and none is needed on loopback.
	Username, Password string
	// AnyPassword lets in whoever names any user and any password, and refuses who names none. It
	// takes the place of the account, and is for loopback addresses.
	AnyPassword bool
	// Certificate, given or from SelfSigned, makes it HTTPS.
	Certificate *tls.Certificate
	// OldestTLS and NewestTLS are the versions of TLS that it speaks, such as tls.VersionTLS10; 0
	// are 1.2 and the newest there is.
	OldestTLS, NewestTLS uint16
	// MaxSessions is the limit of concurrent sessions per listener; 0 is 16.
	MaxSessions int
	// SessionTimeout ends a session that is not used, after 30 seconds to 24 hours
	// as Redfish has it; 0 is 30 minutes.
	SessionTimeout time.Duration
	// Media are the URLs of images, or of directories of images, that may be inserted
	// as virtual media; none by default. The server itself never fetches one.
	Media []string
	// Destinations are the URLs, or what is below them, to which clients may have events pushed;
	// none by default.
	Destinations []string
	// Clock is what sessions age on; nil is the wall clock.
	Clock fakebmc.Clock
	// HoldLimit is how long a request without an answer holds its connection if
	// the client doesn't leave; 0 is 10 minutes.
	HoldLimit time.Duration
	// Warn gets what is served and hardly meant; may be nil.
	Warn func(string)
	// Mockup is what each listener of one host looks like, whose BMC knows that by [Mockup.Locate];
	// nil is fencelab's own tree.
	Mockup *Mockup
	// OnRequest has the Record of the requests to a listener of several hosts that
	// concern none of them, such as a login. All others go to their BMC's hook.
	OnRequest func(fakebmc.Record)
}

// Server serves BMCs over Redfish. One listener for each host is how real BMCs
// are, and lets each crash, hang or be cut off for itself; a listener of a Group
// of hosts is there for scale, and for hosts that come and go.
type Server struct {
	cfg          Config
	media        []*url.URL
	destinations []*url.URL
	gate         *front.Gate
	closing      chan struct{}
	running      sync.WaitGroup // accept loops and connections

	mu     sync.Mutex
	closed bool
	served []*Group
	common []*fakebmc.BMC // of listeners of several hosts
	fronts []*http.Server
}

// NewServer returns a Server without a listener.
func NewServer(cfg Config) (*Server, error) {
	if (cfg.Username == "") != (cfg.Password == "") {
		return nil, errors.New("serving bmcs: user name and password go together; set both or none")
	}
	if cfg.AnyPassword && cfg.Username != "" {
		return nil, errors.New("serving bmcs: where any password is accepted there is no account; leave one of them out")
	}
	if strings.Contains(cfg.Username, ":") {
		return nil, fmt.Errorf("serving bmcs: user name %q has a colon, which ends a name in HTTP's Basic authentication; leave it out", cfg.Username)
	}
	cfg.MaxSessions = orDefault(cfg.MaxSessions, 16)
	cfg.SessionTimeout = orDefault(cfg.SessionTimeout, 30*time.Minute)
	cfg.HoldLimit = orDefault(cfg.HoldLimit, 10*time.Minute)
	if cfg.SessionTimeout < minSessionTimeout || cfg.SessionTimeout > maxSessionTimeout {
		return nil, fmt.Errorf("serving bmcs: session timeout %v is outside Redfish's 30s to 24h", cfg.SessionTimeout)
	}
	if cfg.NewestTLS != 0 && cfg.NewestTLS < cmp.Or(cfg.OldestTLS, tls.VersionTLS12) {
		return nil, fmt.Errorf("serving bmcs: %s, the newest TLS, is older than %s, the oldest", tls.VersionName(cfg.NewestTLS), tls.VersionName(cmp.Or(cfg.OldestTLS, tls.VersionTLS12)))
	}
	if cfg.MaxSessions < 0 || cfg.HoldLimit < 0 {
		return nil, errors.New("serving bmcs: limits must not be negative")
	}
	if cfg.Clock == nil {
		cfg.Clock = wall.Clock()
	}
	s := &Server{cfg: cfg, gate: front.NewGate(), closing: make(chan struct{})}
	for _, m := range cfg.Media {
		u, err := url.Parse(m)
		if err != nil || u.Scheme == "" || u.User != nil || (u.Host == "") != (u.Scheme == "file") {
			return nil, fmt.Errorf("serving bmcs: virtual media may lie at %q, which is neither a URL with a scheme and a host nor a file:///path", m)
		}
		s.media = append(s.media, u)
	}
	for _, d := range cfg.Destinations {
		u, err := url.Parse(d)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			return nil, fmt.Errorf("serving bmcs: events may be pushed to %q, which is no URL such as http://127.0.0.1:8080/events/", d)
		}
		u.Path = strings.TrimSuffix(u.Path, "/")
		s.destinations = append(s.destinations, u)
	}
	return s, nil
}

func orDefault[T int | time.Duration](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}

// Listen serves a BMC on an address, host:port, and returns the URL of the
// service, without path. An empty host is 127.0.0.1, port 0 a free one. An address
// other than loopback needs an account. The Server closes the BMC in the end.
func (s *Server) Listen(addr string, b *fakebmc.BMC) (url string, err error) {
	g, err := NewGroup(b)
	if err != nil {
		return "", fmt.Errorf("serving a bmc on %s: %w", addr, err)
	}
	return s.serve(addr, g, b)
}

// ListenGroup serves a Group of hosts behind one address, as Listen serves one BMC. When the Server
// closes, it closes the BMCs that the Group has then.
func (s *Server) ListenGroup(addr string, g *Group) (url string, err error) {
	return s.serve(addr, g, nil)
}

// serve has the one BMC that the listener belongs to, or nil.
func (s *Server) serve(addr string, g *Group, only *fakebmc.BMC) (url string, err error) {
	ln, err := s.listen(addr)
	if err != nil {
		return "", fmt.Errorf("serving bmcs on %s: %w", addr, err)
	}
	if text := exposure(ln.Addr(), s.cfg.Certificate != nil); text != "" && s.cfg.Warn != nil {
		s.cfg.Warn(text)
	}
	url = "http://" + ln.Addr().String()
	accept := s.gate.Listener(ln)
	if only != nil {
		accept = severed{accept, only}
	}
	svc := s.service(g, only, ln.Addr().String())
	if s.cfg.Certificate != nil {
		url = "https://" + ln.Addr().String()
		accept = tls.NewListener(accept, &tls.Config{
			Certificates: []tls.Certificate{*s.cfg.Certificate},
			MinVersion:   cmp.Or(s.cfg.OldestTLS, tls.VersionTLS12),
			MaxVersion:   s.cfg.NewestTLS,
		})
	}
	h := front.Serve(svc)
	gate := h.ConnState
	h.ConnState = func(c net.Conn, state http.ConnState) {
		gate(c, state)
		s.track(c, state)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		ln.Close()
		return "", fmt.Errorf("serving bmcs on %s: the server is closed", addr)
	}
	s.served, s.common = append(s.served, g), append(s.common, svc.common)
	s.fronts = append(s.fronts, h)
	s.running.Go(func() { _ = h.Serve(accept) }) // ends with Close
	return url, nil
}

func (s *Server) service(g *Group, only *fakebmc.BMC, name string) *service {
	svc := &service{
		group: g, account: account{s.cfg.Username, s.cfg.Password, s.cfg.AnyPassword},
		sessions: &sessions{clk: s.cfg.Clock, limit: s.cfg.MaxSessions, timeout: s.cfg.SessionTimeout},
		guesses:  front.NewThrottle(s.cfg.Clock.Now),
		hold:     s.cfg.HoldLimit, closing: s.closing, common: only, allowed: s.media,
		streams: make(chan struct{}, maxStreams), subscriptions: &subscriptions{allowed: s.destinations, run: s.running.Go},
	}
	if only != nil {
		name = only.Host() // the same at whatever port
		svc.mockup = s.cfg.Mockup
	} else {
		svc.common = fakebmc.New("", nil, s.cfg.Clock, fakebmc.OnRequest(s.cfg.OnRequest))
	}
	svc.uuid = uuid("service of " + name)
	svc.sessions.lost = svc.common.Lost
	return svc
}

// exposure says what is dangerous about an address that is served, or "".
func exposure(a net.Addr, tls bool) string {
	if tcp, ok := a.(*net.TCPAddr); tls || ok && tcp.IP.IsLoopback() {
		return ""
	}
	return fmt.Sprintf("%s is served without TLS and can be reached from other machines: whoever sees the traffic learns the password, and can power hosts off; serve HTTPS, or listen on loopback", a)
}

func (s *Server) listen(addr string) (*net.TCPListener, error) {
	if strings.HasPrefix(addr, ":") {
		addr = "127.0.0.1" + addr
	}
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	if !tcp.IP.IsLoopback() && s.cfg.Username == "" {
		return nil, errors.New("the address is not loopback; set a user name and a password")
	}
	return net.ListenTCP("tcp", tcp)
}

// track lets Close wait for the connections, and with them for the requests. A
// new one is counted by the accept loop, which is counted itself.
func (s *Server) track(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.running.Add(1)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed { // net/http may have missed it
			_ = conn.Close()
		}
	case http.StateClosed, http.StateHijacked:
		s.running.Done()
	}
}

// Close ends all listeners, connections and requests, those that hang or wait for
// a delay included, and closes the BMCs. When it returns nothing is left running.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.closing)
	s.mu.Unlock()
	var errs []error
	for _, h := range s.fronts {
		errs = append(errs, h.Close())
	}
	for _, g := range s.served {
		for _, b := range g.All() {
			b.Close()
		}
	}
	for _, b := range s.common {
		b.Close()
	}
	s.running.Wait()
	return errors.Join(errs...)
}

// severed is a listener that resets every connection while rules cut its BMC off.
type severed struct {
	net.Listener
	bmc *fakebmc.BMC
}

func (l severed) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || l.bmc.Reachable(conn.RemoteAddr().String()) {
			return conn, err
		}
		front.Abort(conn)
	}
}
