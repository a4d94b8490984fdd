package lab

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"sync"

	"github.com/fencelab/fencelab/ci/lab/gate"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
)

const (
	// bmcUser is the account of the BMCs; its password is drawn for each run.
	bmcUser = "fencelab"
	// bmcSecret is the Secret that opens them.
	bmcSecret = "bmc"
)

// bmcs are the BMCs of the hosts, and tell the stream what is asked of them.
type bmcs struct {
	stream   *stream
	password string
	server   *redfish.Server
	// secure is for clients of the proxies who insist on TLS. What is behind them speaks plain HTTP.
	secure  *tls.Config
	names   []string
	byName  map[string]*fakebmc.BMC
	urls    map[string]*url.URL
	systems map[string]string // paths of the hosts' Systems
	foreign *foreignBMCs      // nil if they are fencelab's own
	faults  *objects.Faults
	// bends are what the plan's faults hold up.
	bends    objects.Bends
	requests objects.Requests
	// clients has their names by the addresses of their connections, overdue those whose client has given up.
	clients, overdue sync.Map
	// asked has the names of those whose resets the BMCs received last, by reset.
	asked sync.Map
}

// reset is what a BMC was asked for.
type reset struct {
	host string
	kind fakebmc.ResetType
}

func newBMCs(s *stream) (*bmcs, error) {
	b := &bmcs{stream: s, password: rand.Text(), byName: make(map[string]*fakebmc.BMC), urls: make(map[string]*url.URL), systems: make(map[string]string)}
	certificate, err := redfish.SelfSigned("127.0.0.1")
	if err != nil {
		return nil, err
	}
	b.secure = &tls.Config{Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12}
	b.server, err = redfish.NewServer(redfish.Config{Username: bmcUser, Password: b.password})
	return b, err
}

// serve puts a BMC in front of each machine.
func (b *bmcs) serve(clock fakebmc.Clock, names []string, machines map[string]machine) error {
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
		if b.urls[name], err = url.Parse(address); err != nil {
			return err
		}
		b.byName[name], b.names, b.systems[name] = bmc, append(b.names, name), "/redfish/v1/Systems/"+name
	}
	b.faults = objects.NewFaults(b.byName)
	return nil
}

// systemAt is the URL of a host's System.
func (b *bmcs) systemAt(host string) string { return b.urls[host].String() + b.systems[host] }

// understands reads requests to the BMC of a host.
func (b *bmcs) understands(host string) func(*http.Request, []byte) gate.Request {
	return gate.BMC(host, b.systems[host])
}

// heal withdraws every fault but some.
func (b *bmcs) heal(but []string) {
	for _, bmc := range b.byName {
		bmc.Heal(but...)
	}
}

// close ends the server, and returns all that was asked.
func (b *bmcs) close() (play.Artifact, error) {
	for _, name := range b.names {
		for _, r := range b.byName[name].Pending() {
			b.requests.Add(r)
		}
	}
	return b.requests.Artifact(), errors.Join(b.server.Close(), b.foreign.close())
}

// transport is for a client whose requests are to bear its name. A BMC sees an address, so
// each connection is remembered, also beyond its end: what the BMC does about a request
// may outlive it.
func (b *bmcs) transport(client string) http.RoundTripper {
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

// name is what the history calls the client of a request, or "" where it isn't known.
func (b *bmcs) name(client string) string {
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
func (b *bmcs) received(host, client string, t fakebmc.ResetType) {
	key := ""
	if _, late := b.overdue.Load(client); late {
		key = history.Late
	}
	client = b.name(client)
	b.asked.Store(reset{host, t}, client)
	b.stream.now(history.Event{Kind: history.BMCCommand, Host: host, Actor: client, Key: key, Value: string(t)})
}

// asker is an asker.
func (b *bmcs) asker(host string, t fakebmc.ResetType) string {
	name, _ := b.asked.Load(reset{host, t})
	client, _ := name.(string)
	return client
}

// requested records what faults bent a request, when it was answered or is known to
// hang.
func (b *bmcs) requested(host string, r fakebmc.Record) {
	b.requests.Add(r)
	for _, e := range b.bends.Events(host, b.name(r.Request.Client), r) {
		b.stream.now(e)
	}
}
