package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/sim/kube"
	"github.com/fencelab/fencelab/sim/steps"
)

// How long the way between a controller and the world takes by default.
const (
	apiLatency   = 5 * time.Millisecond
	watchLatency = 10 * time.Millisecond
	workLatency  = time.Millisecond
	startLatency = 500 * time.Millisecond
	// restartLatency is the delay until a process starts again that found no API server.
	restartLatency = 2 * time.Second
	bmcLatency     = 20 * time.Millisecond
	// expiredLatency is the delay until a client lists again whose watch has expired.
	expiredLatency = time.Second
	// The rate limiter of a controller-runtime work queue, but of a controller with New.
	retryBase = controllers.RetryBase
	retryMax  = 1000 * time.Second
)

// process is one controller, or one agent on a host. It corresponds to the process in which
// controller-runtime's manager runs the same Registration in the lab. It can be killed at every
// call, and starts again with an empty memory.
type process struct {
	w *world
	// actor has the name of the controller, or that of its second, third, ... process.
	actor        actor
	registration controllers.Registration
	scheme       *runtime.Scheme
	// brought says that it is a user's, from a module.
	brought bool
	deps    controllers.Deps
	uplink  uplink
	cache   cache
	queue   queue
	flights flights
	still   stillness
	// resident is nil for a process in the cluster.
	resident *resident
	// on is the host that the story has put it on, nil for one beside the API server.
	on *host
	// election is nil where the process is alone.
	election *election
	// loops are the controllers of a process in the cluster. A process that sets itself up makes
	// them anew in each incarnation.
	loops []*loop
	// program runs in the present incarnation of a process in the cluster.
	program program
	crash   scenarios.CrashPlan
	// offset is how far its clock is ahead.
	offset time.Duration
	// second says that the scenario has started it beside another one.
	second bool

	// life numbers the incarnations, so that a step of a dead one does nothing.
	life int
	// parts belong to the present incarnation, and end with it.
	parts []part
	// up says that an incarnation runs, and not only as a candidate.
	up bool
	// nextStart is the step that starts the next incarnation.
	nextStart *step
	// stale is the age of the lists that the next incarnation starts from.
	stale time.Duration
}

// part is one thing that an incarnation has, and that ends with it. It may end more than once.
type part interface{ end() }

// program reacts to what an incarnation learns.
type program interface {
	// learn takes a change in the cache.
	learn(s *stream, change kube.Change, priority int)
	// begin starts the reconcile of a request.
	begin(f *flight)
}

// newProcess makes a process that has not started.
func (b *Backend) newProcess(c controllers.Selection, name, place, at string) *process {
	registered := objects.Registered(b.sim.set, c.Name)
	limiter := b.limiter(c.Name)
	brittle := slices.ContainsFunc(b.spec.Steps, func(s scenarios.Step) bool {
		return s.Do != nil && s.Do.Crash != nil && !s.Do.Crash.AtOnce() && s.Do.Crash.Process() == name
	})
	p := &process{
		w: b.w, actor: actor{name: name, place: place, alone: c.New != nil && c.Workers == 1, whole: c.Setup != nil || limiter.Every > 0, brittle: brittle, apart: c.Apart},
		registration: c.Registration, scheme: b.sim.set.SchemeOf(registered), brought: b.sim.set.Brought(registered),
		deps:   controllers.Deps{Settings: c.Settings, Overlay: c.Overlay},
		uplink: uplink{w: b.w, at: at, store: b.store, api: b.api, bmcs: b.bmcs, addresses: b.addresses, faces: b.faces, storage: b.storage, limiter: limiter},
	}
	if listed := b.spec.Controller(c.Name); listed != nil {
		p.uplink.via = listed.Via
	}
	p.cache = cache{p: p, names: b.names}
	p.queue = queue{p: p, entries: make(map[ticket]*entry)}
	p.flights = flights{p: p, threads: &b.sim.threads}
	p.deps.Warn = b.warner(p)
	for _, l := range c.AllLoops() {
		of := &p.actor
		if l.Name != "" {
			own := p.actor
			own.name, own.alone = name+"."+l.Name, l.Workers == 1
			of = &own
		}
		p.loops = append(p.loops, &loop{name: l.Name, starts: l.Starts, actor: of, workers: l.Workers})
	}
	return p
}

// seat is the host whose processors it runs on, nil for a process in the cluster.
func (p *process) seat() *host {
	if p.resident != nil {
		return p.resident.host
	}
	return p.on
}

// alive reports whether an incarnation runs, even if only as a candidate.
func (p *process) alive() bool { return p.up || p.election.stands() }

// begin begins an incarnation with its parts.
func (p *process) begin(parts ...part) {
	p.life++
	p.parts = append(append(p.parts[:0], &p.still), parts...)
	if p.election != nil {
		p.parts = append(p.parts, p.election)
	}
}

// die ends the incarnation with all its parts.
func (p *process) die() {
	p.life++
	p.up = false
	for _, part := range p.parts {
		part.end()
	}
	p.parts = p.parts[:0]
}

