// Package lab is the real world behind play.Backend: a kube-apiserver, the
// controllers under real managers, hosts that are virtual machines, and a Redfish
// BMC for each of them.
//
// It has four parts, and [Backend] only joins them: machines (virtualMachines or
// modelMachines), a control plane (package cluster), a runner of controllers (inProcess or
// childProcesses), and observers. All that controllers ask of the API server and the
// BMCs passes gates (package gate).
//
// What happened is told by three observers on the near side of every fault: the
// hypervisor and the guest's evidence port (package vms), and a watch of the API
// server. Their clocks are one; how late they are is bounded by skew.
package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/ci/child"
	"github.com/fencelab/fencelab/ci/cluster"
	"github.com/fencelab/fencelab/ci/cluster/kind"
	"github.com/fencelab/fencelab/ci/ironic"
	"github.com/fencelab/fencelab/ci/lab/door"
	"github.com/fencelab/fencelab/ci/lab/gate"
	"github.com/fencelab/fencelab/ci/lab/hosts"
	"github.com/fencelab/fencelab/ci/lab/record"
	"github.com/fencelab/fencelab/ci/lab/runner"
	thismachine "github.com/fencelab/fencelab/ci/machine"
	"github.com/fencelab/fencelab/ci/slots"
	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/wall"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/vms"
	"github.com/fencelab/fencelab/vms/guest/evidence"
	"github.com/fencelab/fencelab/vms/keeper"
	"github.com/fencelab/fencelab/vms/network"
)

const (
	// slack is for a machine that emulates the hosts, or is busy with other things.
	slack = 20 * time.Second
	// ironicSlack is for an Ironic, which looks at a host whose power is to change in
	// intervals that grow, and then holds its lock a little longer.
	ironicSlack = 30 * time.Second
	// quiet is how long a run goes on after nothing is missing. Real time is dear: the
	// slow timers of the controllers are the simulator's business.
	quiet = 15 * time.Second
	// podInterval and podGrace are the kubelets': how often they look at their Pods, and
	// how long a Pod may take to end.
	podInterval, podGrace = 500 * time.Millisecond, 5 * time.Second
)

// Options say where a lab finds what it is made of.
type Options struct {
	// Assets is what vms/assets.sh filled; empty: DefaultAssets.
	Assets string
	// Bin has etcd and kube-apiserver; empty: cluster.DefaultBin.
	Bin string
	// Cluster is the control plane: Embedded, Standard, Kind or Kubeconfig; empty is Embedded, but for
	// real nodes.
	Cluster string
	// Kubeconfig is the file of the cluster of one's own; needed for that, and for nothing else.
	Kubeconfig string
	// Hosts is what the hosts are made of: Guest, Node or Model; empty is Guest.
	Hosts string
	// Power is how controllers command the hosts: Redfish or Ironic; empty is Redfish, but for
	// stories whose topology has an Ironic.
	Power string
	// IronicEndpoint is the URL of somebody's Ironic, on this machine; empty: one of our own.
	IronicEndpoint string
	// IronicImage is the image that an Ironic of our own comes from; empty: what the plan names.
	IronicImage scenarios.Image
	ironic      scenarios.Ironic // how it behaves, and where it comes from
	// Processes runs each controller as a process of its own instead of within this one.
	Processes bool
	// Executable is fencelab's, for Processes; empty: this process's.
	Executable string
	// Kept says that the lab is for people to work with, and judges nothing: other programs can
	// reach the hypervisor, and a controller that ends by itself is started again.
	Kept bool
	// Record has the lab note all deeds of the controllers, for Deeds, also what reaches their caches.
	Record bool
	// Alone has the lab wait until nothing else that is heavy runs on this machine, and lets nothing else begin.
	Alone bool
	// Shelf is from where an embedded control plane is taken, and where it goes again; nil: it is the lab's own. Not for one
	// that is kept.
	Shelf *cluster.Shelf
	// Log is told what the lab is doing; may be nil.
	Log io.Writer
	// Controllers are those that a plan can name; nil: fencelab's own.
	Controllers *controllers.Set
}

