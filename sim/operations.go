package sim

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
)

// Capabilities describes the limits of the simulator.
var Capabilities = scenarios.Capabilities{
	World: "sim", Title: "simulator",
	Lacks: map[scenarios.Feature]string{
		scenarios.FeatureIronic:                     "the simulator has no Ironic",
		scenarios.FeatureBMC:                        "the simulator has its own BMCs",
		"fillDisk":                                  "the simulator's hosts have no disks",
		"impair":                                    "a link of the simulator carries or doesn't; a search delays what passes it",
		"killIronic":                                "the simulator has no Ironic",
		"startIronic":                               "the simulator has no Ironic",
		scenarios.FeatureVolumes:                    "the simulator's Pods have no volumes",
		scenarios.FeatureOutOfService:               "nothing in the simulator acts on an out-of-service taint where the workload has no volume",
		scenarios.FeatureForeignFields:              "the simulator's objects have the fields of fencelab's definitions",
		scenarios.FeatureDeeds:                      "the simulator's plans name its steps",
		scenarios.FeaturePrograms:                   "a program runs in real time, not in the simulator's",
		scenarios.FeaturePods:                       "Pods run in real time, not in the simulator's",
		scenarios.Feature(fakebmc.NeedsWire):        "the simulator's controllers call BMCs directly, without HTTP",
		scenarios.FeatureIPMIClient:                 "no controller of the story speaks IPMI: give the one that plays power via: ipmi",
		scenarios.Feature(history.EvidenceLost):     "the simulator's observers see everything",
		scenarios.Feature(history.EvidenceRegained): "the simulator's observers see everything",
	},
}

// errLacking reports an operation that Capabilities should have refused before the run started.
var errLacking = errors.New("the simulator cannot do this, and should have refused the scenario")

// operations performs a scenario's operations on the world. It implements scenarios.World.
type operations struct {
	*Backend
	objects.Users
}

// Apply performs one operation at the present time.
func (b *Backend) Apply(op scenarios.Op) error {
	users := objects.UsersOf(requests{b}, b.sim.objects, func() []client.Object { return topology(b.spec) })
	return scenarios.Perform(op, operations{b, users})
}

func (b *Backend) onHost(name string, do func(*host)) error {
	h := b.host(name)
	if h == nil {
		return fmt.Errorf("the topology has no host %q", name)
	}
	do(h)
	return nil
}

func (o operations) StopKubelet(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(h *host) { h.kubelet.stop() })
}

func (o operations) StopFeeding(op *scenarios.HostOp) error {
	return o.onHost(op.Host, (*host).stopFeeding)
}

func (o operations) StopAgent(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(h *host) {
		if h.feeder != nil && h.feeder.up {
			h.feeder.resident.retire()
		}
	})
}

func (o operations) IgnoreShutdown(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(h *host) { h.IgnoreShutdown(true) })
}

func (o operations) Pause(op *scenarios.HostOp) error  { return o.onHost(op.Host, (*host).Pause) }
func (o operations) Resume(op *scenarios.HostOp) error { return o.onHost(op.Host, (*host).Resume) }

func (o operations) Hang(op *scenarios.HostOp) error  { return o.onHost(op.Host, (*host).Hang) }
func (o operations) Panic(op *scenarios.HostOp) error { return o.onHost(op.Host, (*host).Panic) }

// FillDisk fails: the simulator's hosts have no disks.
func (operations) FillDisk(*scenarios.HostOp) error { return errLacking }

func (o operations) PowerLoss(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(h *host) { h.LosePower(byScenario) })
}

func (o operations) PowerUp(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(h *host) { h.PowerOn(byScenario) })
}

// MoveBMC has a BMC answer at another address, in the place of any other there.
func (o operations) MoveBMC(op *scenarios.MoveOp) error {
	o.addresses.place(op.Host, op.Address())
	return nil
}

func (o operations) AddFault(op *scenarios.FaultOp) error      { return o.faults.Add(op) }
func (o operations) RemoveFault(op *scenarios.FaultName) error { return o.faults.Remove(op.Name) }

func (b *Backend) onProcess(name string, do func(*process)) error {
	p := b.process(name)
	if p == nil {
		return fmt.Errorf("the controller %q is not part of this run", name)
	}
	do(p)
	return nil
}

