// Package lab is the real world behind play.Backend: a kube-apiserver, the
// controllers under real managers, hosts that are virtual machines, and a Redfish
// BMC for each of them.
//
// It has four parts, and [Backend] only joins them: hosts (package hosts), a control plane
// behind its door (packages cluster and door), runners of controllers (package runner), and
// the record of what observers saw (package record). All that controllers ask of the API
// server and the BMCs passes gates (package gate).
//
// Three observers on the near side of every fault report what happened: the
// hypervisor and the guest's evidence port (package vms), and a watch of the API
// server. Their clocks are one; how late they are is bounded by record.Skew.
package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/wall"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/lab/door"
	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/lab/hosts"
	thismachine "github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/lab/record"
	"github.com/fencelab/fencelab/lab/runner"
	"github.com/fencelab/fencelab/lab/slots"
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
	// quiet is how long a run goes on after nothing is missing. Real time is dear: the
	// slow timers of the controllers are the simulator's business.
	quiet = 15 * time.Second
)

// Backend is one lab. It implements play.Backend. What it joins is in place from Start on: first
// the record, then the control plane, the hosts, and what runs.
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
	images  images
	tasks   sync.WaitGroup

	record  *record.Record
	account record.Account
	plane   plane
	// managers play the parts of stand-ins that the control plane replaces
	managers []*standardManager
	hosts    hosts.Hosts
	storage  *hosts.Storage // nil where the workload has no volume
	driver   *grpc.Server   // of the CSI driver; nil without one
	procs    running
	ironic   *ironicOwner // nil without one
}

// startIronic has an Ironic own the BMCs.
func (b *Backend) startIronic() error {
	b.ironic = &ironicOwner{since: b.since}
	return b.ironic.start(b.ctx, b.options.IronicEndpoint, &b.options.ironic, b.images, &b.hosts)
}

// imagesNamed lists the images of the plan's programs and of an Ironic of the lab's own.
func (b *Backend) imagesNamed() (names []scenarios.Image) {
	for i := range b.plan.Spec.Controllers {
		if p := b.plan.Spec.Controllers[i].Program; p != nil {
			names = append(names, p.Image.In(p.Dir))
		}
	}
	if bmc := b.plan.Spec.Topology.BMC; bmc != nil {
		names = append(names, bmc.Image.In(bmc.Dir))
	}
	if b.options.ownIronic() {
		names = append(names, b.options.ironic.Image)
	}
	return names
}

// enter waits until the machine has room for the lab.
func (b *Backend) enter() (err error) {
	thismachine.Slowness() // it is measured from now on
	b.turn, err = slots.Machine().Take(b.ctx, "a lab of "+b.plan.Metadata.Name, b.options.cost(b.plan), b.logf)
	return err
}

