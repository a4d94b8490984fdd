// Package fleet runs many BMCs at once, as the command "fencelab bmc" does: hosts
// in memory or given ones, over Redfish and IPMI, with faults from the start and an
// API to change them.
package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/admin"
	"github.com/fencelab/fencelab/fakebmc/ipmi"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/wall"
	"github.com/fencelab/fencelab/front"
)

// Host is a given system, such as a libvirt domain.
type Host struct {
	Name   string
	UUID   string // empty is derived from the name: see fakebmc.UUID
	System fakebmc.System
}

// Change is a Host that comes, or with Gone the one of this name that goes.
type Change struct {
	Host
	Gone bool
}

// Options say what Run serves. At least one host is needed; all else has defaults.
type Options struct {
	Hosts []Host // given systems; nothing of them is closed
	Fake  int    // and so many in memory, fake-1 and on, which are on
	// Changes are given systems that come and go later; it needs Shared, and no IPMI.
	Changes <-chan Change
	// Timing is that of the hosts in memory.
	Timing memory.Timing
	// Listen is the address of the first host's Redfish service, host:port; each
	// further host is one port up. An empty host is 127.0.0.1, port 0 a free one for
	// each. Other addresses than loopback need Username and Password.
	Listen string
	// Shared serves all hosts behind the one address instead.
	Shared bool
	// IPMI is the address of the first host's IPMI service; each further one is one
	// port up. Empty serves none. It needs Username and Password on loopback, too.
	IPMI               string
	Username, Password string
	// AnyPassword lets in whoever names a user and a password: see redfish.Config. There is no IPMI
	// then, which makes its keys of the password.
	AnyPassword bool
	// SessionTimeout ends a session that is not used: see redfish.Config.
	SessionTimeout time.Duration
	// MaxSessions is the limit of concurrent sessions of each service; 0 is 16.
	MaxSessions int
	// TLS serves HTTPS, with Certificate or a generated one, in the versions from OldestTLS to
	// NewestTLS: see redfish.Config.
	TLS                  bool
	Certificate          *tls.Certificate
	OldestTLS, NewestTLS uint16
	// Suites are the cipher suites of IPMI: see ipmi.Config.
	Suites []int
	// Media are where the images lie that may be inserted: see redfish.Config.
	Media []string
	// Destinations are where events may be pushed: see redfish.Config.
	Destinations []string
	// RestartTime is how long a BMC is away after a Manager.Reset: see fakebmc.RestartTime.
	RestartTime time.Duration
	// Mockup is what each host's Redfish service looks like; nil is fencelab's own tree. Not with
	// Shared.
	Mockup *redfish.Mockup
	// Rules are in force on every host from the start.
	Rules []fakebmc.Rule
	// Admin is the address of the admin API, on loopback; empty serves none.
	Admin string
	// Records has each request as a line of JSON; nil has none.
	Records io.Writer
	// Warn gets what is served and hardly meant; may be nil.
	Warn func(string)
	// Ready is written what is served, and where, once all is, and then the Changes.
	Ready io.Writer

	presets                              []string // that the flags name
	platform                             string
	speed                                float64
	certificate, key, rulesFile, logFile string // files that they name
}

const maxFake = 10000

// Run serves until ctx ends. When it returns nothing is left running. The error
// is nil when ctx has ended it.
func Run(ctx context.Context, o Options) error {
	if len(o.Hosts)+o.Fake == 0 && o.Changes == nil {
		return errors.New("running bmcs: there is no host; give systems or a number of hosts in memory")
	}
	if o.Fake < 0 || o.Fake > maxFake {
		return fmt.Errorf("running bmcs: %d hosts in memory; the number must be from 0 to %d", o.Fake, maxFake)
	}
	if o.Changes != nil && (!o.Shared || o.IPMI != "") {
		return errors.New("running bmcs: hosts that come and go need one address for all, and have no IPMI")
	}
	if o.AnyPassword && o.IPMI != "" {
		return errors.New("running bmcs: IPMI can't accept any password (--any-password): each side makes keys of it; name an account with --username")
	}
	if o.Mockup != nil && o.Shared {
		return errors.New("running bmcs: a mockup is the tree of one host's service, and they share one: give each an address of its own (--shared=false)")
	}
	group, err := redfish.NewGroup()
	if err != nil {
		return err
	}
	f := &fleet{o: o, clk: wall.Clock(), systems: map[string]fakebmc.System{}, bmcs: group}
	defer f.close()
	if err := f.start(); err != nil {
		return fmt.Errorf("running bmcs: %w", err)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-f.failed():
			return fmt.Errorf("running bmcs: %w", err)
		case c := <-o.Changes:
			if err := f.change(c); err != nil {
				return fmt.Errorf("running bmcs: %w", err)
			}
		}
	}
}

