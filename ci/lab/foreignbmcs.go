package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fencelab/fencelab/ci/child"
	"github.com/fencelab/fencelab/ci/lab/gate"
	thismachine "github.com/fencelab/fencelab/ci/machine"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/vms"
)

// foreignBMCs are BMCs of somebody else's: one program that serves them all and drives the domains by itself. Each host has
// an address of its own all the same, a proxy that tells the history what is asked.
type foreignBMCs struct {
	process *child.Process
	log     string
	proxies []*gate.Proxy
	over    chan struct{} // closed when its end is wanted
}

// impossibleBMCs are the reasons why the lab's hosts can't have somebody else's BMCs.
func (b *Backend) impossibleBMCs(spec *scenarios.Spec) []string {
	if spec.Topology.BMC == nil || b.options.Hosts != Model {
		return nil
	}
	return []string{"a program in the place of the BMCs: it drives domains, which model hosts are not; run with --hosts guest"}
}

// hostOfBMC is what the program learns of a host.
type hostOfBMC struct {
	Name   string `json:"name"`
	Domain string `json:"domain"`
	UUID   string `json:"uuid"`
}

// serveForeignBMCs starts the program, and an address for each host.
func (b *Backend) serveForeignBMCs() error {
	bmc := b.plan.Spec.Topology.BMC
	f := &foreignBMCs{log: filepath.Join(b.dir, "bmc.log"), over: make(chan struct{})}
	b.bmcs.foreign = f
	address, err := b.startForeignBMCs(bmc)
	if err != nil {
		return fmt.Errorf("start the program that takes the place of the BMCs: %w", err)
	}
	b.tasks.Go(func() {
		select {
		case <-f.over:
		case <-f.process.Exited():
			b.stream.fail(fmt.Errorf("the program that takes the place of the BMCs has ended: %w", f.process.Failure()))
		}
	})
	for _, host := range b.names {
		m := b.hosts[host].(*virtual) // see impossibleBMCs
		b.bmcs.systems[host] = bmc.SystemOf(host, m.domain.DefinedName(), m.domain.UUID())
		proxy, err := gate.Serve(address, &gate.Gate{
			Judge: everything{}, Read: b.bmcs.understands(host), Next: &toForeignBMC{b: b.bmcs, host: host, machine: m},
		}, nil, "")
		if err != nil {
			return err
		}
		f.proxies = append(f.proxies, proxy)
		if b.bmcs.urls[host], err = url.Parse(proxy.URL()); err != nil {
			return err
		}
	}
	return nil
}

// startForeignBMCs returns where the program serves Redfish.
func (b *Backend) startForeignBMCs(bmc *scenarios.BMC) (*url.URL, error) {
	uri, err := b.machines.hypervisor()
	switch {
	case err != nil:
		return nil, err
	case uri == "":
		return nil, errors.New("the hypervisor was opened by a story before it, for which nobody else had to reach it: run this scenario by itself")
	}
	own := filepath.Join(b.dir, "program-bmc")
	tmp := filepath.Join(own, "tmp")
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return nil, err
	}
	var hosts []hostOfBMC
	for _, name := range b.names {
		domain := b.hosts[name].(*virtual).domain
		hosts = append(hosts, hostOfBMC{name, domain.DefinedName(), domain.UUID()})
	}
	data, err := json.Marshal(hosts)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(own, "hosts")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	variables := map[string]string{
		"LIBVIRT_URI": uri, "HOSTS": file, "BMC_USERNAME": bmcUser, "BMC_PASSWORD": b.bmcs.password,
		"PORT": strconv.Itoa(port), "TMPDIR": tmp, "HOME": tmp, "PATH": os.Getenv("PATH"),
	}
	program := bmc.Program()
	cmd, err := executable{program, b.imageOf(program)}.call(own, variables)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, b.keeper.Mark())
	if b.bmcs.foreign.process, err = child.Start("fencelab-bmc", cmd, b.bmcs.foreign.log); err != nil {
		return nil, err
	}
	address, err := url.Parse(bmc.AddressIn(variables))
	if err != nil {
		return nil, err
	}
	ctx, cancel := thismachine.WithBudget(b.ctx, readyTimeout)
	defer cancel()
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	return address, child.AwaitAnswer(ctx, client, address.JoinPath("redfish/v1/").String(), b.bmcs.foreign.process)
}

// close ends the program.
func (f *foreignBMCs) close() error {
	if f == nil {
		return nil
	}
	close(f.over)
	for _, p := range f.proxies {
		_ = p.Close() // nobody listens any more
	}
	if f.process == nil {
		return nil
	}
	select {
	case <-f.process.Exited(): // which is said already
		return nil
	default:
		return f.process.Stop()
	}
}

// logs is what the program has said.
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

// toForeignBMC sends what is asked of a host's BMC to the program, and tells the history of resets.
type toForeignBMC struct {
	b       *bmcs
	host    string
	machine *virtual
}

// toProgram keeps no connection beyond a request: servers of this kind are often single-threaded.
var toProgram = &http.Transport{DisableKeepAlives: true}

// RoundTrip implements http.RoundTripper. The answer waits for what the hypervisor has told before it: whoever acts upon it
// acts later in the history, too.
func (t *toForeignBMC) RoundTrip(request *http.Request) (*http.Response, error) {
	if t.anothers(request.URL.Path) {
		return &http.Response{
			StatusCode: http.StatusNotFound, ProtoMajor: 1, ProtoMinor: 1, Header: make(http.Header), Body: http.NoBody, Request: request,
		}, nil
	}
	body, err := bodyOf(request)
	if err != nil {
		return nil, err
	}
	command := strings.Fields(t.b.understands(t.host)(request, body).Effect)
	if len(command) == 3 {
		t.b.received(t.host, request.RemoteAddr, fakebmc.ResetType(command[1]))
		defer t.machine.commanded(fakebmc.ResetType(command[1]), t.b.name(request.RemoteAddr))()
	}
	response, err := toProgram.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if err := t.machine.domain.Settle(request.Context(), skew); err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	return response, nil
}

// anothers reports whether a path is that of another host's System, which is not at this host's address: what is done there
// would be done in nobody's name.
func (t *toForeignBMC) anothers(path string) bool {
	for host, system := range t.b.systems {
		if host != t.host && (path == system || strings.HasPrefix(path, system+"/")) {
			return true
		}
	}
	return false
}

// commanded says that somebody else is about to carry out a client's reset, and returns what says that he is done.
func (m *virtual) commanded(t fakebmc.ResetType, client string) (done func()) {
	done = func() {}
	switch t {
	case fakebmc.ResetOn:
		m.blame(client, true)
	case fakebmc.ResetPushPowerButton:
		m.blame(client, m.domain.State() == vms.StateOff)
	case fakebmc.ResetForceRestart, fakebmc.ResetPowerCycle:
		m.blame(client, false)
		m.culprits.blame(client, true) // it may be done by switching it off and on
		done = m.domain.Restarting()
	case fakebmc.ResetForceOff, fakebmc.ResetGracefulShutdown, fakebmc.ResetGracefulRestart:
		m.blame(client, false)
	}
	return done
}
