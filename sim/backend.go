package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim/kube"
	"github.com/fencelab/fencelab/sim/model"
	"github.com/fencelab/fencelab/sim/steps"
)

// Simulator holds the state that the simulated worlds of one goroutine share.
type Simulator struct {
	set      *controllers.Set
	objects  objects.Kinds
	server   *kube.Server
	kinds    kinds
	threads  threads
	prepared prepared
	claims   []invariant.Invariant
}

// prepared is the common beginning of all schedules of a plan, made once: the topology in the API,
// and the controllers' settings.
type prepared struct {
	// hosts identifies the plan's family: plans made of one another by With share everything
	// except their deviations.
	hosts       *scenarios.Host
	store       *kube.Store
	controllers []controllers.Selection
	bends       objects.Bends
}

func (s *Simulator) prepare(plan *scenarios.Plan) (*prepared, error) {
	spec := &plan.Spec
	if len(spec.Topology.Hosts) == 0 {
		return nil, errors.New("the topology has no hosts")
	}
	if s.prepared.hosts == &spec.Topology.Hosts[0] {
		return &s.prepared, nil
	}
	if reasons := Capabilities.Refuse(plan, objects.Needs); len(reasons) > 0 {
		return nil, &play.Unsupported{Backend: Capabilities.Title, Reasons: reasons}
	}
	chosen, err := objects.Controllers(s.set, spec)
	if err != nil {
		return nil, err
	}
	store := kube.NewStore(s.server, func() time.Time { return epoch }, nil)
	for _, obj := range topology(spec) {
		if err := create(store, byScenario, obj); err != nil {
			return nil, err
		}
	}
	s.prepared = prepared{hosts: &spec.Topology.Hosts[0], store: store, controllers: chosen, bends: objects.BendsOf(spec)}
	return &s.prepared, nil
}

// selection returns the plan's controller of that name.
func (p *prepared) selection(name string) controllers.Selection {
	i := slices.IndexFunc(p.controllers, func(c controllers.Selection) bool { return c.Name == name })
	return p.controllers[i]
}

// systemUUID returns the UUID of a host's system, for which its name serves.
func systemUUID(host string) string { return host }

func topology(spec *scenarios.Spec) []client.Object {
	return objects.Topology(spec, func(host string) api.BMCDetails {
		return api.BMCDetails{Address: "redfish+http://" + host + fakebmc.SystemsPath + "/" + host}
	}, systemUUID)
}

// kinds holds the kinds that the world itself works with, and the table of all kinds.
type kinds struct {
	node, pod, lease, budget, attachment, host *kube.Kind
	table                                      map[*kube.Kind]*objects.Kind
}

// New returns a simulator with fencelab's own controllers.
func New() (*Simulator, error) { return With(controllers.Default()) }

// Controllers returns the controllers that it knows.
func (s *Simulator) Controllers() *controllers.Set { return s.set }