// Check returns a play.Missing error unless everything that a lab needs is here.
func Check(ctx context.Context, o Options) error {
	reasons := o.unattachable()
	var findings []child.Finding
	switch o.Cluster {
	case Kubeconfig:
	case Kind:
		findings = kind.Preflight(ctx)
	default:
		findings = cluster.Preflight(ctx, o.cluster())
	}
	for _, f := range findings {
		if f.Remedy != "" {
			reasons = append(reasons, fmt.Sprintf("%s: %s; %s", f.Name, f.State, f.Remedy))
		}
	}
	if o.Hosts != Model {
		for _, f := range vms.Preflight(ctx, o.assets(), o.disk()) {
			if f.Needed && !f.OK {
				reasons = append(reasons, fmt.Sprintf("%s: %s", f.Subject, f.Detail))
			}
		}
	}
	if o.Power == Ironic && o.IronicEndpoint == "" && o.ironic.Image == "" {
		if err := ironic.Installed(o.ironic.Bin); err != nil {
			reasons = append(reasons, fmt.Sprintf("ironic: %v", err))
		}
	}
	if len(reasons) > 0 {
		return &play.Missing{World: "lab", Reasons: reasons, Remedy: o.remedy()}
	}
	return nil
}

// Backend is one lab. It implements play.Backend.
type Backend struct {
	options Options
	set     *controllers.Set
	kinds   objects.Kinds
	ctx     context.Context
	cancel  context.CancelFunc
	clock   fakebmc.Clock // of the history and of the BMCs
	plan    *scenarios.Plan
	keeper  *keeper.Keeper
	dir     string // goes with the keeper
	stopped bool
	turn    *slots.Turn
	account record.Account

	plane    controlPlane
	standard *cluster.Cluster // the control plane, if it is ours and has the standard controllers
	manager  standardManager
	admin    client.WithWatch
	topology []client.Object
	machines hosts.Machines
	names    []string // of hosts, in the plan's order
	hosts    map[string]hosts.Machine
	bmcs     *hosts.BMCs

	runner    runner.Runner
	others    []runner.Runner // of programs
	processes []*process
	agents    []*agent
	pods      *pods          // nil unless controllers are Pods
	peers     *cluster.Peers // nil until an agent asks its peers
	refusals  refusals
	door      *door.Door
	kubelets  *gate.Proxy // nil where they go another way
	wire      *gate.Wire  // of the standard controllers and their kubelets; nil where the lab starts none
	schedule  *schedule
	ironic    *ironicOwner // nil without one
	images    images

	record *record.Record
	tasks  sync.WaitGroup
}

// New returns a lab that has not been started.
func New(o Options) *Backend {
	set := o.Controllers
	if set == nil {
		set = controllers.Default()
	}
	return &Backend{options: o, set: set, kinds: objects.KindsOf(set)}
}

func (b *Backend) logf(format string, args ...any) {
	if b.options.Log != nil {
		fmt.Fprintf(b.options.Log, "lab: "+format+"\n", args...)
	}
}

func (b *Backend) since() time.Duration { return b.clock.Now() }

// Start brings up the control plane, the hosts and the controllers. The events
// of this, and RunStarted when all are healthy, come out of Advance.
func (b *Backend) Start(ctx context.Context, plan *scenarios.Plan) (timings invariant.Timings, err error) {
	can := b.options.Capabilities()
	reasons := slices.Concat(can.Refuse(plan, objects.Needs), b.impossibleAgents(&plan.Spec), b.impossibleBMCs(&plan.Spec), b.options.replaced(b.set, &plan.Spec))
	if len(reasons) > 0 {
		return timings, &play.Unsupported{Backend: can.Title, Reasons: reasons}
	}
	if given := plan.Spec.Topology.Ironic; given != nil {
		b.options.Power, b.options.ironic = Ironic, *given
	}
	if own := b.options.IronicImage; own != "" {
		b.options.ironic.Image, b.options.ironic.Bin = own, ""
	}
	if b.options.Kept || plan.Spec.Topology.BMC != nil {
		vms.OpenToOthers()
	}
	if err := Check(ctx, b.options); err != nil {
		return timings, err
	}
	fields, err := objects.FieldsOf(&plan.Spec)
	if err != nil {
		return timings, err
	}
	b.ctx, b.cancel = context.WithCancel(ctx)
	b.plan = plan
	if err := b.openImages(); err != nil {
		return timings, &play.Missing{World: "lab", Reasons: []string{err.Error()}, Remedy: "see docs/systems.md#images"}
	}
	if err := b.enter(); err != nil {
		return timings, err
	}
	b.account.Enter(record.ComingUp)
	b.tasks.Go(func() { b.account.Keep(b.ctx) })
	b.clock = wall.Clock()
	b.record = record.New(b.since, b.kinds, objects.NamesOf(&plan.Spec.Topology), fields)
	b.record.Up = b.up
	b.door = door.New(b.record.Stream, gate.API(b.kinds))
	b.schedule = newSchedule(plan, b.record.Stream, b.options.Record)
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"starting the control plane", b.startControlPlane},
		{"preparing the machines", b.openMachines},
		{"preparing the hosts' agents", b.makeAgents},
		{"creating the hosts and their BMCs", b.makeHosts},
		{"creating the topology", b.createTopology},
		{installing, b.installPrograms},
		{"watching the API", func() error { return b.record.Watch(b.ctx, b.admin) }},
		{"switching the hosts on", b.switchOn},
		{adopting, b.startIronic},
		{"starting the controllers", b.startControllers},
	} {
		if step.what == adopting && b.options.Power != Ironic || step.what == installing && !b.hasPrograms() {
			continue
		}
		b.logf("%s", step.what)
		if err := step.do(); err != nil {
			return timings, fmt.Errorf("%s: %w", step.what, err)
		}
		if ctx.Err() != nil {
			return timings, context.Cause(ctx)
		}
	}
	b.tasks.Go(func() { b.record.KeepPulse(b.ctx, b.admin, b.machines.Processors) })
	chosen, err := b.controllers()
	timings = objects.Timings(&plan.Spec, chosen)
	if b.runs(cluster.PodGC) {
		timings.Release = podGC
	}
	timings.Unseen = []history.Kind{history.ControllerPanicked}
	timings.Skew, timings.Slack, timings.Quiet = record.Skew, slack, quiet
	if b.options.Hosts == Node {
		timings.Slack = nodeSlack
	}
	if b.ironic != nil {
		timings.Slack += ironicSlack
	}
	timings.Slack = b.slower(timings.Slack)
	return timings, err
}

