// Package lab is the real world behind scenarios.Backend: a kube-apiserver, the
// controllers under real managers, hosts that are virtual machines, and a Redfish
// BMC for each of them.
//
// What happened is told by three observers on the near side of every fault: the
// hypervisor and the guest's evidence port (package vms), and a watch of the API
// server. Their clocks are one; how late they are is bounded by Skew.
package lab

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/ci/cluster"
	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/wall"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/vms"
	"github.com/fencelab/fencelab/vms/guest/evidence"
	"github.com/fencelab/fencelab/vms/keeper"
)

const (
	// skew bounds how differently late the observers are: the API's watch and
	// libvirt's events are some milliseconds behind what they report.
	skew = 25 * time.Millisecond
	// slack is for a machine that emulates the hosts, or is busy with other things.
	slack = 20 * time.Second
	// lag is how long events are held back, so that those of all observers can
	// be put in order.
	lag = 50 * time.Millisecond
	// quiet is how long a run goes on after nothing is missing. Real time is dear: the
	// slow timers of the controllers are the simulator's business.
	quiet = 15 * time.Second
	// commandTimeout bounds what is asked of a host or of the API server.
	commandTimeout = 20 * time.Second
)

// Options say where a lab finds what it is made of.
type Options struct {
	// Assets is what vms/assets.sh filled; empty: DefaultAssets.
	Assets string
	// Bin has etcd and kube-apiserver; empty: cluster.DefaultBin.
	Bin string
	// Log is told what the lab is doing; may be nil.
	Log io.Writer
	// Controllers are those that a plan can name; nil: fencelab's own.
	Controllers *controllers.Set
}

// DefaultAssets is FENCELAB_LAB, or the lab directory beside cluster.DefaultBin.
func DefaultAssets() string {
	return cmp.Or(os.Getenv("FENCELAB_LAB"), filepath.Join(filepath.Dir(cluster.DefaultBin()), "lab"))
}

// Check returns a scenarios.Missing error unless everything that a lab needs is here.
func Check(ctx context.Context, o Options) error {
	var reasons []string
	for _, f := range cluster.Preflight(ctx, o.Bin) {
		if f.Remedy != "" {
			reasons = append(reasons, fmt.Sprintf("%s: %s; %s", f.Name, f.State, f.Remedy))
		}
	}
	for _, f := range vms.Preflight(ctx, cmp.Or(o.Assets, DefaultAssets())) {
		if f.Needed && !f.OK {
			reasons = append(reasons, fmt.Sprintf("%s: %s", f.Subject, f.Detail))
		}
	}
	if len(reasons) > 0 {
		return &scenarios.Missing{World: "lab", Reasons: reasons, Remedy: "run make lab, or see fencelab doctor"}
	}
	return nil
}

// Backend is one lab. It implements scenarios.Backend.
type Backend struct {
	options Options
	set     *controllers.Set
	ctx     context.Context
	cancel  context.CancelFunc
	clock   fakebmc.Clock // of the history and of the BMCs
	plan    *scenarios.Plan
	nodes   objects.Nodes

	cluster   *cluster.Cluster
	admin     client.WithWatch
	vms       *vms.Lab
	server    *redfish.Server
	hosts     map[string]*host
	names     []string // of hosts, in the plan's order
	topology  []client.Object
	password  string
	processes []*process
	bmcs      map[string]*fakebmc.BMC
	faults    *objects.Faults
	requests  objects.Requests
	refusals  refusals
	errands   sync.Map // the names of clients, by errand
	askers    sync.Map // the names of those whose resets the BMCs received last, by errand
	writers   writers
	observers sync.WaitGroup
	stream    *stream
	keeper    *keeper.Keeper
	dir       string // of the consoles
	stopped   bool
}

// host is one of the lab's machines with its BMC.
type host struct {
	domain *vms.Domain
	system *system
	bmc    *fakebmc.BMC
	url    string
	paused bool
	// told is what its guest was told to undo when the faults are withdrawn.
	told []evidence.Command
}

// New returns a lab that has not been started.
func New(o Options) *Backend {
	set := o.Controllers
	if set == nil {
		set = controllers.Default()
	}
	return &Backend{options: o, set: set}
}

func (b *Backend) logf(format string, args ...any) {
	if b.options.Log != nil {
		fmt.Fprintf(b.options.Log, "lab: "+format+"\n", args...)
	}
}

