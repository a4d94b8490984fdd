// Package bmctest has a BMC for a Go test: a host in memory behind Redfish and IPMI on loopback,
// which is gone when the test is.
//
//	bmc := bmctest.Start(t, bmctest.Options{})
//	bmc.Fault("lost-answer")
//	err := powerOff(bmc.System, bmc.Username, bmc.Password, bmc.Client()) // what is to be tested
//	if state := bmc.Power(); state != fakebmc.Off { t.Errorf("the host is %s: %v", state, err) }
//
// What the client believes is one thing, and what the host did another: Power, Boots and Requests
// tell the latter. Options give it the shape of a vendor's BMC, neighbours, media and events.
package bmctest

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/ipmi"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/wall"
)

// Options are what a BMC is like. The zero Options are an ordinary one.
type Options struct {
	// Host is the name of the host and the Id of its resources; empty is node-1.
	Host string
	// Peers are further hosts, alike but for their names, each with a BMC: see [BMC.Peer].
	Peers []string
	// Shared has the BMCs of all hosts behind one address, instead of one for each.
	Shared bool
	// Off is a host that is off at first.
	Off bool
	// Timing is how long the host takes; it takes no time by default.
	Timing memory.Timing
	// Plain is HTTP instead of HTTPS.
	Plain bool
	// Mockup is a directory with a mockup, which each host's service looks like: see
	// [redfish.LoadMockup]. Not with Shared.
	Mockup string
	// Media are where the images lie that may be inserted, and Destinations where events may be
	// pushed: see [redfish.Config].
	Media, Destinations []string
	// Faults are in force from the start, as [BMC.Fault] takes them, on each host that they are
	// for.
	Faults []string
}

// BMC is that of one host. All methods may be called concurrently.
type BMC struct {
	// URL is the root of its Redfish service, System the address of the ComputerSystem, and IPMI
	// the UDP address at which it takes IPMI 2.0.
	URL, System, IPMI string
	// Username and Password are those of the one account.
	Username, Password string

	t     testing.TB
	host  *memory.Host
	bmc   *fakebmc.BMC
	pool  *x509.CertPool // nil is HTTP
	peers []*BMC         // itself among them

	mu     sync.Mutex
	log    []fakebmc.Record
	faults int
}

// Start starts a BMC, and those of its peers. It fails the test if that is not possible.
func Start(t testing.TB, o Options) *BMC {
	t.Helper()
	if o.Host == "" {
		o.Host = "node-1"
	}
	s := &starting{Options: o, t: t, names: append([]string{o.Host}, o.Peers...)}
	s.makeHosts()
	s.serve()
	for _, fault := range o.Faults {
		s.all[0].fault(fault, s.all)
	}
	return s.all[0]
}

// starting starts the first host and its peers.
type starting struct {
	Options
	t      testing.TB
	names  []string
	all    []*BMC
	mockup *redfish.Mockup
}

func (s *starting) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("bmctest: %v", err)
	}
}

// makeHosts makes the hosts and their BMCs.
func (s *starting) makeHosts() {
	s.t.Helper()
	if s.Mockup != "" {
		var err error
		s.mockup, err = redfish.LoadMockup(s.Mockup)
		s.must(err)
		if s.Shared {
			s.must(errors.New("a mockup is the tree of one host's service: leave Shared out"))
		}
	}
	clk, systems := wall.Clock(), make(map[string]fakebmc.System)
	for _, name := range s.names {
		b := &BMC{t: s.t, Username: "admin", Password: "s3cret", host: memory.New(clk, s.Timing, !s.Off)}
		b.host.SetInventory(fakebmc.TypicalInventory(name))
		systems[name] = b.host
		options := []fakebmc.Option{fakebmc.OnRequest(b.record), fakebmc.Peers(systems)}
		if s.Shared {
			options = append(options, fakebmc.SharesService())
		}
		if s.mockup != nil {
			options = append(options, s.mockup.Locate())
		}
		b.bmc = fakebmc.New(name, b.host, clk, options...)
		s.t.Cleanup(b.bmc.Close)
		s.all = append(s.all, b)
	}
	for _, b := range s.all {
		b.peers = s.all
	}
}