// maxSlower bounds how much longer a time gets: what is later still on a machine that is as slow says nothing any more.
const maxSlower = 4

// slower is a time that suffices on the machine that docs/performance.md describes, for this one as it is now. The history says by
// how much it is slower.
func (b *Backend) slower(enough time.Duration) time.Duration {
	slowness := min(maxSlower, thismachine.Slowness())
	b.record.Remark(fmt.Sprintf("this machine is %.1f times as slow as that of docs/performance.md", slowness))
	return time.Duration(float64(enough) * slowness)
}

// installing and adopting are what only some labs do.
const (
	installing = "installing what programs need"
	adopting   = "having Ironic adopt the hosts"
)

// openMachines also chooses how controllers run, and makes the directory for what
// machines and controllers leave behind.
func (b *Backend) openMachines() (err error) {
	if b.keeper, err = keeper.Start(); err != nil {
		return err
	}
	if b.dir, err = b.keeper.TempDir("fencelab-lab"); err != nil {
		return err
	}
	b.runner = runner.InProcess{Plane: b.plane, Set: b.set, Tracing: &runner.Tracing{Trace: &b.record.Trace, Since: b.since, Kinds: b.kinds, Topology: &b.plan.Spec.Topology}}
	if b.options.Processes {
		b.runner = runner.NewChildProcesses(b.plane, b.door, cmp.Or(b.options.Executable, "/proc/self/exe"), b.dir, b.keeper.Mark())
	}
	if b.bmcs, err = hosts.NewBMCs(b.record.Stream, objects.BendsOf(&b.plan.Spec)); err != nil {
		return err
	}
	if b.options.Hosts == Model {
		b.logf("hosts are models, with the times of the topology")
		b.machines = hosts.OpenModels(b.ctx, b.plan.Spec.Topology.Timings, b.record.Stream, b.bmcs.Asker)
		return nil
	}
	opened, err := hosts.OpenVirtual(b.ctx, b.options.assets(), b.options.disk(), b.dir, b.record.Stream, b.bmcs.Asker, b.programmed, b.logf)
	if err == nil {
		b.machines = opened
	}
	return err
}