func (o operations) Crash(op *scenarios.CrashOp) error {
	return o.onProcess(op.Process(), func(p *process) {
		if !p.crash.Arm(op) {
			p.kill(deathOf(op, ""))
		}
	})
}

// StartSecond starts a second process of a controller, or restarts the one that was stopped.
func (o operations) StartSecond(op *scenarios.ControllerOp) error {
	p := o.process(history.Process(op.Controller, 2))
	if p == nil {
		i := slices.IndexFunc(o.sim.prepared.controllers, func(c controllers.Selection) bool { return c.Name == op.Controller })
		if i < 0 {
			return fmt.Errorf("the controller %q is not part of this run", op.Controller)
		}
		var err error
		if p, err = o.addProcess(o.sim.prepared.controllers[i], 2); err != nil {
			return err
		}
	}
	p.second = true
	p.restart(startLatency)
	return nil
}

func (o operations) StopSecond(op *scenarios.ControllerOp) error {
	return o.onProcess(history.Process(op.Controller, 2), (*process).end)
}

func (o operations) PauseController(op *scenarios.ControllerOp) error {
	return o.onProcess(op.Controller, (*process).pause)
}

func (o operations) ResumeController(op *scenarios.ControllerOp) error {
	return o.onProcess(op.Controller, (*process).resume)
}

func (o operations) SetClock(op *scenarios.ClockOp) error {
	if op.Host != "" {
		return o.onHost(op.Host, func(h *host) {
			h.kubelet.offset = op.Offset()
			h.clock.gain(o.w.now, op.Drift())
		})
	}
	if p := o.process(op.Controller); p != nil && p.registration.Setup != nil {
		return fmt.Errorf("set the clock of the controller %s: it reads Go's own clock, which the whole simulated world shares", op.Controller)
	}
	return o.onProcess(op.Controller, func(p *process) { p.offset = op.Offset() })
}

func (o operations) FreezeCache(op *scenarios.CacheOp) error {
	return o.onStream(op, func(s *stream) { s.frozen = true })
}

func (o operations) ThawCache(op *scenarios.CacheOp) error { return o.onStream(op, (*stream).thaw) }

func (o operations) ExpireWatch(op *scenarios.CacheOp) error {
	return o.onStream(op, (*stream).expire)
}

func (b *Backend) onStream(c *scenarios.CacheOp, do func(*stream)) error {
	if p := b.process(c.Controller); p != nil {
		for _, s := range p.cache.streams {
			if s.kind.Kind == c.Kind {
				do(s)
				return nil
			}
		}
	}
	return fmt.Errorf("the controller %q is not part of this run, or doesn't watch %s", c.Controller, c.Kind)
}

func (o operations) FailAPI(op *scenarios.FailAPIOp) error {
	o.api.fail(op)
	return nil
}

func (o operations) APIOutage(op *scenarios.OutageOp) error {
	for _, h := range o.hosts {
		h.kubelet.rouse()
	}
	o.api.away, o.api.silent = true, op.Hang
	return nil
}

func (o operations) EtcdOutage(*struct{}) error {
	for _, h := range o.hosts {
		h.kubelet.rouse()
	}
	o.api.storeless = true
	return nil
}

func (o operations) APIRestore(*struct{}) error {
	o.restoreAPI()
	return nil
}

// restoreAPI brings the API server back. Watches and kubelets catch up on what they missed.
func (b *Backend) restoreAPI() {
	b.api.failures = nil
	if b.api.takes() {
		return
	}
	b.api.away, b.api.storeless = false, false
	b.apiIsBack()
}

// apiIsBack has whoever missed something catch up, if the API server answers.
func (b *Backend) apiIsBack() {
	if !b.api.takes() {
		return
	}
	for _, p := range b.processes {
		for _, s := range p.cache.streams {
			s.catchUp()
		}
	}
	for _, h := range b.hosts {
		h.kubelet.reconnect()
	}
}

// requests carries out requests of users. It implements objects.API.
type requests struct{ *Backend }

func (r requests) Takes() bool { return r.api.takes() }

