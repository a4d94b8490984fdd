// Package bmctest has a BMC for a Go test: a host in memory behind Redfish and IPMI on loopback,
// which is gone when the test is.
//
//	bmc := bmctest.Start(t, bmctest.Options{})
//	bmc.Fault("lost-answer")
//	err := powerOff(bmc.System, bmc.Username, bmc.Password, bmc.Client()) // what is to be tested
//	if state := bmc.Power(); state != fakebmc.Off { t.Errorf("the host is %s: %v", state, err) }
//
// What the client believes is one thing, and what the host did another: Power, Boots and Requests
// tell the latter.
package bmctest

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/ipmi"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/recording"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/wall"
)

// Options are what a BMC is like. The zero Options are an ordinary one.
type Options struct {
	// Host is the name of the host and the Id of its resources; empty is node-1.
	Host string
	// Off is a host that is off at first.
	Off bool
	// Timing is how long the host takes; it takes no time by default.
	Timing memory.Timing
	// Plain is HTTP instead of HTTPS.
	Plain bool
}

// BMC is that of one host. All methods may be called concurrently.
type BMC struct {
	// URL is the root of its Redfish service, System the address of the ComputerSystem, and IPMI
	// the UDP address at which it takes IPMI 2.0.
	URL, System, IPMI string
	// Username and Password are those of the one account.
	Username, Password string

	t    testing.TB
	host *memory.Host
	bmc  *fakebmc.BMC
	pool *x509.CertPool // nil is HTTP

	mu     sync.Mutex
	log    []fakebmc.Record
	faults int
}

// Start starts a BMC. It fails the test if that is not possible.
func Start(t testing.TB, o Options) *BMC {
	t.Helper()
	if o.Host == "" {
		o.Host = "node-1"
	}
	clk := wall.Clock()
	b := &BMC{t: t, Username: "admin", Password: "s3cret", host: memory.New(clk, o.Timing, !o.Off)}
	b.host.SetInventory(fakebmc.TypicalInventory(o.Host))
	b.bmc = fakebmc.New(o.Host, b.host, clk, fakebmc.OnRequest(b.record))
	t.Cleanup(b.bmc.Close)

	cfg := redfish.Config{Username: b.Username, Password: b.Password}
	if !o.Plain {
		certificate, err := redfish.SelfSigned("127.0.0.1", "localhost")
		b.must(err)
		b.pool = x509.NewCertPool()
		b.pool.AddCert(certificate.Leaf)
		cfg.Certificate = certificate
	}
	server, err := redfish.NewServer(cfg)
	b.must(err)
	t.Cleanup(func() { b.must(server.Close()) })
	b.URL, err = server.Listen("127.0.0.1:0", b.bmc)
	b.must(err)
	b.System, err = url.JoinPath(b.URL, b.bmc.SystemPath())
	b.must(err)
	lan, err := ipmi.Listen("127.0.0.1:0", b.bmc, ipmi.Config{Username: b.Username, Password: b.Password})
	b.must(err)
	t.Cleanup(func() { b.must(lan.Close()) })
	b.IPMI = lan.Addr().String()
	return b
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
	b.mu.Lock()
	b.faults++
	name := fmt.Sprintf("fault-%d", b.faults)
	b.mu.Unlock()
	rule := fakebmc.Rule{Name: name, Preset: fault}
	if strings.HasPrefix(strings.TrimSpace(fault), "{") {
		rule = b.parse(fault, name)
	}
	b.must(b.bmc.AddRule(rule))
	return func() { b.bmc.RemoveRule(rule.Name) }
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

// patience is how long a request of a replay waits for its answer.
const patience = 30 * time.Second

// Replay plays a client's requests, each at its time, from a log that fencelab bmc --log or a run
// in the lab wrote, and fails the test for each that is answered otherwise than it was. The log is
// of one host, whatever its name there.
func (b *BMC) Replay(log string) {
	b.t.Helper()
	f, err := os.Open(log)
	b.must(err)
	defer f.Close()
	replayed, err := recording.Replay(b.t.Context(), f, recording.ReplayOptions{
		URL: b.URL, Username: b.Username, Password: b.Password, Client: b.Client(), As: b.bmc.ID(), Patience: patience,
	})
	b.must(err)
	for _, d := range replayed.Differences {
		b.t.Errorf("bmctest: %s: %s", log, d)
	}
}

// Requests are all requests that were answered so far, or are known to get no answer, in that
// order.
func (b *BMC) Requests() []fakebmc.Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.log)
}