// With returns a simulator with a set of controllers. It compiles their kinds.
func With(set *controllers.Set) (*Simulator, error) {
	s := &Simulator{set: set, objects: objects.KindsOf(set), kinds: kinds{table: make(map[*kube.Kind]*objects.Kind)}}
	var builtin []schema.GroupVersionKind
	var custom []kube.CustomResource
	for _, k := range s.objects {
		if k.Definition == nil {
			builtin = append(builtin, k.GVK)
		} else {
			custom = append(custom, kube.Defined(k.Definition))
		}
	}
	var err error
	if s.server, err = kube.NewServer(set.Scheme(), builtin, custom, set.Schemes()...); err != nil {
		return nil, fmt.Errorf("build the simulated API server: %w", err)
	}
	for _, k := range s.objects {
		served, err := s.server.KindOf(k.New())
		if err != nil {
			return nil, err
		}
		s.kinds.table[served] = k
	}
	for _, own := range [...]struct {
		kind **kube.Kind
		obj  client.Object
	}{{&s.kinds.node, &corev1.Node{}}, {&s.kinds.pod, &corev1.Pod{}}, {&s.kinds.lease, &coordinationv1.Lease{}}, {&s.kinds.budget, &policyv1.PodDisruptionBudget{}}, {&s.kinds.attachment, &storagev1.VolumeAttachment{}}, {&s.kinds.host, &api.BareMetalHost{}}} {
		if *own.kind, err = s.server.KindOf(own.obj); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Claim has all that the simulator plays judged by a claim of its user's as well.
func (s *Simulator) Claim(inv invariant.Invariant) { s.claims = append(s.claims, inv) }

// Claims implements play.Claimer.
func (b *Backend) Claims() []invariant.Invariant { return b.sim.claims }

// Backend returns a world in which one plan can be played.
func (s *Simulator) Backend() *Backend { return &Backend{sim: s} }

// Evident returns a world in which a plan is played for a report: with [Backend.Evidence].
func (s *Simulator) Evident() play.Backend { return &Backend{sim: s, Evidence: true} }

// Backend is a simulated world. It implements play.Backend.
type Backend struct {
	sim *Simulator
	// Watch, if set before Start, sees every step of the story before it is scheduled, and may
	// change it. To replay a plan, leave it nil.
	Watch func(steps.Step) (scenarios.Deviation, bool)
	// Took, if set before Start, is called with every step of the story when it is taken.
	Took func(step steps.Name, at time.Duration)
	// Came, if set before Start, is called with all that comes of a step and might not have, as it
	// comes.
	Came func(of steps.Name, what steps.Outcome)
	// Queued, if set before Start, is called when a step puts a request to the loop of an actor
	// into its queue, where it no longer waits for its time.
	Queued func(by steps.Name, actor, request string)
	// Decided, if set before Start, is called with every decision of a controller.
	Decided func(Decision)
	// Evidence, if set before Start, makes Stop return the artifacts for a report. A search leaves
	// it unset, to save the effort.
	Evidence bool

	w *world
	// texts has the JSON of objects in the identity.
	texts  map[client.Object]string
	spec   *scenarios.Spec
	names  objects.Names
	fields objects.Fields
	store  *kube.Store
	api    *apiServer
	hosts  []*host
	// members are the hosts with a member of the API server's store.
	members   []*host
	bmcs      map[string]*fakebmc.BMC
	addresses *addresses
	faces     map[string]*redfish.Face
	deeds     map[string]string
	processes []*process
	storage   *storage
	faults    *objects.Faults
	requests  objects.Requests
	notes     []string
	// waiting holds the parts of the topology that must come up before the story can begin.
	waiting play.Awaited
}

// Decision records a controller's facts and the action it chose.
type Decision struct {
	Controller, Process string
	// Key names the object that was reconciled.
	Key string
	// Facts is a comparable struct of flags and words.
	Facts any
	// Action is the chosen action.
	Action string
	// Reads holds the readings that it rests on, of each object the last one.
	Reads []kube.Reading
}

// Start builds the topology. It refuses plans that need what the simulator doesn't have.
func (b *Backend) Start(_ context.Context, plan *scenarios.Plan) (invariant.Timings, error) {
	w := &world{watch: b.Watch, notice: b.noticed, assumed: steps.PremisesOf(&plan.Spec)}
	if b.Came != nil {
		w.came = func(what steps.Outcome) { b.Came(w.taking, what) }
	}
	if b.Queued != nil {
		w.queued = func(actor, request string) { b.Queued(w.taking, actor, request) }
	}
	if b.Took != nil {
		w.took = func(s *step) { b.Took(s.name, w.now) }
	}
	if b.Evidence {
		w.trace = new(objects.Trace)
	}
	if err := w.deviate(plan.Deviations); err != nil {
		return invariant.Timings{}, err
	}
	b.w, b.api = w, &apiServer{w: w}
	prepared, err := b.sim.prepare(plan)
	if err != nil {
		return invariant.Timings{}, err
	}
	b.store = prepared.store.Fork(wallClock{w: w}.Now, b.committed)
	b.bmcs, b.faces, b.addresses = make(map[string]*fakebmc.BMC), make(map[string]*redfish.Face), &addresses{make(map[string]string), make(map[string]string)}
	b.faults = objects.NewFaults(b.bmcs)

	spec := &plan.Spec
	b.spec, b.names = spec, objects.NamesOf(&spec.Topology, spec.HealthCheck)
	if b.fields, err = objects.FieldsOf(spec); err != nil {
		return invariant.Timings{}, err
	}
	w.leasesWatched = len(b.fields.Of(b.sim.kinds.table[b.sim.kinds.lease])) > 0
	for i := range spec.Topology.Hosts {
		b.addHost(&spec.Topology, &spec.Topology.Hosts[i])
	}
	b.addBMCs()
	b.addStorage()
	if err := objects.Restore(&spec.Topology, b.bmcs); err != nil {
		return invariant.Timings{}, err
	}
	for _, kind := range b.sim.server.Kinds() {
		for _, change := range b.store.Log(kind) {
			b.committed(change)
		}
	}
	for i, h := range b.hosts {
		if spec.Topology.Hosts[i].Off {
			w.emit(history.Event{Kind: history.PowerOff, Host: h.name, Actor: byScenario})
			continue
		}
		h.Wake(byScenario)
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
			b.candidate(b.process(history.Process(c.Name, n)), "fencelab-"+c.Name)
		}
	}
	b.waiting = play.Await(&spec.Topology)
	for _, p := range b.processes {
		if on := p.seat(); on != nil && on.Boot() == "" {
			continue // it starts with the first boot
		}
		// The first of several processes is the first to lead.
		if p.resident != nil {
			b.waiting[p.actor.name] = true
		} else {
			b.waiting[p.registration.Name] = true
		}
		if !p.registration.StartsAfterNodes {
			p.restart(startLatency)
		}
	}
	timings := objects.Timings(spec, prepared.controllers)
	if !slices.ContainsFunc(spec.Steps, func(s scenarios.Step) bool { return s.Do != nil && s.Do.SetClock != nil }) {
		timings.Epoch = epoch
	}
	timings.Quiet = objects.Quiet(spec, prepared.controllers)
	timings.Retry = retryMax
	return timings, nil
}

// Deeds implements play.Deeder.
func (b *Backend) Deeds() map[string]string { return b.deeds }

// EndSchedule implements scenarios.Scheduler.
func (b *Backend) EndSchedule() {
	b.w.story = false
	b.w.catchUp()
}

// deviate takes over a plan's deviations into the world.
func (w *world) deviate(deviations []scenarios.Deviation) error {
	w.byDeed = make(map[string]scenarios.Deviation)
	for _, d := range deviations {
		name, err := parseStepName(d.Step)
		if err != nil {
			return err
		}
		if w.deviations == nil {
			w.deviations = make(map[steps.Name]scenarios.Deviation)
		}
		if w.deviations[name] = d; d.Deed != "" {
			delete(w.deviations, name)
			w.byDeed[d.Deed] = d
		}
		if d.After != "" {
			if _, err := w.await(d); err != nil {
				return err
			}
		}
	}
	if w.trace != nil && len(deviations) > 0 || len(w.byDeed) > 0 || len(w.awaitedDeeds) > 0 {
		w.count, w.deeds = new(scenarios.DeedCount), make(map[string]string)
	}
	return nil
}

func parseStepName(text string) (steps.Name, error) {
	parts := strings.Split(text, "/")
	var n int
	if len(parts) == 3 {
		if _, err := fmt.Sscanf(parts[2], "%d", &n); err == nil && n > 0 && fmt.Sprint(n) == parts[2] {
			return steps.Name{Actor: parts[0], Class: steps.Class(parts[1]), N: n}, nil
		}
	}
	return steps.Name{}, fmt.Errorf("deviation of step %q: a step is ACTOR/CLASS/N, such as remediation/api/3", text)
}

func (b *Backend) addHost(topology *scenarios.Topology, config *scenarios.Host) {
	t := topology.Timings
	h := newHost(b.w, config.Name, model.Timings{
		Boot: time.Duration(t.Boot), SoftOff: time.Duration(t.SoftOff), HardOff: time.Duration(t.HardOff),
		Watchdog: time.Duration(config.Watchdog), Softdog: config.Softdog,
	})
	h.kubelet = &kubelet{
		w: b.w, actor: actor{name: config.Name + ".kubelet", place: steps.PlaceHost + config.Name}, host: h, node: config.Node(), store: b.store, api: b.api, kinds: &b.sim.kinds,
		labels: config.Labels, lease: time.Duration(topology.Lease), adopts: topology.PodGC > 0 || topology.Workload.Volume != nil,
	}
	b.hosts = append(b.hosts, h)
	if config.Role == scenarios.ControlPlane {
		b.members = append(b.members, h)
	}
}

// addBMCs gives every host its BMC. Each knows all hosts, so that a rule can mix up cables.
func (b *Backend) addBMCs() {
	systems := make(map[string]fakebmc.System, len(b.hosts))
	for _, h := range b.hosts {
		systems[h.name] = h
	}
	peers, bends := fakebmc.Peers(systems), b.sim.prepared.bends
	for _, h := range b.hosts {
		requested := fakebmc.OnRequest(func(r fakebmc.Record) {
			if b.Evidence {
				b.requests.Add(r)
			}
			for _, e := range bends.Events(h.name, r.Request.Client, r) {
				b.w.emit(e)
			}
		})
		received := fakebmc.OnReset(func(client string, t fakebmc.ResetType) {
			key := ""
			if b.w.overdue {
				key = history.Late
			}
			b.w.emit(history.Event{Kind: history.BMCCommand, Host: h.name, Actor: client, Key: key, Value: string(t)})
		})
		b.addresses.hosts[h.name] = h.name
		b.bmcs[h.name] = fakebmc.New(h.name, h, clock{b.w, &actor{name: h.name + ".bmc", place: steps.PlaceBMC + h.name}, h.name}, peers, requested, received)
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

// addControllers makes a process of each controller of the plan, and of each stand-in.
func (b *Backend) addControllers(chosen []controllers.Selection) error {
	for _, c := range chosen {
		if c.Place == controllers.EveryHost {
			b.addAgents(c)
			continue
		}
		if _, err := b.addProcess(c, 1); err != nil {
			return err
		}
	}
	return nil
}

// addProcess makes the n-th process of a controller.
func (b *Backend) addProcess(c controllers.Selection, n int) (*process, error) {
	name := history.Process(c.Name, n)
	p := b.newProcess(c, name, steps.PlaceProcess+name, scenarios.ControllerEnd(name))
	if listed := b.spec.Controller(c.Name); listed != nil && listed.Place(n) != "" {
		p.on = b.host(listed.Place(n))
		p.on.guests, p.uplink.host = append(p.on.guests, p), p.on.at
	}
	p.deps.Clock, p.deps.Steady = wallClock{b.w, &p.offset}, wallClock{b.w, nil}
	p.deps.Decided = b.decided(c.Name, p, func() string { return p.flights.running.entry.request.String() })
	for i, l := range c.AllLoops() {
		if l.For != nil {
			l.Watches = append([]controllers.Watch{{Kind: l.For}}, l.Watches...)
		}
		for _, watch := range l.Watches {
			s, err := b.stream(p, watch.Kind)
			if err != nil {
				return nil, err
			}
			s.listeners = append(s.listeners, listener{p.loops[i], watch.Map})
		}
	}
	for _, cached := range c.Cached() {
		if _, err := b.stream(p, cached); err != nil {
			return nil, err
		}
	}
	if c.Setup != nil {
		b.w.managed = append(b.w.managed, p)
		b.w.leasesWatched = true // maybe: it says only later what it watches
	}
	b.processes = append(b.processes, p)
	return p, nil
}

// limiter returns the rate limit of a controller's process.
func (b *Backend) limiter(controller string) (l limiter) {
	if c := b.spec.Controller(controller); c != nil && c.RateLimit != nil {
		l.RateLimit = *c.RateLimit
	}
	return l
}

// decided returns a function that records and passes on a process's decisions. It is nil if
// neither Evidence nor Decided asks for them.
func (b *Backend) decided(controller string, p *process, key func() string) func(facts any, action string) {
	if b.Decided == nil && !b.Evidence {
		return nil
	}
	return func(facts any, action string) {
		b.w.trace.Decided(b.w.now, p.actor.name, key(), facts, action)
		if b.Decided != nil {
			b.Decided(Decision{controller, p.actor.name, key(), facts, action, p.flights.running.readings})
		}
	}
}

// warner returns a function that records the Warnings of a process.
func (b *Backend) warner(p *process) func(client.Object, string, string) {
	return func(obj client.Object, reason, message string) {
		b.w.emit(history.Event{Kind: history.ControllerWarning, Actor: p.actor.name, Object: obj.GetName(), Value: reason, Note: message})
	}
}

// stream returns a process's stream of a kind, and creates it at first use.
func (b *Backend) stream(p *process, obj client.Object) (*stream, error) {
	kind, err := b.sim.server.KindOf(obj)
	if err != nil {
		return nil, fmt.Errorf("controller %s: %w", p.actor.name, err)
	}
	c := &p.cache
	if i := slices.IndexFunc(c.streams, func(s *stream) bool { return s.kind == kind }); i >= 0 {
		return c.streams[i], nil
	}
	s := &stream{p: p, kind: kind, table: b.sim.kinds.table[kind], actor: actor{name: p.actor.name + "." + kind.String(), place: p.actor.place, whole: p.actor.whole}}
	c.kinds, c.streams = append(c.kinds, kind), append(c.streams, s)
	b.w.leasesWatched = b.w.leasesWatched || kind == b.sim.kinds.lease
	return s, nil
}

// committed handles every change in the API: it emits events and notifies the caches that watch
// the kind.
func (b *Backend) committed(c kube.Change) {
	if c.Kind == b.sim.kinds.node {
		b.w.comes(steps.NodeWritten)
	}
	if kind := b.sim.kinds.table[c.Kind]; !kind.Heartbeat || len(b.fields.Of(kind)) > 0 {
		b.changed(kind, c)
	}
	for _, p := range b.processes {
		p.cache.changed(c.Kind)
	}
}

// changed emits the events of a change, and notifies the kubelets that it concerns.
func (b *Backend) changed(kind *objects.Kind, c kube.Change) {
	if b.w.trace != nil && !kind.Heartbeat {
		b.w.trace.Changed(b.w.now, c.Actor, c.Kind.Kind+"/"+nameOf(c), meta(c.Old), meta(c.New))
	}
	if node, ok := c.New.(*corev1.Node); ok {
		b.names.Reported(node.Name, node.Status.NodeInfo.SystemUUID)
	}
	emit := func(e history.Event) {
		e.Actor = c.Actor
		if b.w.overdue && (e.Kind == history.PodTerminating || e.Kind == history.NodeCordoned) {
			e.Key = history.Late
		}
		objects.Date(&e, meta(c.New), epoch.Add(b.w.now))
		b.w.emit(e)
	}
	b.names.Changes(kind, c.Old, c.New, emit)
	b.fields.Changes(b.names, kind, meta(c.Old), meta(c.New), emit)
	if kind.Foreign && kind.Changes == nil && len(b.fields.Of(kind)) == 0 && slices.ContainsFunc(b.processes, func(p *process) bool { return p.actor.name == c.Actor && p.registration.Plays != "" }) {
		b.w.note(fmt.Sprintf("nothing here looks at %s: if it asks for a host to be fenced, marks or releases one, say so in spec.requests", kind.Name))
	}
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
	if c.Kind == b.sim.kinds.budget && c.Old == nil {
		for _, h := range b.hosts {
			h.kubelet.reportPods()
		}
	}
	if c.Kind == b.sim.kinds.node {
		for _, h := range b.hosts {
			if h.kubelet.node == nameOf(c) {
				h.kubelet.rouse() // it looks after its Node
			}
		}
	}
}

// meta returns an object's metadata, or nil without an object.
func meta(obj client.Object) metav1.Object {
	if obj == nil {
		return nil
	}
	return obj
}

// nameOf returns the name of the object that changed.
func nameOf(c kube.Change) string {
	if c.New != nil {
		return c.New.GetName()
	}
	return c.Old.GetName()
}

// noticed sees every event when it happens.
func (b *Backend) noticed(e history.Event) {
	if e.Kind == history.WatchdogFired {
		b.w.comes(steps.Fired)
	}
	if e.Kind.Layer() == history.World || e.Kind == history.LinkCut {
		b.countMembers(&e)
	}
	b.isUp(e)
}

// isUp notes which part of the topology has come up. It begins the story once the hosts, the
// controllers with their caches, and the workload are all up.
func (b *Backend) isUp(e history.Event) {
	if len(b.waiting) == 0 || !b.waiting.Saw(&e) {
		return
	}
	if len(b.waiting) == 0 {
		b.w.story = true
		b.w.emit(history.Event{Kind: history.RunStarted})
		return
	}
	for what := range b.waiting { // order does not matter: asking for any
		if p := b.process(what); what != play.AwaitedWorkload && (p == nil || !p.registration.StartsAfterNodes) {
			return
		}
	}
	for _, p := range b.processes {
		if p.registration.StartsAfterNodes && p.life == 0 && p.nextStart == nil {
			p.restart(startLatency)
		}
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

// Advance takes steps until the given time. If the API server had to refuse a request because it
// doesn't model the answer, the run ends, even when a controller swallowed the error.
func (b *Backend) Advance(until time.Duration, each func(history.Event) bool) (time.Duration, error) {
	now, err := b.w.advance(until, each)
	if refusal := b.store.Refusal(); err == nil && refusal != nil {
		err = refusal
	}
	return now, err
}

// Notes implements play.Noter.
func (b *Backend) Notes() []string { return b.notes }

// Stop forgets the world. With Evidence it returns the BMCs' log, the objects of the API and the
// trace.
func (b *Backend) Stop() ([]play.Artifact, error) {
	if b.w == nil {
		return nil, nil
	}
	for _, p := range b.processes {
		p.die()
	}
	if b.w.bubble != nil {
		b.w.bubble.Close()
	}
	trace := b.w.trace
	b.notes, b.deeds = b.w.notes, b.w.deeds
	b.w, b.processes = nil, nil
	if !b.Evidence || b.store == nil { // or it refused to start
		return nil, nil
	}
	for _, h := range b.hosts {
		for _, r := range b.bmcs[h.name].Pending() {
			b.requests.Add(r)
		}
	}
	api, err := b.dump()
	return []play.Artifact{api, b.requests.Artifact(), trace.Artifact()}, err
}

// dump returns the last state of the API, for the report's directory.
func (b *Backend) dump() (play.Artifact, error) {
	return b.sim.objects.Dump(func(kind *objects.Kind) ([]client.Object, error) {
		served, err := b.sim.server.KindOf(kind.New())
		if err != nil {
			return nil, err
		}
		return b.store.List(served, ""), nil
	})
}