type fleet struct {
	o       Options
	clk     fakebmc.Clock
	systems map[string]fakebmc.System // of the start, which are each other's peers
	bmcs    *redfish.Group
	server  *redfish.Server
	urls    []string // of the Redfish services
	ipmi    []*ipmi.Server
	admin   *http.Server
	fail    chan error
	ended   sync.WaitGroup

	mu  sync.Mutex // of Records
	log *admin.Log // nil without an admin API
}

func (f *fleet) failed() <-chan error { return f.fail }

func (f *fleet) start() error {
	f.fail = make(chan error, 1)
	if f.o.Admin != "" {
		f.log = &admin.Log{}
	}
	hosts := f.o.Hosts
	for i := range f.o.Fake {
		name, host := fmt.Sprintf("fake-%d", i+1), memory.New(f.clk, f.o.Timing, true)
		host.SetInventory(fakebmc.TypicalInventory(name))
		hosts = append(hosts, Host{Name: name, System: host})
	}
	for _, h := range hosts {
		f.systems[h.Name] = h.System
	}
	names := make([]string, len(hosts))
	for i, h := range hosts {
		names[i] = h.Name
	}
	for _, r := range f.o.Rules {
		err := r.Concerns(names...)
		switch {
		case err == nil:
		case f.o.Changes == nil:
			return err
		case f.o.Warn != nil:
			f.o.Warn(err.Error() + " so far; it is in force on hosts that come")
		}
	}
	if err := f.add(hosts...); err != nil {
		return err
	}
	var err error
	if f.urls, err = f.serveRedfish(); err != nil {
		return err
	}
	addresses, err := f.serveIPMI()
	if err != nil {
		return err
	}
	admin, err := f.serveAdmin()
	if err != nil {
		return err
	}
	return f.announce(addresses, admin)
}

// bmc is that of a host, with the rules from the start.
func (f *fleet) bmc(h Host) (*fakebmc.BMC, error) {
	options := []fakebmc.Option{fakebmc.Peers(f.systems), fakebmc.RestartTime(f.o.RestartTime), fakebmc.OnRequest(f.record())}
	if f.o.IPMI == "" {
		options = append(options, fakebmc.WithoutIPMI())
	}
	if f.o.Shared {
		options = append(options, fakebmc.SharesService())
	}
	if f.o.Mockup != nil {
		options = append(options, f.o.Mockup.Locate())
	}
	if h.UUID != "" {
		options = append(options, fakebmc.UUID(h.UUID))
	}
	b := fakebmc.New(h.Name, h.System, f.clk, options...)
	for _, r := range f.o.Rules {
		if err := b.AddRule(r); err != nil {
			b.Close()
			return nil, err
		}
	}
	return b, nil
}

// add takes in all hosts, or on an error none.
func (f *fleet) add(hosts ...Host) (err error) {
	var bmcs []*fakebmc.BMC
	defer func() {
		if err != nil {
			for _, b := range bmcs {
				b.Close()
			}
		}
	}()
	for _, h := range hosts {
		b, err := f.bmc(h)
		if err != nil {
			return err
		}
		bmcs = append(bmcs, b)
	}
	return f.bmcs.Add(bmcs...)
}

// change takes in a host, whose peers are the systems of the start, or lets it go.
func (f *fleet) change(c Change) error {
	if c.Gone {
		if b := f.bmcs.Remove(c.Name); b != nil {
			b.Close()
		}
		return f.say("%s is gone\n", c.Name)
	}
	if err := f.add(c.Host); err != nil {
		return err
	}
	all := f.bmcs.All()
	return f.say("%s came: %s%s\n", c.Name, f.urls[0], all[len(all)-1].SystemPath())
}