// Start brings up the control plane, the hosts and the controllers. The events
// of this, and RunStarted when all are healthy, come out of Advance.
func (b *Backend) Start(ctx context.Context, plan *scenarios.Plan) (timings invariant.Timings, err error) {
	if reasons := Capabilities.Refuse(plan, objects.Needs); len(reasons) > 0 {
		return timings, &scenarios.Unsupported{Backend: Capabilities.Title, Reasons: reasons}
	}
	if err := Check(ctx, b.options); err != nil {
		return timings, err
	}
	b.ctx, b.cancel = context.WithCancel(ctx)
	b.plan, b.clock, b.nodes = plan, wall.Clock(), objects.NodesOf(&plan.Spec.Topology)
	b.hosts, b.password = make(map[string]*host), rand.Text()
	b.stream = newStream(b.since)
	for _, h := range plan.Spec.Topology.Hosts {
		b.names = append(b.names, h.Name)
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"starting the control plane", b.startCluster},
		{"opening the hypervisor", b.openVMs},
		{"making the hosts and their BMCs", b.makeHosts},
		{"creating the topology", b.createTopology},
		{"watching the API", b.watchAPI},
		{"switching the hosts on", b.switchOn},
		{"starting the controllers", b.startControllers},
	} {
		b.logf("%s", step.what)
		if err := step.do(); err != nil {
			return timings, fmt.Errorf("%s: %w", step.what, err)
		}
		if ctx.Err() != nil {
			return timings, context.Cause(ctx)
		}
	}
	chosen, err := objects.Controllers(b.set, &plan.Spec)
	timings = objects.Timings(&plan.Spec, chosen)
	timings.Skew, timings.Slack, timings.Quiet = skew, slack, quiet
	return timings, err
}

func (b *Backend) since() time.Duration { return b.clock.Now() }

func (b *Backend) startCluster() (err error) {
	var nodes []string
	for i := range b.plan.Spec.Topology.Hosts {
		nodes = append(nodes, b.plan.Spec.Topology.Hosts[i].Node())
	}
	if b.cluster, err = cluster.Launch(b.ctx, cluster.Options{Bin: b.options.Bin, Nodes: nodes}); err != nil {
		return err
	}
	for _, files := range b.set.Manifests() {
		if err := b.cluster.Install(b.ctx, files); err != nil {
			return err
		}
	}
	scheme := b.set.Scheme()
	if err := rbacv1.AddToScheme(scheme); err != nil {
		return err
	}
	b.admin, err = client.NewWithWatch(b.as("scenario"), client.Options{Scheme: scheme})
	return err
}

// as is the administrator's configuration for clients whose writes are to bear a
// name.
func (b *Backend) as(name string) *rest.Config {
	config := rest.CopyConfig(b.cluster.Config())
	config.UserAgent = name
	return config
}

func (b *Backend) openVMs() (err error) {
	if b.keeper, err = keeper.Start(); err != nil {
		return err
	}
	if b.dir, err = b.keeper.TempDir("fencelab-consoles"); err != nil {
		return err
	}
	if b.vms, err = vms.Open(b.ctx, vms.Options{Assets: cmp.Or(b.options.Assets, DefaultAssets()), Evidence: b.dir}); err != nil {
		return err
	}
	offset := b.since() - b.vms.Now()
	b.observers.Add(1)
	go func() {
		defer b.observers.Done()
		for e := range b.vms.Events() {
			system := b.hosts[e.Host].system
			system.notice(e)
			for _, event := range worldEvents(e, system.blamed(e)) {
				event.At = offset + e.At
				b.stream.put(event)
			}
		}
	}()
	accelerator, why := b.vms.Accelerator()
	b.logf("guests are executed by %s: %s", accelerator, why)
	return nil
}

