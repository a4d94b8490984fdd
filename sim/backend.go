package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/sim/kube"
)

// Simulator holds what the simulated worlds of one goroutine share.
type Simulator struct {
	server   *kube.Server
	kinds    kinds
	threads  threads
	prepared prepared
}

// prepared is what all schedules of a plan begin with, so that it is made once:
// the topology in the API, and the controllers' settings.
type prepared struct {
	// hosts tells whether a plan is of the same family: plans that were made of
	// one another by With share everything but their deviations.
	hosts       *scenarios.Host
	store       *kube.Store
	controllers []controllers.Selection
}

func (s *Simulator) prepare(spec *scenarios.Spec) (*prepared, error) {
	if len(spec.Topology.Hosts) == 0 {
		return nil, errors.New("the topology has no hosts")
	}
	if s.prepared.hosts == &spec.Topology.Hosts[0] {
		return &s.prepared, nil
	}
	chosen, err := objects.Controllers(spec)
	if err != nil {
		return nil, err
	}
	store := kube.NewStore(s.server, func() time.Time { return epoch }, nil)
	for _, obj := range topology(spec) {
		if err := create(store, byScenario, obj); err != nil {
			return nil, err
		}
	}
	s.prepared = prepared{hosts: &spec.Topology.Hosts[0], store: store, controllers: chosen}
	return &s.prepared, nil
}

// selection is the controller of a name, which the plan has.
func (p *prepared) selection(name string) controllers.Selection {
	i := slices.IndexFunc(p.controllers, func(c controllers.Selection) bool { return c.Name == name })
	return p.controllers[i]
}

func topology(spec *scenarios.Spec) []client.Object {
	return objects.Topology(spec, func(host string) api.BMCDetails { return api.BMCDetails{Address: "sim://" + host} })
}

// kinds are the kinds that the world itself deals with.
type kinds struct {
	node, pod, lease, host, machine *kube.Kind
}