// serve begins to listen.
func (s *starting) serve() {
	s.t.Helper()
	first := s.all[0]
	cfg := redfish.Config{Username: first.Username, Password: first.Password, Media: s.Media, Destinations: s.Destinations, Mockup: s.mockup}
	var pool *x509.CertPool
	if !s.Plain {
		certificate, err := redfish.SelfSigned("127.0.0.1", "localhost")
		s.must(err)
		pool = x509.NewCertPool()
		pool.AddCert(certificate.Leaf)
		cfg.Certificate = certificate
	}
	server, err := redfish.NewServer(cfg)
	s.must(err)
	s.t.Cleanup(func() { s.must(server.Close()) })
	shared := ""
	if s.Shared {
		var bmcs []*fakebmc.BMC
		for _, b := range s.all {
			bmcs = append(bmcs, b.bmc)
		}
		group, err := redfish.NewGroup(bmcs...)
		s.must(err)
		shared, err = server.ListenGroup("127.0.0.1:0", group)
		s.must(err)
	}
	for _, b := range s.all {
		b.pool = pool
		if b.URL = shared; shared == "" {
			b.URL, err = server.Listen("127.0.0.1:0", b.bmc)
			s.must(err)
		}
		b.System, err = url.JoinPath(b.URL, (&url.URL{Path: b.bmc.SystemPath()}).EscapedPath())
		s.must(err)
		lan, err := ipmi.Listen("127.0.0.1:0", b.bmc, ipmi.Config{Username: b.Username, Password: b.Password})
		s.must(err)
		s.t.Cleanup(func() { s.must(lan.Close()) })
		b.IPMI = lan.Addr().String()
	}
}

// Peer is the BMC of one of the hosts, by its name. It fails the test if there is none.
func (b *BMC) Peer(name string) *BMC {
	b.t.Helper()
	for _, peer := range b.peers {
		if peer.bmc.Host() == name {
			return peer
		}
	}
	b.must(fmt.Errorf("there is no host %q", name))
	return nil
}

func (b *BMC) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatalf("bmctest: %v", err)
	}
}

func (b *BMC) record(r fakebmc.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, r)
}

// Client is an HTTP client that trusts the BMC's certificate. It authenticates nobody.
func (b *BMC) Client() *http.Client {
	transport := &http.Transport{}
	if b.pool != nil {
		transport.TLSClientConfig = &tls.Config{RootCAs: b.pool}
	}
	b.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Fault lets the BMC misbehave until end is called: by a preset's name, or as a rule in JSON, whose
// name may be left out. It fails the test if there is no such preset, or if the rule is wrong or
// could never fire.
func (b *BMC) Fault(fault string) (end func()) {
	b.t.Helper()
	return b.fault(fault, []*BMC{b})
}

// fault lets some BMCs misbehave, those whose hosts the rule is for.
func (b *BMC) fault(fault string, on []*BMC) (end func()) {
	b.t.Helper()
	b.mu.Lock()
	b.faults++
	name := fmt.Sprintf("fault-%d", b.faults)
	b.mu.Unlock()
	rule := fakebmc.Rule{Name: name, Preset: fault}
	if strings.HasPrefix(strings.TrimSpace(fault), "{") {
		rule = b.parse(fault, name)
	}
	var hosts []string
	for _, one := range on {
		hosts = append(hosts, one.bmc.Host())
	}
	b.must(rule.Concerns(hosts...))
	for _, one := range on {
		b.must(one.bmc.AddRule(rule))
	}
	return func() {
		for _, one := range on {
			one.bmc.RemoveRule(rule.Name)
		}
	}
}

// parse reads a rule as strictly as the command does.
func (b *BMC) parse(fault, name string) fakebmc.Rule {
	b.t.Helper()
	var fields map[string]json.RawMessage
	b.must(json.Unmarshal([]byte(fault), &fields))
	if fields["name"] == nil {
		quoted, err := json.Marshal(name)
		b.must(err)
		fields["name"] = quoted
	}
	whole, err := json.Marshal([]map[string]json.RawMessage{fields})
	b.must(err)
	rules, err := fakebmc.ParseRules(whole)
	b.must(err)
	return rules[0]
}

// Power is what the host is, whatever the BMC says of it.
func (b *BMC) Power() fakebmc.PowerState {
	b.t.Helper()
	state, err := b.host.PowerState()
	b.must(err)
	return state
}

// Boots is how often the host has begun to boot, the boot counted in which it was found.
func (b *BMC) Boots() int { return b.host.Boots() }

// Host is the host itself: to cut its power, or to have its guest hang.
func (b *BMC) Host() *memory.Host { return b.host }

// Requests are all requests that were answered so far, or are known to get no answer, in that
// order.
func (b *BMC) Requests() []fakebmc.Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.log)
}