// start begins an incarnation in the cluster: with an empty memory, caches filled from the state
// of a while ago, mostly the present one, and every object of its kind to be looked at.
func (p *process) start(stale time.Duration) {
	p.begin(&p.uplink, &p.queue, &p.flights)
	p.up, p.stale = true, 0
	deps, err := p.cache.open(p.deps)
	if err != nil {
		p.w.fail(err)
		return
	}
	if p.registration.Setup != nil {
		p.manage(deps)
	} else {
		for i, l := range p.registration.AllLoops() {
			if p.loops[i].reconciler, err = l.New(deps); err != nil {
				p.w.fail(fmt.Errorf("start controller %s: %w", p.actor.name, err))
				return
			}
		}
		p.program = reconciling{p}
	}
	started := history.Event{Kind: history.ControllerStarted, Actor: p.actor.name}
	if stale > 0 {
		started.Note = fmt.Sprintf("from lists %s old", stale)
	}
	p.w.emit(started)
	p.w.trace.Forgot(p.w.now, p.actor.name)
	p.cache.fill(stale)
	for _, l := range p.loops {
		if l.starts {
			p.queue.enqueue(l, reconcile.Request{}, usual)
		}
	}
}

// death is the end of an incarnation, and the way to the next one.
type death struct {
	note     string
	downtime time.Duration
	// stale is the age of the lists that the next incarnation starts from.
	stale time.Duration
	// late is by how much what it has sent is executed later; 0 is never.
	late time.Duration
}

// crashDowntime is how long a process is down after a crash that no step of the
// scenario asked for.
const crashDowntime = 3 * time.Second

// deathOf is the death that a step of the scenario asks for; nil stands for a crash that
// none asked for.
func deathOf(c *scenarios.CrashOp, note string) death {
	if c == nil {
		return death{note: note, downtime: crashDowntime}
	}
	return death{note: note, downtime: time.Duration(c.RestartAfter), stale: time.Duration(c.StaleBy), late: time.Duration(c.LateBy)}
}

// kill ends the incarnation. What it had in flight has no further effect, but
// for requests that were sent and come late.
func (p *process) kill(d death) {
	if !p.alive() {
		if s := p.nextStart; s != nil && s.index >= 0 && s.at < p.w.now+d.downtime {
			p.w.cancel(s)
			p.restart(d.downtime) // it is down already, and for longer now
		}
		return
	}
	p.stop(d)
	if p.resident != nil && p.resident.leaving {
		p.life++ // it starts with the next boot
		return
	}
	p.restart(max(d.downtime, startLatency))
}

// end ends the process for good, also one that is down.
func (p *process) end() {
	if p.alive() {
		p.stop(death{note: "stopped"})
	}
	p.life++ // nor does it start again
}

// stop ends the incarnation, as a crash does.
func (p *process) stop(d death) {
	p.stale = d.stale
	p.crash.Died()
	p.w.emit(history.Event{Kind: history.ControllerCrashed, Actor: p.actor.name, Note: d.note, Hinders: scenarios.SentBefore(p.actor.name, d.late)})
	if d.late > 0 {
		p.flights.executeLate(d.late)
	}
	p.die()
}

// restart starts the next incarnation after a while.
func (p *process) restart(after time.Duration) {
	life := p.life
	p.nextStart = p.w.schedule(&p.actor, steps.ClassStart, steps.Deed{Verb: "start", On: steps.Object{Kind: "Process", Name: p.actor.name}}, after, func(t trouble) {
		switch {
		case p.alive() || p.life != life:
		case p.on != nil && (!p.on.Booted() || p.on.Halted()): // it starts with the next boot, or when the host goes on
			p.on.UnlessHalted(func() {
				if p.on.Booted() && p.life == life {
					p.restart(startLatency)
				}
			})
		case p.resident != nil:
			p.resident.host.UnlessHalted(func() {
				if p.life == life {
					p.resident.start()
				}
			})
		case !p.uplink.reaches():
			p.restart(restartLatency) // it cannot list, and ends
		case p.election != nil:
			p.stale = max(p.stale, t.by)
			p.election.stand()
		default:
			p.start(max(p.stale, t.by))
		}
	})
}

// failed records what went wrong with what a process ran about an object, or about nothing.
func (p *process) failed(about string, err error) {
	e := history.Event{Kind: history.ControllerError, Actor: p.actor.name, Object: about, Value: err.Error()}
	if v := (*controllers.PanicError)(nil); errors.As(err, &v) {
		e.Kind, e.Value, e.Note = history.ControllerPanicked, fmt.Sprint(v.Value), v.Where
	}
	if seat := p.seat(); seat != nil {
		e.Host = seat.name
	}
	p.w.emit(e)
}

// reconciling is the program of a process whose reconcilers run as coroutines.
type reconciling struct{ p *process }

func (r reconciling) begin(f *flight) {
	f.reconciler = f.entry.of.reconciler
	r.p.flights.launch(f)
}

// learn enqueues what a change in the cache concerns, as the registration says: the state before
// the change counts as well as the one after it.
func (r reconciling) learn(s *stream, change kube.Change, priority int) {
	for _, obj := range [...]client.Object{change.Old, change.New} {
		if obj == nil {
			continue
		}
		for _, l := range s.listeners {
			if l.keys == nil {
				r.p.queue.enqueue(l.loop, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)}, priority)
				continue
			}
			for _, request := range l.keys(context.Background(), r.p.cache.client, obj) {
				r.p.queue.enqueue(l.loop, request, priority)
			}
		}
	}
}