// worldEvents translates what the hypervisor and the guest saw. A line of a boot
// that has ended was late, and everything in it is over. by is in whose name the
// machine's power changed, or its boot ended.
func worldEvents(e vms.Event, by string) []history.Event {
	event := history.Event{Host: e.Host, Boot: e.Boot, Actor: by, Note: e.Detail}
	of := func(kinds ...history.Kind) []history.Event {
		var events []history.Event
		for _, kind := range kinds {
			if (kind == history.BootEnded || kind == history.BootStarted || kind == history.BootComplete) && e.Boot == "" {
				continue // the boot was never heard of
			}
			event.Kind = kind
			events = append(events, event)
		}
		return events
	}
	if e.Late {
		return nil
	}
	switch e.Kind {
	case vms.PoweredOn:
		return of(history.PowerOn)
	case vms.PoweredOff:
		return of(history.BootEnded, history.PowerOff)
	case vms.Reset:
		if e.Detail == vms.ResetWatchdog {
			return of(history.WatchdogFired, history.BootEnded)
		}
		return of(history.BootEnded)
	case vms.Paused:
		return of(history.HostPaused)
	case vms.Resumed:
		return of(history.HostResumed)
	case vms.EvidenceLost:
		return of(history.EvidenceLost)
	case vms.EvidenceRegained:
		return of(history.EvidenceRegained)
	case vms.LinkDown, vms.LinkUp:
		switch {
		case e.Link.From == "":
			return nil // of a host's links, both ways, one event tells
		case e.Link.To == "":
			event.Object = scenarios.API
		default:
			event.From, event.To = e.Link.From, e.Link.To
		}
		if e.Kind == vms.LinkDown {
			return of(history.LinkCut)
		}
		return of(history.LinkRestored)
	case vms.Kind(evidence.Boot):
		return of(history.BootStarted)
	case vms.Kind(evidence.KubeletStarted):
		return of(history.BootComplete)
	case vms.Kind(evidence.WorkloadStarted), vms.Kind(evidence.WorkloadStopped):
		event.Object, event.UID, event.Note = e.Process, e.Detail, ""
		if e.Kind == vms.Kind(evidence.WorkloadStarted) {
			return of(history.WorkloadStarted)
		}
		return of(history.WorkloadStopped)
	}
	return nil
}

// bmcUser is the account of the BMCs; its password is drawn for each run.
const bmcUser = "fencelab"

func (b *Backend) makeHosts() error {
	server, err := redfish.NewServer(redfish.Config{Username: bmcUser, Password: b.password})
	if err != nil {
		return err
	}
	b.server = server
	topology := &b.plan.Spec.Topology
	address, err := b.vms.Serve(scenarios.API, b.cluster.Address())
	if err != nil {
		return err
	}
	b.bmcs = make(map[string]*fakebmc.BMC)
	for _, config := range topology.Hosts {
		lease := time.Duration(topology.Lease)
		domain, err := b.vms.NewDomain(vms.HostConfig{
			Name: config.Name, Softdog: time.Duration(config.Watchdog), Peers: slices.DeleteFunc(slices.Clone(b.names), func(n string) bool { return n == config.Name }),
			Kubelet: &evidence.Kubelet{
				Server: "https://" + address.String(), ServerName: cluster.ServerName,
				CA: string(b.cluster.CA()), Token: b.cluster.NodeToken(config.Node()), Labels: config.Labels,
				Node: config.Node(), Adopt: topology.PodGC > 0, ProviderID: objects.ProviderID(config.Name),
				Lease: lease, Status: lease, Pods: 500 * time.Millisecond, Grace: 5 * time.Second,
			},
		})
		if err != nil {
			return err
		}
		b.hosts[config.Name] = &host{domain: domain, system: &system{b: b, domain: domain}}
	}
	for name, h := range b.hosts {
		peers := make(map[string]fakebmc.System)
		for other, o := range b.hosts {
			peers[other] = peer{o.system, name}
		}
		h.bmc = fakebmc.New(name, h.system, b.clock, fakebmc.Peers(peers),
			fakebmc.OnRequest(func(r fakebmc.Record) { b.requested(name, r) }),
			fakebmc.OnReset(func(client string, t fakebmc.ResetType) { b.received(name, client, t) }))
		if h.url, err = server.Listen("127.0.0.1:0", h.bmc); err != nil {
			return err
		}
		b.bmcs[name] = h.bmc
	}
	b.faults = objects.NewFaults(b.bmcs)
	return nil
}

// received records a reset that a BMC has received, and remembers whose it is: by
// when it is carried out, its client may have given up.
func (b *Backend) received(host, client string, t fakebmc.ResetType) {
	client = b.name(host, client, t)
	b.askers.Store(errand{host, t}, client)
	b.stream.now(history.Event{Kind: history.BMCCommand, Host: host, Actor: client, Value: string(t)})
}

// requested records what faults bent a request, when it was answered or is known to
// hang.
func (b *Backend) requested(host string, r fakebmc.Record) {
	b.requests.Add(r)
	for _, fault := range objects.Bent(r.Rules) {
		b.stream.now(history.Event{
			Kind: history.BMCFault, Host: host, Actor: b.name(host, r.Request.Client, r.Request.ResetType), Value: fault, Note: string(r.Request.ResetType),
		})
	}
}

// name is what the history calls the client of a request.
func (b *Backend) name(host, client string, t fakebmc.ResetType) string {
	switch client {
	case fakebmc.ClientBMC, fakebmc.ClientWatchdog, fakebmc.ClientRestore:
		return client
	}
	return b.client(host, t)
}