func (b *Backend) makeHosts() error {
	behind := []network.Target{{To: b.plane.Address()}}
	switch b.options.ControlPlane() {
	case Embedded:
		if err := b.serveKubelets(); err != nil {
			return err
		}
		behind[0].To = b.kubelets.Address()
	case Standard:
		behind[0].To = b.wire.Address()
	}
	for _, a := range b.agents {
		if a.proxy != nil {
			behind = append(behind, network.Target{To: a.proxy.Address()})
		}
	}
	behind = append(behind, b.pods.targets()...)
	at, err := b.machines.Reach(scenarios.API, behind...)
	if err != nil {
		return err
	}
	proxies := make(map[string]netip.AddrPort)
	for i := range behind {
		proxies[behind[i].To] = at[i]
	}
	planned := b.plan.Spec.Topology.Hosts
	for i := range planned {
		b.names = append(b.names, planned[i].Name)
	}
	b.hosts = make(map[string]hosts.Machine)
	for i := range planned {
		peers := slices.DeleteFunc(slices.Clone(b.names), func(name string) bool { return name == planned[i].Name })
		programs, err := b.programs(&planned[i], proxies)
		if err != nil {
			return err
		}
		kubelet := b.kubelet(&planned[i], at[0])
		b.pods.tell(kubelet, proxies)
		m, err := b.machines.Add(&planned[i], peers, kubelet, programs)
		if err != nil {
			return err
		}
		b.hosts[planned[i].Name] = m
		for _, a := range b.agents {
			if a.host == planned[i].Name {
				a.guest = func(ctx context.Context, c evidence.Command) error { return m.Tell(ctx, c, "") }
			}
		}
		if a := b.feeder(planned[i].Name); a != nil {
			m.FedBy(a.name)
		}
	}
	if b.plan.Spec.Topology.BMC != nil {
		return b.serveForeignBMCs()
	}
	if err := b.bmcs.Serve(b.clock, b.names, b.hosts); err != nil {
		return err
	}
	return objects.Restore(&b.plan.Spec.Topology, b.bmcs.ByName)
}

func (b *Backend) switchOn() error {
	chosen, err := b.controllers()
	if err != nil {
		return err
	}
	b.record.Await(b.plan, chosen)
	b.tasks.Go(func() { b.record.AwaitGroundwork(b.ctx, b.admin, chosen) })
	if b.plan.Spec.Topology.Workload.Host != "" && b.runs(cluster.StatefulSet) {
		b.tasks.Go(b.createWorkload)
	}
	for _, name := range b.names {
		if err := b.hosts[name].SwitchOn(b.ctx); err != nil {
			return err
		}
	}
	return nil
}

// Spent implements play.Spender.
func (b *Backend) Spent() []play.Spent { return b.account.Spent() }

// Deeds are those of the controllers in the story, in order. Deliveries are among them if a plan or an option asks for it.
func (b *Backend) Deeds() []scenarios.Deed {
	b.schedule.mu.Lock()
	defer b.schedule.mu.Unlock()
	return slices.Clone(b.schedule.deeds)
}

// Advance waits, and hands over what the observers saw.
func (b *Backend) Advance(until time.Duration, each func(history.Event) bool) (time.Duration, error) {
	return b.record.Advance(b.ctx, until, each)
}

// Stop removes everything and returns what was said and the last state of the API.
func (b *Backend) Stop() ([]play.Artifact, error) {
	if b.stopped || b.ctx == nil {
		return nil, nil
	}
	b.stopped = true
	b.account.Enter(record.Leaving)
	var artifacts []play.Artifact
	if !b.options.Kept { // nobody reads them, and an API server that hangs would keep a lab from its end
		artifacts = b.dump()
	}
	b.cancel()
	var errs []error
	for _, p := range b.processes {
		p.stop()
	}
	logs, err := b.ironic.close(b.ctx)
	artifacts, errs = append(artifacts, logs...), append(errs, err)
	if b.bmcs != nil {
		requests, err := b.bmcs.Close()
		artifacts, errs = append(artifacts, requests...), append(errs, err)
	}
	if b.machines != nil {
		consoles, err := b.machines.Close()
		artifacts, errs = append(artifacts, consoles...), append(errs, err)
	}
	b.account.Update() // before the control plane ends
	errs = append(errs, b.closeAgents())
	if b.kubelets != nil {
		errs = append(errs, b.door.Close(b.kubelets))
	}
	if b.plane != nil {
		errs = append(errs, b.plane.Stop())
	}
	if b.wire != nil {
		errs = append(errs, b.wire.Close())
	}
	b.tasks.Wait()
	b.record.Wait()
	if b.runner != nil {
		artifacts = append(artifacts, b.runner.Logs()...)
	}
	for _, r := range b.others {
		artifacts = append(artifacts, r.Logs()...)
	}
	artifacts = append(artifacts, b.record.Trace.Artifact())
	if b.keeper != nil {
		errs = append(errs, b.keeper.Close())
	}
	errs = append(errs, b.images.close())
	b.turn.Release()
	return artifacts, errors.Join(errs...)
}
