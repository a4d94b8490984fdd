package hosts

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"sync"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/lab/record"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
)

const (
	// BMCUser is the account of the BMCs; its password is drawn for each run.
	BMCUser = "fencelab"
	// BMCSecret is the Secret that opens them.
	BMCSecret = "bmc"
)

// BMCs serves the BMCs of the hosts, and records the requests to them.
type BMCs struct {
	// Password is that of BMCUser.
	Password string
	// Secure is for clients of the proxies who insist on TLS. What is behind them speaks plain
	// HTTP.
	Secure *tls.Config
	// URLs are where they listen, and Systems the paths of the hosts' Systems there, by host.
	URLs    map[string]*url.URL
	Systems map[string]string
	// ByName and Faults are empty if the BMCs are foreign.
	ByName map[string]*fakebmc.BMC
	Faults *objects.Faults

	stream  *record.Stream
	server  *redfish.Server
	names   []string
	foreign *foreignBMCs // nil if they are fencelab's own
	// bends holds what each fault of the plan hinders when it bends a request.
	bends    objects.Bends
	requests objects.Requests
	// clients has their names by the addresses of their connections, overdue those whose client has
	// given up.
	clients, overdue sync.Map
	// asked has the names of those whose resets the BMCs received last, by reset.
	asked sync.Map
}

// reset is a reset that a BMC was asked for.
type reset struct {
	host string
	kind fakebmc.ResetType
}

// NewBMCs makes a server without BMCs. bends holds what each fault of the plan hinders when it
// bends a request.
func NewBMCs(s *record.Stream, bends objects.Bends) (*BMCs, error) {
	b := &BMCs{stream: s, bends: bends, Password: rand.Text(), ByName: make(map[string]*fakebmc.BMC), URLs: make(map[string]*url.URL), Systems: make(map[string]string)}
	certificate, err := redfish.SelfSigned("127.0.0.1")
	if err != nil {
		return nil, err
	}
	b.Secure = &tls.Config{Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12}
	b.server, err = redfish.NewServer(redfish.Config{Username: BMCUser, Password: b.Password})
	return b, err
}

// Serve puts a BMC in front of each machine.
func (b *BMCs) Serve(clock fakebmc.Clock, names []string, machines map[string]Machine) error {
	for _, name := range names {
		peers := make(map[string]fakebmc.System)
		for other, m := range machines {
			peers[other] = m.wiredTo(name)
		}
		bmc := fakebmc.New(name, machines[name], clock, fakebmc.Peers(peers),
			fakebmc.OnRequest(func(r fakebmc.Record) { b.requested(name, r) }),
			fakebmc.OnReset(func(client string, t fakebmc.ResetType) { b.received(name, client, t) }))
		address, err := b.server.Listen("127.0.0.1:0", bmc)
		if err != nil {
			return err
		}
		if b.URLs[name], err = url.Parse(address); err != nil {
			return err
		}
		b.ByName[name], b.names, b.Systems[name] = bmc, append(b.names, name), "/redfish/v1/Systems/"+name
	}
	b.Faults = objects.NewFaults(b.ByName)
	return nil
}

// SystemAt is the URL of a host's System.
func (b *BMCs) SystemAt(host string) string { return b.URLs[host].String() + b.Systems[host] }

// Understands reads requests to the BMC of a host.
func (b *BMCs) Understands(host string) func(*http.Request, []byte) gate.Request {
	return gate.BMC(host, b.Systems[host])
}

// Heal withdraws the faults of a host's BMC, but some. A foreign BMC has none.
func (b *BMCs) Heal(host string, but []string) {
	if bmc := b.ByName[host]; bmc != nil {
		bmc.Heal(but...)
	}
}

// Close ends the server, and returns all requests, and the output of a foreign program.
func (b *BMCs) Close() ([]play.Artifact, error) {
	for _, name := range b.names {
		for _, r := range b.ByName[name].Pending() {
			b.requests.Add(r)
		}
	}
	err := errors.Join(b.server.Close(), b.foreign.close())
	return append([]play.Artifact{b.requests.Artifact()}, b.foreign.logs()...), err
}

// Transport is for a client whose requests are to bear its name. A BMC sees an address, so
// each connection is remembered, also beyond its end: what the BMC does about a request
// may outlive it.
func (b *BMCs) Transport(client string) http.RoundTripper {
	dialer := new(net.Dialer)
	return &http.Transport{
		// A connection kept from before a BMC restarted would fail a request that was never read.
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err == nil {
				b.clients.Store(conn.LocalAddr().String(), client)
				if ctx.Value(overdueKey{}) != nil {
					b.overdue.Store(conn.LocalAddr().String(), true)
				}
			}
			return conn, err
		},
	}
}

// name returns the history's name for the client of a request, or "" if the client isn't known.
func (b *BMCs) name(client string) string {
	switch client {
	case fakebmc.ClientBMC, fakebmc.ClientWatchdog, fakebmc.ClientRestore:
		return client
	}
	name, _ := b.clients.Load(client)
	known, _ := name.(string)
	return known
}

// received records a reset that a BMC has received, and remembers whose it is: when it is
// carried out, the machine knows only what is to be done.
func (b *BMCs) received(host, client string, t fakebmc.ResetType) {
	key := ""
	if _, late := b.overdue.Load(client); late {
		key = history.Late
	}
	client = b.name(client)
	b.asked.Store(reset{host, t}, client)
	b.stream.Now(history.Event{Kind: history.BMCCommand, Host: host, Actor: client, Key: key, Value: string(t)})
}

// Asker is an asker.
func (b *BMCs) Asker(host string, t fakebmc.ResetType) string {
	name, _ := b.asked.Load(reset{host, t})
	client, _ := name.(string)
	return client
}

// requested records what faults bent a request, when it was answered or is known to
// hang.
func (b *BMCs) requested(host string, r fakebmc.Record) {
	b.requests.Add(r)
	for _, e := range b.bends.Events(host, b.name(r.Request.Client), r) {
		b.stream.Now(e)
	}
}

// overdueKey marks the context of a request whose client no longer waits.
type overdueKey struct{}

// Overdue returns a context for a request whose client no longer waits. The history marks such
// requests to a BMC as late.
func Overdue(ctx context.Context) context.Context {
	return context.WithValue(ctx, overdueKey{}, true)
}