func (r requests) Names(of *objects.Kind, labelled map[string]string) (names []string, err error) {
	kind, err := r.sim.server.KindOf(of.New())
	if err != nil {
		return nil, err
	}
	namespace := ""
	if of.Namespaced {
		namespace = objects.Namespace
	}
	for _, obj := range r.store.List(kind, namespace) {
		if labels.SelectorFromSet(labelled).Matches(labels.Set(obj.GetLabels())) {
			names = append(names, obj.GetName())
		}
	}
	return names, nil
}

// Merge ignores whether a patch is strict: Capabilities refuses plans with strict patches.
func (r requests) Merge(by, _ string, obj client.Object, patch []byte, status, _ bool) error {
	kind, err := r.sim.server.KindOf(obj)
	if err == nil {
		_, err = r.store.Patch(by, kind, client.ObjectKeyFromObject(obj), status, types.MergePatchType, patch)
	}
	return err
}

func (r requests) Delete(by, _ string, obj client.Object) error {
	kind, err := r.sim.server.KindOf(obj)
	if err == nil {
		err = r.store.Delete(by, kind, client.ObjectKeyFromObject(obj), nil)
	}
	return err
}

func (r requests) Create(by string, of *objects.Kind, obj client.Object, status bool) error {
	kind, err := r.sim.server.KindOf(obj)
	if err != nil {
		return err
	}
	if _, err := r.store.Get(kind, client.ObjectKeyFromObject(obj)); err == nil {
		return nil
	}
	if status {
		return create(r.store, by, obj)
	}
	_, err = r.store.Create(by, obj)
	return err
}

// errNoIronic reports an operation that Capabilities should have refused before the run started.
var errNoIronic = errors.New("the simulator has no Ironic, and should have refused the scenario")

func (operations) KillIronic(*struct{}) error  { return errNoIronic }
func (operations) StartIronic(*struct{}) error { return errNoIronic }

// Heal withdraws the faults.
func (o operations) Heal(op *scenarios.HealOp) error { return op.Perform(&o.spec.Topology, healer{o}) }

// healer puts right what has failed. It implements scenarios.Healer.
type healer struct{ operations }

func (h healer) EndSchedule() {
	h.w.healed = true
	h.Backend.EndSchedule()
}

func (h healer) HealHost(name string) error {
	return h.onHost(name, func(host *host) {
		host.Resume()
		host.kubelet.offset = 0
		host.clock.gain(h.w.now, 0)
		host.kubelet.revive()
		host.IgnoreShutdown(false)
		host.kubelet.drops = false
	})
}

// HealBMC mends a BMC, and has one that has moved answer where its BareMetalHost says.
func (h healer) HealBMC(host string, but []string) {
	h.bmcs[host].Heal(but...)
	if h.addresses.hosts[host] == host {
		return
	}
	if obj, err := h.store.Get(h.sim.kinds.host, client.ObjectKey{Namespace: objects.Namespace, Name: host}); err == nil {
		h.addresses.place(host, h.addresses.of(obj.(*api.BareMetalHost)))
	}
}

func (h healer) Running() []scenarios.Running {
	all := make([]scenarios.Running, len(h.processes))
	for i, p := range h.processes {
		all[i] = running{p}
	}
	return all
}

// ThawCaches thaws the caches, and delivers at once what is on its way to them.
func (h healer) ThawCaches() {
	for _, p := range h.processes {
		for _, s := range p.cache.streams {
			s.last = nil
			s.thaw()
		}
	}
}

// running adapts a process for a heal. It implements scenarios.Running.
type running struct{ p *process }

func (r running) Plays(name string) bool { return r.p.actor.name == name }
func (r running) Second() bool           { return r.p.second }
func (r running) Mend()                  { r.p.crash, r.p.offset = scenarios.CrashPlan{}, 0 }

func (r running) End() error {
	r.p.end()
	return nil
}

// Revive restarts a process that is down. An agent waits for the next boot of its host.
func (r running) Revive() error {
	if !r.p.alive() && (r.p.seat() == nil || r.p.seat().Booted()) {
		r.p.restart(startLatency)
	}
	return nil
}

func (r running) Resume() error {
	r.p.resume()
	return nil
}