// up notes that the lab is: then the next can begin. One that is kept waits for people, and would
// keep all others waiting.
func (b *Backend) up() {
	b.account.Enter(record.Telling)
	if b.options.Kept {
		b.turn.Release()
		return
	}
	b.turn.Begun()
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
	if plan.Spec.Topology.Workload.Volume != nil {
		b.options.driver = b.serveDriver
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
	if b.images, err = openImages(b.ctx, b.imagesNamed(), b.logf); err != nil {
		return timings, &play.Missing{World: "lab", Reasons: []string{err.Error()}, Remedy: "see docs/systems.md#images"}
	}
	if err := b.enter(); err != nil {
		return timings, err
	}
	b.account.Enter(record.ComingUp)
	b.tasks.Go(func() { b.account.Keep(b.ctx) })
	b.clock = wall.Clock()
	b.record = record.New(b.since, b.kinds, objects.NamesOf(&plan.Spec.Topology, plan.Spec.HealthCheck), fields)
	b.record.Up = b.up
	b.plane.door = door.New(b.record.Stream, gate.API(b.kinds))
	b.procs.schedule = newSchedule(plan, b.record.Stream, b.options.Record)
	for _, step := range []struct {
		what   string
		do     func() error
		spared bool
	}{
		{what: "starting the control plane", do: b.startControlPlane},
		{what: "preparing the machines", do: b.openMachines},
		{what: "preparing the hosts' agents", do: b.makeAgents},
		{what: "creating the hosts and their BMCs", do: b.makeHosts},
		{what: "creating the topology", do: b.createTopology},
		{what: "installing what programs need", do: b.installPrograms, spared: !plan.Spec.HasPrograms()},
		{what: "finding the kinds that they brought", do: b.adoptKinds, spared: !plan.Spec.HasPrograms()},
		{what: "watching the API", do: func() error { return b.record.Watch(b.ctx, b.plane.admin) }},
		{what: "switching the hosts on", do: b.switchOn},
		{what: "having Ironic adopt the hosts", do: b.startIronic, spared: b.options.Power != Ironic},
		{what: "starting the controllers", do: b.startControllers},
	} {
		if step.spared {
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
	b.tasks.Go(func() { b.record.KeepPulse(b.ctx, b.plane.admin, b.hosts.Machines.Processors) })
	chosen, err := b.controllers()
	timings = objects.Timings(&plan.Spec, chosen)
	if b.runs(cluster.PodGC) && plan.Spec.Topology.Workload.Volume == nil {
		timings.Release = podGC
	}
	if !b.seesErrors(chosen) {
		timings.Unseen = []history.Kind{history.ControllerError, history.ControllerPanicked}
	}
	slowness := b.slowness()
	slower := func(enough time.Duration) time.Duration { return time.Duration(float64(enough) * slowness) }
	timings.Skew, timings.Slack, timings.Quiet = record.Skew, slower(b.options.slack()), quiet
	if b.options.Power != Ironic && !b.plan.Spec.HasPrograms() && plan.Spec.Topology.BMC == nil {
		timings.Act = slower(actSlack)
	}
	return timings, err
}

// seesErrors reports whether no controller of the story can fail or panic unseen. That holds if
// each runs under a manager that the lab set up, in this process or in one of its own, whose log
// shows failures. The log of a foreign program may show them, or not.
func (b *Backend) seesErrors(chosen []controllers.Selection) bool {
	return !b.plan.Spec.HasPrograms() && !slices.ContainsFunc(chosen, func(c controllers.Selection) bool { return c.Setup != nil || c.NewAgent != nil })
}

// maxSlower bounds how much longer a time gets: what is later still on a machine that is as slow
// says nothing any more.
const maxSlower = 4

// slowness is by how much this machine is slower now than the one that docs/performance.md
// describes, where the slack of times was measured. The history says it.
func (b *Backend) slowness() float64 {
	slowness := min(maxSlower, thismachine.Slowness())
	b.record.Remark(fmt.Sprintf("this machine is %.1f times as slow as that of docs/performance.md", slowness))
	return slowness
}

// openMachines also chooses how controllers run, and makes the directory for what
// machines and controllers leave behind.
func (b *Backend) openMachines() (err error) {
	if b.keeper, err = keeper.Start(); err != nil {
		return err
	}
	if b.dir, err = b.keeper.TempDir("fencelab-lab"); err != nil {
		return err
	}
	inProcess := runner.InProcess{
		Plane: b.plane.controlPlane, Set: b.set, Failed: b.failed,
		Tracing: &runner.Tracing{Trace: &b.record.Trace, Since: b.since, Kinds: b.kinds, Topology: &b.plan.Spec.Topology},
	}
	b.procs.runner, b.procs.within = inProcess, inProcess
	if b.options.Processes {
		b.procs.runner = runner.NewChildProcesses(b.plane.controlPlane, b.plane.door, cmp.Or(b.options.Executable, "/proc/self/exe"), b.dir, b.keeper.Mark(), b.failed)
	}
	if b.hosts.BMCs, err = hosts.NewBMCs(b.record.Stream, objects.BendsOf(&b.plan.Spec)); err != nil {
		return err
	}
	if b.options.models() {
		b.logf("hosts are models, with the times of the topology")
		b.hosts.Machines = hosts.OpenModels(b.ctx, b.plan.Spec.Topology.Timings, b.record.Stream, b.hosts.BMCs.Asker)
		return b.openStorage()
	}
	opened, err := hosts.OpenVirtual(b.ctx, b.options.assets(), b.options.disk(), b.dir, b.record.Stream, b.hosts.BMCs.Asker, b.programmed, b.logf)
	if err != nil {
		return err
	}
	b.hosts.Machines = opened
	return b.openStorage()
}

func (b *Backend) makeHosts() error {
	behind := []network.Target{{To: b.plane.Address()}}
	switch b.options.ControlPlane() {
	case Embedded:
		if err := b.serveKubelets(); err != nil {
			return err
		}
		behind[0].To = b.plane.kubelets.Address()
	case Standard:
		behind[0].To = b.plane.wire.Address()
	}
	for _, a := range b.procs.agents {
		if a.proxy != nil {
			behind = append(behind, network.Target{To: a.proxy.Address()})
		}
	}
	behind = append(behind, b.procs.pods.targets()...)
	at, err := b.hosts.Machines.Reach(scenarios.API, behind...)
	if err != nil {
		return err
	}
	proxies := make(map[string]netip.AddrPort)
	for i := range behind {
		proxies[behind[i].To] = at[i]
	}
	planned := b.plan.Spec.Topology.Hosts
	for i := range planned {
		b.hosts.Names = append(b.hosts.Names, planned[i].Name)
	}
	b.hosts.ByName = make(map[string]hosts.Machine)
	for i := range planned {
		peers := slices.DeleteFunc(slices.Clone(b.hosts.Names), func(name string) bool { return name == planned[i].Name })
		programs, err := b.programs(&planned[i], proxies)
		if err != nil {
			return err
		}
		kubelet := b.kubelet(&planned[i], at[0])
		b.procs.pods.tell(kubelet, proxies)
		m, err := b.hosts.Machines.Add(&planned[i], peers, kubelet, programs)
		if err != nil {
			return err
		}
		b.hosts.ByName[planned[i].Name] = m
		for _, a := range b.procs.agents {
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
	if err := b.hosts.BMCs.Serve(b.clock, b.hosts.Names, b.hosts.ByName); err != nil {
		return err
	}
	return objects.Restore(&b.plan.Spec.Topology, b.hosts.BMCs.ByName)
}

func (b *Backend) switchOn() error {
	chosen, err := b.controllers()
	if err != nil {
		return err
	}
	b.record.Await(b.plan, chosen)
	b.tasks.Go(func() { b.record.AwaitGroundwork(b.ctx, b.plane.admin, chosen) })
	if b.plan.Spec.Topology.Workload.Host != "" && b.runs(cluster.StatefulSet) {
		b.tasks.Go(b.createWorkload)
	}
	return b.hosts.SwitchOn(b.ctx)
}

// Spent implements play.Spender.
func (b *Backend) Spent() []play.Spent { return b.account.Spent() }

// Deeds returns the deeds of the controllers in the story, in order. It includes deliveries if a
// plan or an option asks for them.
func (b *Backend) Deeds() []scenarios.Deed {
	b.procs.schedule.mu.Lock()
	defer b.procs.schedule.mu.Unlock()
	return slices.Clone(b.procs.schedule.deeds)
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
	// a lab that isn't kept has no reader for them, and an API server that hangs would delay its
	// end
	if !b.options.Kept {
		artifacts = b.dump()
	}
	b.cancel()
	var errs []error
	for _, p := range b.procs.processes {
		p.stop()
	}
	logs, err := b.ironic.close(b.ctx)
	artifacts, errs = append(artifacts, logs...), append(errs, err)
	said, err := b.hosts.Close()
	artifacts, errs = append(artifacts, said...), append(errs, err)
	b.account.Update() // before the control plane ends
	errs = append(errs, b.closeAgents())
	if b.plane.kubelets != nil {
		errs = append(errs, b.plane.door.Close(b.plane.kubelets))
	}
	if b.plane.controlPlane != nil {
		errs = append(errs, b.plane.Stop())
	}
	if b.plane.wire != nil {
		errs = append(errs, b.plane.wire.Close())
	}
	if b.driver != nil {
		b.driver.Stop()
	}
	b.tasks.Wait()
	if b.record != nil {
		b.record.Wait()
		artifacts = append(artifacts, b.record.Trace.Artifact())
	}
	if b.procs.runner != nil {
		artifacts = append(artifacts, b.procs.runner.Logs()...)
	}
	for _, r := range b.procs.programs {
		artifacts = append(artifacts, r.Logs()...)
	}
	if b.keeper != nil {
		errs = append(errs, b.keeper.Close())
	}
	errs = append(errs, b.images.close())
	b.turn.Release()
	return artifacts, errors.Join(errs...)
}