// New compiles the simulated API server's kinds.
func New() (*Simulator, error) {
	builtin := []schema.GroupVersionKind{
		{Version: "v1", Kind: "Node"}, {Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "Secret"},
		{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
	}
	custom := []kube.CustomResource{
		{GroupVersionKind: api.GroupVersion.WithKind("BareMetalHost"), Plural: "baremetalhosts", Status: true},
		{GroupVersionKind: clusterv1.GroupVersion.WithKind("Machine"), Plural: "machines", Status: true},
		{GroupVersionKind: clusterv1.GroupVersion.WithKind("MachineHealthCheck"), Plural: "machinehealthchecks", Status: true},
	}
	server, err := kube.NewServer(api.NewScheme(), builtin, custom)
	if err != nil {
		return nil, fmt.Errorf("build the simulated API server: %w", err)
	}
	s := &Simulator{server: server}
	for _, k := range server.Kinds() {
		switch k.Kind {
		case "Node":
			s.kinds.node = k
		case "Pod":
			s.kinds.pod = k
		case "Lease":
			s.kinds.lease = k
		case "BareMetalHost":
			s.kinds.host = k
		case "Machine":
			s.kinds.machine = k
		}
	}
	return s, nil
}

// Backend returns a world in which one plan can be played.
func (s *Simulator) Backend() *Backend { return &Backend{sim: s} }

// Backend is a simulated world. It implements scenarios.Backend.
type Backend struct {
	sim *Simulator
	// Watch, if set before Start, is shown every step of the story before it is
	// scheduled, and may change it. Replay from a plan needs none.
	Watch func(Step) (scenarios.Deviation, bool)
	// Evidence, if set before Start, lets Stop return what is for a report beside
	// the history: a search has no use for it and is spared the effort.
	Evidence bool

	w         *world
	spec      *scenarios.Spec
	nodes     objects.Nodes
	store     *kube.Store
	api       *apiServer
	hosts     []*host
	bmcs      map[string]*fakebmc.BMC
	processes []*process
	faults    *objects.Faults
	requests  objects.Requests
	// waiting is what the topology lacks before the story can begin.
	waiting map[string]bool
}

// Start builds the topology. It refuses plans for things that the simulator
// doesn't have.
func (b *Backend) Start(_ context.Context, plan *scenarios.Plan) (invariant.Timings, error) {
	if reasons := unsupported(plan); len(reasons) > 0 {
		return invariant.Timings{}, &scenarios.Unsupported{Backend: "simulator", Reasons: reasons}
	}
	w := &world{watch: b.Watch, notice: b.isUp}
	if err := w.deviate(plan.Deviations); err != nil {
		return invariant.Timings{}, err
	}
	b.w, b.api = w, &apiServer{w: w}
	prepared, err := b.sim.prepare(&plan.Spec)
	if err != nil {
		return invariant.Timings{}, err
	}
	b.store = prepared.store.Fork(wallClock{w: w}.Now, b.committed)
	b.bmcs, b.waiting = make(map[string]*fakebmc.BMC), make(map[string]bool)
	b.faults = objects.NewFaults(b.bmcs)

	spec := &plan.Spec
	b.spec, b.nodes = spec, objects.NodesOf(&spec.Topology)
	for i := range spec.Topology.Hosts {
		b.addHost(&spec.Topology, &spec.Topology.Hosts[i])
	}
	b.addBMCs()
	for _, kind := range b.sim.server.Kinds() {
		for _, change := range b.store.Log(kind) {
			b.committed(change)
		}
	}
	for _, h := range b.hosts {
		h.on = true
		h.begin(history.PowerOn, byScenario)
		w.cancel(h.transition)
		h.complete()
	}
	if err := b.addControllers(prepared.controllers); err != nil {
		return invariant.Timings{}, err
	}
	for _, c := range spec.Controllers {
		for n := 2; n <= c.Replicas; n++ {
			if _, err := b.addProcess(prepared.selection(c.Name), n); err != nil {
				return invariant.Timings{}, err
			}
		}
		for n := 1; c.Replicas > 1 && n <= c.Replicas; n++ {
			b.process(scenarios.Process(c.Name, n)).election = &election{lease: "fencelab-" + c.Name}
		}
	}
	for _, p := range b.processes {
		// Of several processes the first is the first to lead.
		b.waiting[p.registration.Name] = true
		if p.actor.name != objects.WorkloadController {
			p.restart(startLatency)
		}
	}
	timings := objects.Timings(spec, prepared.controllers)
	timings.Quiet = objects.Quiet(spec, prepared.controllers)
	return timings, nil
}

// unsupported says what of a plan means nothing where controllers call a BMC
// directly.
func unsupported(plan *scenarios.Plan) []string {
	var reasons []string
	for i, step := range plan.Spec.Steps {
		if step.Do == nil || step.Do.AddFault == nil {
			continue
		}
		var rule fakebmc.Rule
		if err := json.Unmarshal(step.Do.AddFault.Rule, &rule); err != nil {
			continue // Apply says so
		}
		if what := rule.WireOnly(); what != "" {
			reasons = append(reasons, fmt.Sprintf("step %d: fault %s: %s shows on the wire only, and there is none here", i+1, step.Do.AddFault.Name, what))
		}
	}
	return reasons
}

// deviate takes over a plan's deviations.
func (w *world) deviate(deviations []scenarios.Deviation) error {
	for _, d := range deviations {
		name, err := parseStepName(d.Step)
		if err != nil {
			return err
		}
		if w.deviations == nil {
			w.deviations = make(map[stepName]scenarios.Deviation)
		}
		w.deviations[name] = d
	}
	return nil
}

func parseStepName(text string) (stepName, error) {
	parts := strings.Split(text, "/")
	var n int
	if len(parts) == 3 {
		if _, err := fmt.Sscanf(parts[2], "%d", &n); err == nil && n > 0 && fmt.Sprint(n) == parts[2] {
			return stepName{parts[0], Class(parts[1]), n}, nil
		}
	}
	return stepName{}, fmt.Errorf("deviation of step %q: a step is ACTOR/CLASS/N, such as remediation/api/3", text)
}

func (b *Backend) addHost(topology *scenarios.Topology, config *scenarios.Host) {
	t := topology.Timings
	h := &host{w: b.w, actor: actor{name: config.Name}, name: config.Name, timings: hostTimings{
		boot: time.Duration(t.Boot), softOff: time.Duration(t.SoftOff), hardOff: time.Duration(t.HardOff), watchdog: time.Duration(config.Watchdog),
	}}
	h.kubelet = &kubelet{
		w: b.w, actor: actor{name: config.Name + ".kubelet"}, host: h, node: config.Node(), store: b.store, api: b.api, kinds: &b.sim.kinds,
		labels: config.Labels, lease: time.Duration(topology.Lease), adopts: topology.PodGC > 0,
	}
	b.hosts = append(b.hosts, h)
	b.waiting["Node/"+config.Node()] = true
	if topology.Workload.Host == config.Name {
		b.waiting[runningWorkload] = true
	}
}

// addBMCs gives every host its BMC. Each knows all the hosts, as cables that are
// mixed up would have it.
func (b *Backend) addBMCs() {
	systems := make(map[string]fakebmc.System, len(b.hosts))
	for _, h := range b.hosts {
		systems[h.name] = h
	}
	peers := fakebmc.Peers(systems)
	for _, h := range b.hosts {
		requested := fakebmc.OnRequest(func(r fakebmc.Record) {
			if b.Evidence {
				b.requests.Add(r)
			}
			for _, fault := range objects.Bent(r.Rules) {
				b.w.emit(history.Event{Kind: history.BMCFault, Host: h.name, Actor: r.Request.Client, Value: fault, Note: string(r.Request.ResetType)})
			}
		})
		received := fakebmc.OnReset(func(client string, t fakebmc.ResetType) {
			key := ""
			if b.w.overdue {
				key = history.Late
			}
			b.w.emit(history.Event{Kind: history.BMCCommand, Host: h.name, Actor: client, Key: key, Value: string(t)})
		})
		b.bmcs[h.name] = fakebmc.New(h.name, h, clock{b.w, &actor{name: h.name + ".bmc"}}, peers, requested, received)
	}
}

// create stores an object with its status.
func create(store *kube.Store, actor string, obj client.Object) error {
	created, err := store.Create(actor, obj)
	if err == nil {
		if kind, _ := store.Server().KindOf(obj); kind.Status {
			obj.SetResourceVersion(created.GetResourceVersion())
			_, err = store.UpdateStatus(actor, obj)
		}
	}
	if err != nil {
		return fmt.Errorf("create the topology's %T %s: %w", obj, obj.GetName(), err)
	}
	return nil
}

// addControllers makes a process of each controller of the plan and of each
// stand-in.
func (b *Backend) addControllers(chosen []controllers.Selection) error {
	for _, c := range chosen {
		if _, err := b.addProcess(c, 1); err != nil {
			return err
		}
	}
	return nil
}

// addProcess makes the n-th process of a controller.
func (b *Backend) addProcess(c controllers.Selection, n int) (*process, error) {
	p := &process{
		w: b.w, actor: actor{name: scenarios.Process(c.Name, n)}, store: b.store, api: b.api, registration: c.Registration, bmcs: b.bmcs,
		threads: &b.sim.threads, leases: b.sim.kinds.lease,
		deps: controllers.Deps{Settings: c.Settings, Overlay: c.Overlay},
	}
	p.deps.Clock = wallClock{b.w, &p.offset}
	p.deps.Warn = func(obj client.Object, reason, message string) {
		b.w.emit(history.Event{Kind: history.ControllerWarning, Actor: p.actor.name, Object: obj.GetName(), Value: reason, Note: message})
	}
	if err := b.watch(p, c.For, nil); err != nil {
		return nil, err
	}
	for _, watch := range c.Watches {
		if err := b.watch(p, watch.Kind, watch.Map); err != nil {
			return nil, err
		}
	}
	b.processes = append(b.processes, p)
	return p, nil
}

// watch gives a process a stream for a kind, or adds a mapping to the one it has.
func (b *Backend) watch(p *process, obj client.Object, mapping mapFunc) error {
	kind, err := b.sim.server.KindOf(obj)
	if err != nil {
		return fmt.Errorf("controller %s: %w", p.actor.name, err)
	}
	i := slices.IndexFunc(p.streams, func(s *stream) bool { return s.kind == kind })
	if i < 0 {
		i = len(p.streams)
		p.kinds = append(p.kinds, kind)
		p.streams = append(p.streams, &stream{p: p, kind: kind, actor: actor{name: p.actor.name + "." + kind.Kind}})
	}
	if mapping == nil {
		p.streams[i].reconciled = true
	} else {
		p.streams[i].mappings = append(p.streams[i].mappings, mapping)
	}
	return nil
}

// committed is told of every change in the API: it makes events of it and tells
// those who watch.
func (b *Backend) committed(c kube.Change) {
	b.nodes.Changes(c.Old, c.New, func(e history.Event) {
		e.Actor = c.Actor
		b.w.emit(e)
	})
	if c.Kind == b.sim.kinds.pod {
		for _, obj := range [...]client.Object{c.Old, c.New} {
			if pod, ok := obj.(*corev1.Pod); ok {
				for _, h := range b.hosts {
					if h.kubelet.node == pod.Spec.NodeName {
						h.kubelet.podChanged()
					}
				}
			}
		}
	}
	if c.Kind == b.sim.kinds.node {
		for _, h := range b.hosts {
			if h.kubelet.node == nameOf(c) {
				h.kubelet.rouse() // it looks after its Node
			}
		}
	}
	for _, p := range b.processes {
		p.changed(c.Kind)
	}
}

// nameOf is the name of the object that changed.
func nameOf(c kube.Change) string {
	if c.New != nil {
		return c.New.GetName()
	}
	return c.Old.GetName()
}

// runningWorkload is what a topology with a workload waits for last.
const runningWorkload = "workload process"

// isUp notes what of the topology has come up, and begins the story once all of
// it has: the hosts, the controllers with their caches, and the workload.
func (b *Backend) isUp(e history.Event) {
	if len(b.waiting) == 0 {
		return
	}
	switch e.Kind {
	case history.NodeReady:
		delete(b.waiting, e.Object)
	case history.ControllerStarted:
		delete(b.waiting, e.Actor)
	case history.WorkloadStarted:
		delete(b.waiting, runningWorkload)
	}
	if len(b.waiting) == 0 {
		b.w.story = true
		b.w.emit(history.Event{Kind: history.RunStarted})
		return
	}
	if !b.waiting[objects.WorkloadController] {
		return
	}
	for what := range b.waiting { // order does not matter: asking for any
		if what != objects.WorkloadController && what != runningWorkload {
			return
		}
	}
	// Only now the workload can be put where the scenario wants it.
	if p := b.process(objects.WorkloadController); p.life == 0 && !p.starting {
		p.starting = true
		p.restart(startLatency)
	}
}

func (b *Backend) host(name string) *host {
	for _, h := range b.hosts {
		if h.name == name {
			return h
		}
	}
	return nil
}

func (b *Backend) process(name string) *process {
	for _, p := range b.processes {
		if p.actor.name == name {
			return p
		}
	}
	return nil
}

// Advance takes steps until the given time. A request that the API server refused
// because it doesn't model the answer ends the run, also when a controller
// swallowed the error.
func (b *Backend) Advance(until time.Duration, each func(history.Event) bool) (time.Duration, error) {
	now, err := b.w.advance(until, each)
	if refusal := b.store.Refusal(); err == nil && refusal != nil {
		err = refusal
	}
	return now, err
}

// Apply performs one operation at the present time.
func (b *Backend) Apply(op scenarios.Op) error {
	onHost := func(h *scenarios.HostOp, do func(*host)) error {
		host := b.host(h.Host)
		if host == nil {
			return fmt.Errorf("the topology has no host %q", h.Host)
		}
		do(host)
		return nil
	}
	switch {
	case op.Cut != nil:
		return onHost(op.Cut, b.cut)
	case op.Restore != nil:
		return onHost(op.Restore, b.restore)
	case op.StopKubelet != nil:
		return onHost(op.StopKubelet, func(h *host) { h.kubelet.stop() })
	case op.StopFeeding != nil:
		return onHost(op.StopFeeding, (*host).stopFeeding)
	case op.IgnoreShutdown != nil:
		return onHost(op.IgnoreShutdown, func(h *host) { h.ignoresShutdown = true })
	case op.Pause != nil:
		return onHost(op.Pause, (*host).pause)
	case op.Resume != nil:
		return onHost(op.Resume, (*host).resume)
	case op.PowerLoss != nil:
		return onHost(op.PowerLoss, func(h *host) { h.losePower(byScenario) })
	case op.PowerUp != nil:
		return onHost(op.PowerUp, func(h *host) { h.powerOn(byScenario) })
	case op.AddFault != nil:
		return b.faults.Add(op.AddFault)
	case op.RemoveFault != nil:
		return b.faults.Remove(op.RemoveFault.Name)
	case op.Crash != nil:
		return b.crash(op.Crash)
	case op.StartSecond != nil:
		return b.startSecond(op.StartSecond.Controller)
	case op.StopSecond != nil:
		return b.onProcess(scenarios.Process(op.StopSecond.Controller, 2), (*process).end)
	case op.PauseController != nil:
		return b.onProcess(op.PauseController.Controller, (*process).pause)
	case op.ResumeController != nil:
		return b.onProcess(op.ResumeController.Controller, (*process).resume)
	case op.SetClock != nil && op.SetClock.Host != "":
		return onHost(&scenarios.HostOp{Host: op.SetClock.Host}, func(h *host) { h.kubelet.offset = op.SetClock.Offset() })
	case op.SetClock != nil:
		return b.onProcess(op.SetClock.Controller, func(p *process) { p.offset = op.SetClock.Offset() })
	case op.FreezeCache != nil:
		return b.onStream(op.FreezeCache, func(s *stream) { s.frozen = true })
	case op.ThawCache != nil:
		return b.onStream(op.ThawCache, (*stream).thaw)
	case op.Annotate != nil:
		return b.annotate(op.Annotate.Object, op.Annotate.Key, &op.Annotate.Value)
	case op.RemoveAnnotation != nil:
		return b.annotate(op.RemoveAnnotation.Object, op.RemoveAnnotation.Key, nil)
	case op.SetOnline != nil:
		return b.setOnline(op.SetOnline)
	case op.FailAPI != nil:
		b.api.fail(op.FailAPI)
		return nil
	case op.APIOutage != nil:
		for _, h := range b.hosts {
			h.kubelet.rouse()
		}
		b.api.away, b.api.silent = true, op.APIOutage.Hang
		return nil
	case op.APIRestore != nil:
		b.restoreAPI()
		return nil
	case op.Patch != nil:
		return b.patch(op.Patch)
	case op.Delete != nil:
		return b.delete(op.Delete.Object)
	case op.Create != nil:
		return b.create(op.Create.Object)
	case op.Heal != nil:
		return b.heal()
	}
	return errors.New("the operation is empty")
}

func (b *Backend) cut(h *host) {
	if !h.kubelet.cut {
		h.kubelet.rouse()
		h.kubelet.cut = true
		b.w.emit(history.Event{Kind: history.LinkCut, Host: h.name, Object: "api"})
	}
}

func (b *Backend) restore(h *host) {
	if h.kubelet.cut {
		b.w.emit(history.Event{Kind: history.LinkRestored, Host: h.name, Object: "api"})
		h.kubelet.cut = false
		h.kubelet.reconnect()
	}
}

// restoreAPI brings the API server back: watches and kubelets learn of what they
// missed.
func (b *Backend) restoreAPI() {
	b.api.failures = nil
	if !b.api.away {
		return
	}
	b.api.away = false
	for _, p := range b.processes {
		for _, s := range p.streams {
			s.catchUp()
		}
	}
	for _, h := range b.hosts {
		h.kubelet.reconnect()
	}
}

func (b *Backend) onProcess(name string, do func(*process)) error {
	p := b.process(name)
	if p == nil {
		return fmt.Errorf("the controller %q is not part of this run", name)
	}
	do(p)
	return nil
}

func (b *Backend) crash(c *scenarios.CrashOp) error {
	return b.onProcess(c.Controller, func(p *process) {
		if c.Effect == 0 && !c.Each {
			p.kill(deathOf(c, ""))
			return
		}
		p.crashAt, p.effects = c, 0
	})
}

// startSecond starts another process of a controller, or the one that was stopped
// before.
func (b *Backend) startSecond(controller string) error {
	name := scenarios.Process(controller, 2)
	p := b.process(name)
	if p == nil {
		i := slices.IndexFunc(b.sim.prepared.controllers, func(c controllers.Selection) bool { return c.Name == controller })
		if i < 0 {
			return fmt.Errorf("the controller %q is not part of this run", controller)
		}
		var err error
		if p, err = b.addProcess(b.sim.prepared.controllers[i], 2); err != nil {
			return err
		}
	}
	p.second = true
	p.restart(startLatency)
	return nil
}

func (b *Backend) onStream(c *scenarios.CacheOp, do func(*stream)) error {
	if p := b.process(c.Controller); p != nil {
		for _, s := range p.streams {
			if s.kind.Kind == c.Kind {
				do(s)
				return nil
			}
		}
	}
	return fmt.Errorf("the controller %q is not part of this run, or doesn't watch %s", c.Controller, c.Kind)
}

// user is who does what users do.
const user = "user"

// object finds an object that users change.
func (b *Backend) object(name string) (*kube.Kind, client.ObjectKey, error) {
	if b.api.away {
		return nil, client.ObjectKey{}, &scenarios.Ineffective{Reason: "the API server is away"}
	}
	obj, err := objects.New(name)
	if err != nil {
		return nil, client.ObjectKey{}, err
	}
	kind, err := b.sim.server.KindOf(obj)
	return kind, client.ObjectKeyFromObject(obj), err
}

// annotate sets or, with a nil value, removes an annotation.
func (b *Backend) annotate(object, key string, value *string) error {
	return b.change(object, func(obj client.Object) {
		annotations := obj.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		if value == nil {
			delete(annotations, key)
		} else {
			annotations[key] = *value
		}
		obj.SetAnnotations(annotations)
	})
}

func (b *Backend) setOnline(o *scenarios.OnlineOp) error {
	return b.change("BareMetalHost/"+o.Host, func(obj client.Object) { obj.(*api.BareMetalHost).Spec.Online = o.Online })
}

// change updates an object as a user would.
func (b *Backend) change(object string, change func(client.Object)) error {
	kind, key, err := b.object(object)
	if err != nil {
		return err
	}
	obj, err := b.store.Get(kind, key)
	if err != nil {
		return ineffective(err)
	}
	obj = obj.DeepCopyObject().(client.Object)
	change(obj)
	_, err = b.store.Update(user, obj)
	return err
}

func (b *Backend) patch(op *scenarios.PatchOp) error {
	kind, key, err := b.object(op.Object)
	if err != nil {
		return err
	}
	object, status, err := op.Split()
	if err == nil && object != nil {
		_, err = b.store.Patch(user, kind, key, false, types.MergePatchType, object)
	}
	if err == nil && status != nil {
		_, err = b.store.Patch(user, kind, key, true, types.MergePatchType, status)
	}
	return ineffective(err)
}

func (b *Backend) delete(object string) error {
	kind, key, err := b.object(object)
	if err != nil {
		return err
	}
	return client.IgnoreNotFound(b.store.Delete(user, kind, key, nil))
}

func (b *Backend) create(object string) error {
	kind, key, err := b.object(object)
	if err != nil {
		return err
	}
	for _, obj := range topology(b.spec) {
		if is, _ := b.sim.server.KindOf(obj); is == kind && client.ObjectKeyFromObject(obj) == key {
			if _, err := b.store.Get(kind, key); err == nil {
				return nil
			}
			return create(b.store, user, obj)
		}
	}
	return fmt.Errorf("the topology has no %s", object)
}

// ineffective marks the error of a user's request for an object that isn't there:
// in another schedule it may be.
func ineffective(err error) error {
	if apierrors.IsNotFound(err) {
		return &scenarios.Ineffective{Reason: err.Error()}
	}
	return err
}

// heal withdraws every fault, those of the schedule included: links, BMC rules, an
// API server that is away or fails, frozen caches, paused hosts and controllers,
// second processes, clocks that are wrong, dead kubelets, guests that ignore a
// shutdown, and controllers that are down or about to crash. What was late comes
// now. A watchdog that nobody feeds fires, as it should.
func (b *Backend) heal() error {
	b.w.story, b.w.healed = false, true
	b.w.catchUp()
	b.restoreAPI()
	for _, h := range b.hosts {
		b.restore(h)
		h.resume()
		h.kubelet.offset = 0
		h.kubelet.revive()
		h.ignoresShutdown = false
		b.bmcs[h.name].Heal()
	}
	b.faults = objects.NewFaults(b.bmcs)
	for _, p := range b.processes {
		p.crashAt, p.offset = nil, 0
		p.resume()
		switch {
		case p.second:
			p.end()
		case !p.up && !p.standby:
			p.restart(startLatency)
		}
		for _, s := range p.streams {
			s.due = b.w.now
			s.thaw()
		}
	}
	return nil
}

// Stop forgets the world. What it leaves beside the history is the log of the
// BMCs.
func (b *Backend) Stop() ([]scenarios.Artifact, error) {
	if b.w == nil {
		return nil, nil
	}
	for _, p := range b.processes {
		p.life++
		p.abandon()
	}
	b.w, b.processes = nil, nil
	if !b.Evidence {
		return nil, nil
	}
	for _, h := range b.hosts {
		for _, r := range b.bmcs[h.name].Pending() {
			b.requests.Add(r)
		}
	}
	return []scenarios.Artifact{b.requests.Artifact()}, nil
}