// record is nil without a place for the records, so that none is made.
func (f *fleet) record() func(fakebmc.Record) {
	if f.o.Records == nil && f.log == nil {
		return nil
	}
	enc := json.NewEncoder(f.o.Records)
	return func(r fakebmc.Record) {
		if f.log != nil {
			f.log.Add(r)
		}
		if f.o.Records == nil {
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if err := enc.Encode(r); err != nil {
			f.report(fmt.Errorf("writing a request's record: %w", err))
		}
	}
}

func (f *fleet) report(err error) {
	select {
	case f.fail <- err:
	default: // an earlier one ends the fleet already
	}
}

func (f *fleet) serveRedfish() (urls []string, err error) {
	cfg := redfish.Config{
		Username: f.o.Username, Password: f.o.Password, AnyPassword: f.o.AnyPassword, Media: f.o.Media, Destinations: f.o.Destinations, Clock: f.clk, OnRequest: f.record(), Certificate: f.o.Certificate,
		OldestTLS: f.o.OldestTLS, NewestTLS: f.o.NewestTLS, MaxSessions: f.o.MaxSessions,
		SessionTimeout: f.o.SessionTimeout, Warn: f.o.Warn, Mockup: f.o.Mockup,
	}
	host, port, err := splitAddress(f.o.Listen)
	if err != nil {
		return nil, err
	}
	if f.o.TLS && cfg.Certificate == nil {
		if cfg.Certificate, err = redfish.SelfSigned(host, "localhost"); err != nil {
			return nil, err
		}
	}
	if f.server, err = redfish.NewServer(cfg); err != nil {
		return nil, err
	}
	if f.o.Shared {
		url, err := f.server.ListenGroup(net.JoinHostPort(host, strconv.Itoa(port)), f.bmcs)
		return []string{url}, err
	}
	for i, b := range f.bmcs.All() {
		url, err := f.server.Listen(address(host, port, i), b)
		if err != nil {
			return nil, err
		}
		urls = append(urls, url)
	}
	return urls, nil
}

func (f *fleet) serveIPMI() (addresses []string, err error) {
	if f.o.IPMI == "" {
		return nil, nil
	}
	host, port, err := splitAddress(f.o.IPMI)
	if err != nil {
		return nil, err
	}
	for i, b := range f.bmcs.All() {
		s, err := ipmi.Listen(address(host, port, i), b, ipmi.Config{Username: f.o.Username, Password: f.o.Password, Clock: f.clk, Suites: f.o.Suites, MaxSessions: f.o.MaxSessions})
		if err != nil {
			return nil, err
		}
		f.ipmi = append(f.ipmi, s)
		addresses = append(addresses, s.Addr().String())
	}
	return addresses, nil
}

func (f *fleet) serveAdmin() (url string, err error) {
	if f.o.Admin == "" {
		return "", nil
	}
	host, port, err := splitAddress(f.o.Admin)
	if err != nil {
		return "", err
	}
	if !front.IsLocal(host) {
		return "", fmt.Errorf("serving the admin API on %s: it has no password, so it must be a loopback address", f.o.Admin)
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return "", fmt.Errorf("serving the admin API on %s: %w", f.o.Admin, err)
	}
	f.admin = front.Serve(admin.API(f.bmcs, f.log))
	f.admin.WriteTimeout = front.Timeout
	f.ended.Go(func() {
		if err := f.admin.Serve(front.NewGate().Listener(ln)); !errors.Is(err, http.ErrServerClosed) {
			f.report(fmt.Errorf("serving the admin API on %s: %w", f.o.Admin, err))
		}
	})
	return "http://" + ln.Addr().String(), nil
}

func (f *fleet) announce(addresses []string, admin string) error {
	var table bytes.Buffer
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "HOST\tREDFISH\tIPMI")
	for i, b := range f.bmcs.All() {
		ipmi := "-"
		if addresses != nil {
			ipmi = addresses[i]
		}
		fmt.Fprintf(t, "%s\t%s%s\t%s\n", b.Host(), f.urls[min(i, len(f.urls)-1)], (&url.URL{Path: b.SystemPath()}).EscapedPath(), ipmi)
	}
	if admin != "" {
		fmt.Fprintf(t, "(admin)\t%s/v1/hosts\t-\n", admin)
	}
	_ = t.Flush() // to memory
	return f.say("%s", table.String())
}

func (f *fleet) say(format string, args ...any) error {
	if f.o.Ready == nil {
		return nil
	}
	if _, err := fmt.Fprintf(f.o.Ready, format, args...); err != nil {
		return fmt.Errorf("telling what is served: %w", err)
	}
	return nil
}

func (f *fleet) close() {
	if f.admin != nil {
		_ = f.admin.Close() // the process forgets it anyway
	}
	for _, s := range f.ipmi {
		_ = s.Close()
	}
	if f.server != nil {
		_ = f.server.Close()
	}
	for _, b := range f.bmcs.All() {
		b.Close()
	}
	f.ended.Wait()
}

// splitAddress has loopback and a free port as defaults.
func splitAddress(addr string) (host string, port int, err error) {
	if addr == "" {
		return "127.0.0.1", 0, nil
	}
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("reading the address %q: %w", addr, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	if port, err = strconv.Atoi(text); err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("reading the address %q: the port must be a number from 0 to 65535", addr)
	}
	return host, port, nil
}

// address is that of the i-th host.
func address(host string, port, i int) string {
	if port != 0 {
		port += i
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}
