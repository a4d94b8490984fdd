package hosts

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/lab/child"
	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/lab/record"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/play"
)

// foreignBMCs runs a foreign program that serves all BMCs and drives the domains by itself. Each
// host still has an address of its own: a proxy that records the requests.
type foreignBMCs struct {
	process *child.Process
	log     string
	proxies []*gate.Proxy
	over    chan struct{} // closed when its end is wanted
}

// Adopt makes a program that was started the one in the place of the BMCs, which ends with them.
// What it says goes to a log.
func (b *BMCs) Adopt(program *child.Process, log string) {
	f := &foreignBMCs{process: program, log: log, over: make(chan struct{})}
	b.foreign = f
	go func() {
		select {
		case <-f.over:
		case <-program.Exited():
			b.stream.Fail(fmt.Errorf("the program that takes the place of the BMCs has ended: %w", program.Failure()))
		}
	}()
}

// ServeForeign makes an address for each host, behind which the program is that was adopted and
// serves them all at its own. The machines are virtual ones.
func (b *BMCs) ServeForeign(program *url.URL, named *scenarios.BMC, names []string, machines map[string]Machine) error {
	for _, host := range names {
		m := machines[host].(domain)
		b.Systems[host] = named.SystemOf(host, m.DomainName(), m.SystemUUID())
		proxy, err := gate.Serve(program, &gate.Gate{
			Judge: gate.Everything{}, Read: b.Understands(host), Next: &toForeignBMC{b: b, host: host, machine: m},
		}, nil, gate.Client{})
		if err != nil {
			return err
		}
		b.foreign.proxies = append(b.foreign.proxies, proxy)
		if b.URLs[host], err = url.Parse(proxy.URL()); err != nil {
			return err
		}
	}
	return nil
}

// close ends the program.
func (f *foreignBMCs) close() error {
	if f == nil {
		return nil
	}
	close(f.over)
	for _, p := range f.proxies {
		_ = p.Close() // refuse connections
	}
	select {
	case <-f.process.Exited(): // which is said already
		return nil
	default:
		return f.process.Stop()
	}
}

// logs returns the program's output.
func (f *foreignBMCs) logs() []play.Artifact {
	if f == nil {
		return nil
	}
	data, err := os.ReadFile(f.log)
	if err != nil {
		return nil
	}
	return []play.Artifact{{Name: "bmc.log", Data: data}}
}

// domain is a machine with a libvirt domain, which other programs can drive as well.
type domain interface {
	Machine
	DomainName() string
	SystemUUID() string
	// Settle waits until what was seen of the domain's power is recorded, and old: see
	// [vms.Domain.Settle].
	Settle(ctx context.Context, old time.Duration) error
	// commanded says that a client's command is on its way, until done.
	commanded(t fakebmc.ResetType, client string) (done func())
}

// toForeignBMC forwards the requests to a host's BMC to the program, and records resets in the
// history.
type toForeignBMC struct {
	b       *BMCs
	host    string
	machine domain
}

// toProgram keeps no connection beyond a request: servers of this kind are often single-threaded.
var toProgram = &http.Transport{DisableKeepAlives: true}

// RoundTrip implements http.RoundTripper. It delays the answer until the earlier events of the
// hypervisor are recorded: a client that acts upon the answer acts later in the history, too.
func (t *toForeignBMC) RoundTrip(request *http.Request) (*http.Response, error) {
	if t.anothers(request.URL.Path) {
		return &http.Response{
			StatusCode: http.StatusNotFound, ProtoMajor: 1, ProtoMinor: 1, Header: make(http.Header), Body: http.NoBody, Request: request,
		}, nil
	}
	body, err := gate.BodyOf(request)
	if err != nil {
		return nil, err
	}
	command := strings.Fields(t.b.Understands(t.host)(request, body).Effect)
	if len(command) == 3 {
		t.b.received(t.host, request.RemoteAddr, fakebmc.ResetType(command[1]))
		defer t.machine.commanded(fakebmc.ResetType(command[1]), t.b.name(request.RemoteAddr))()
	}
	response, err := toProgram.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if err := t.machine.Settle(request.Context(), record.Skew); err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	return response, nil
}

// anothers reports whether a path is of another host's System. This host's address doesn't serve
// that: the history couldn't say who acted on the other host.
func (t *toForeignBMC) anothers(path string) bool {
	for host, system := range t.b.Systems {
		if host != t.host && (path == system || strings.HasPrefix(path, system+"/")) {
			return true
		}
	}
	return false
}