// errand is a request to a BMC that is under way.
type errand struct {
	host  string
	reset fakebmc.ResetType // empty for a read
}

// client is the controller, or the BMC itself, whose request is under way, or ""
// where that is not known: a BMC sees an address, and a request that it delays may
// outlive its client's errand.
func (b *Backend) client(host string, t fakebmc.ResetType) string {
	client, _ := b.errands.Load(errand{host, t})
	name, _ := client.(string)
	return name
}

// bmcSecret is the Secret that opens the BMCs.
const bmcSecret = "bmc"

func (b *Backend) createTopology() error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: objects.Namespace, Name: bmcSecret},
		StringData: map[string]string{"username": bmcUser, "password": b.password}}
	if err := b.admin.Create(b.ctx, secret); err != nil {
		return err
	}
	b.topology = objects.Topology(&b.plan.Spec, func(host string) api.BMCDetails {
		return api.BMCDetails{Address: "redfish+" + b.hosts[host].url + "/redfish/v1/Systems/" + host, CredentialsName: bmcSecret}
	})
	for _, obj := range b.topology {
		if err := b.create(b.ctx, obj, "scenario"); err != nil {
			return err
		}
	}
	return nil
}

// create makes an object of the topology, with its status.
func (b *Backend) create(ctx context.Context, obj client.Object, owner string) error {
	created, status := obj.DeepCopyObject().(client.Object), obj.DeepCopyObject().(client.Object)
	if err := b.admin.Create(ctx, created, client.FieldOwner(owner)); err != nil {
		return fmt.Errorf("create %T %s: %w", obj, obj.GetName(), err)
	}
	status.SetResourceVersion(created.GetResourceVersion())
	if err := b.admin.Status().Update(ctx, status, client.FieldOwner(owner)); err != nil {
		return fmt.Errorf("set the status of %T %s: %w", obj, obj.GetName(), err)
	}
	return nil
}

func (b *Backend) switchOn() error {
	chosen, err := objects.Controllers(b.set, &b.plan.Spec)
	if err != nil {
		return err
	}
	b.stream.await(b.plan, chosen)
	for _, name := range b.names {
		b.hosts[name].system.blame(string(history.Engine), true)
		if err := b.hosts[name].domain.On(b.ctx); err != nil {
			return err
		}
	}
	return nil
}

// Advance waits, and hands over what the observers saw.
func (b *Backend) Advance(until time.Duration, each func(history.Event) bool) (time.Duration, error) {
	return b.stream.advance(b.ctx, until, each)
}

// Stop removes everything and returns the consoles and the last state of the
// API.
func (b *Backend) Stop() ([]scenarios.Artifact, error) {
	if b.stopped || b.ctx == nil {
		return nil, nil
	}
	b.stopped = true
	artifacts := b.dump()
	b.cancel()
	var errs []error
	for _, p := range b.processes {
		p.stop()
	}
	if b.server != nil {
		for _, name := range b.names {
			if bmc := b.bmcs[name]; bmc != nil {
				for _, r := range bmc.Pending() {
					b.requests.Add(r)
				}
			}
		}
		errs = append(errs, b.server.Close())
		artifacts = append(artifacts, b.requests.Artifact())
	}
	if b.vms != nil {
		errs = append(errs, b.vms.Close())
	}
	if b.cluster != nil {
		errs = append(errs, b.cluster.Stop())
	}
	b.observers.Wait()
	if b.dir != "" {
		for _, name := range b.names {
			if data, err := os.ReadFile(filepath.Join(b.dir, name+".console")); err == nil {
				artifacts = append(artifacts, scenarios.Artifact{Name: name + ".console", Data: data})
			}
		}
		errs = append(errs, b.keeper.Close())
	}
	return artifacts, errors.Join(errs...)
}

// dump is the state of the API for the report's directory.
func (b *Backend) dump() []scenarios.Artifact {
	if b.admin == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), commandTimeout)
	defer cancel()
	var dumped []client.Object
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &corev1.PodList{}, &api.BareMetalHostList{}, &clusterv1.MachineList{}, &clusterv1.MachineHealthCheckList{}} {
		if err := b.admin.List(ctx, list); err != nil {
			b.logf("dump %T: %v", list, err)
			continue
		}
		dumped = append(dumped, items(list)...)
	}
	for _, obj := range dumped {
		obj.SetManagedFields(nil)
	}
	data, err := json.MarshalIndent(dumped, "", "  ")
	if err != nil {
		b.logf("dump the API: %v", err)
		return nil
	}
	return []scenarios.Artifact{{Name: "api.json", Data: append(data, '\n')}}
}
