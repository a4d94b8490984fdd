package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/kube"
)

// How long what lies between a controller and the world takes by default.
const (
	apiLatency   = 5 * time.Millisecond
	watchLatency = 10 * time.Millisecond
	workLatency  = time.Millisecond
	startLatency = 500 * time.Millisecond
	// restartLatency is when a process starts again that found no API server.
	restartLatency = 2 * time.Second
	bmcLatency     = 20 * time.Millisecond
	// The rate limiter of a controller-runtime work queue.
	retryBase = 5 * time.Millisecond
	retryMax  = 1000 * time.Second
)

// process is one controller: its cache, its queue with one worker, and the
// reconcile that is in flight. It is what controller-runtime's manager is to the
// same Registration in the lab. It can be killed at every call and starts again
// with an empty memory.
type process struct {
	w            *world
	actor        actor
	store        *kube.Store
	api          *apiServer
	registration controllers.Registration
	deps         controllers.Deps
	kinds        []*kube.Kind
	streams      []*stream
	bmcs         map[string]*fakebmc.BMC
	threads      *threads

	// life numbers the incarnations, so that a step of a dead one does nothing.
	life int
	// starting says that the first one was asked for.
	starting   bool
	up         bool
	view       *kube.View
	client     *kube.Client
	reconciler reconcile.Reconciler

	queue  []reconcile.Request
	items  map[reconcile.Request]*item
	work   *step
	flight *flight
	// stale is how old the lists will be that the next incarnation starts from.
	stale time.Duration
	// crash is armed for an effect to come.
	crashAt *scenarios.CrashOp
	effects int
}

// item is what the queue knows of one request.
type item struct {
	queued, processing, dirty bool
	failures                  int
	timer                     *step
}

// stream is the watch of one kind that feeds a process's cache, in order.
type stream struct {
	p     *process
	kind  *kube.Kind
	actor actor
	// reconciled says that the process reconciles this very kind; mappings turn
	// its objects into requests for others.
	reconciled bool
	mappings   []mapFunc
	frozen     bool
	// due is when the last delivery that was scheduled will happen: streams
	// don't overtake themselves.
	due time.Duration
}

type mapFunc = func(context.Context, client.Reader, client.Object) []reconcile.Request

// flight is a reconcile that has begun and not ended.
type flight struct {
	request reconcile.Request
	thread  *coroutine
	result  reconcile.Result
	err     error
	panic   any
	// sent is the call that is on its way to whom it is for.
	sent *call
}

// call is what a reconcile waits for: an API call or a BMC request.
type call struct {
	class Class
	// effect is what the call does to the world, or "" for a read.
	effect string
	// refuse is the error of a call that is refused with an HTTP status.
	refuse func(code int) error
	// run performs it and calls done, at once or later.
	run func(ignored bool, done func(error))
	// lost is the error of a call whose answer, or which itself, gets lost.
	lost func() error
	// patience is how long the client waits for the answer, and impatient what it
	// says then; 0 is for ever.
	patience  time.Duration
	impatient error
	err       error
	// answered guards against an answer after the client gave up.
	answered bool
}

// death is how an incarnation ends, and the next one comes about.
type death struct {
	note     string
	downtime time.Duration
	// stale is how old the lists are that the next incarnation starts from.
	stale time.Duration
	// late is how much later what it has sent is executed; 0 is never.
	late time.Duration
}

// start is a new incarnation: empty memory, caches filled from the state of a
// while ago, which is mostly the present one, and every object of its kind to be
// looked at.
func (p *process) start(stale time.Duration) {
	p.life++
	p.up, p.stale = true, 0
	p.queue, p.items = p.queue[:0], make(map[reconcile.Request]*item)
	p.view = kube.NewView(p.store, p.kinds...)
	g := gate{p, p.life}
	p.client = kube.NewClient(p.view, g, p.actor.name)
	deps := p.deps
	deps.Client, deps.Live = p.client, kube.NewReader(p.store, g, p.actor.name)
	deps.Power = power{p, p.life}
	reconciler, err := p.registration.New(deps)
	if err != nil {
		p.w.fail(fmt.Errorf("start controller %s: %w", p.actor.name, err))
		return
	}
	p.reconciler = reconciler
	started := history.Event{Kind: history.ControllerStarted, Actor: p.actor.name}
	if stale > 0 {
		started.Note = fmt.Sprintf("from lists %s old", stale)
	}
	p.w.emit(started)
	// All caches are filled before anything is handled, as a manager does.
	found := make([][]kube.Change, len(p.streams))
	for i, s := range p.streams {
		s.due = p.w.now
		if stale == 0 {
			found[i] = p.view.Relist(s.kind)
			continue
		}
		// The server was behind, but not before the topology was there.
		found[i] = p.view.RelistAsOf(s.kind, epoch.Add(max(0, p.w.now-stale)))
		for range p.view.Lag(s.kind) {
			s.expect()
		}
	}
	for i, s := range p.streams {
		for _, change := range found[i] {
			s.handle(change)
		}
	}
}

// kill ends the incarnation. What it had in flight has no further effect, but
// for requests that were sent and come late.
func (p *process) kill(d death) {
	if !p.up {
		return
	}
	p.life++
	p.up, p.stale = false, d.stale
	if p.crashAt != nil && !p.crashAt.Each {
		p.crashAt = nil
	}
	p.w.cancel(p.work)
	p.work = nil
	for _, it := range p.items { // order does not matter: cancelling steps
		p.w.cancel(it.timer)
	}
	p.w.emit(history.Event{Kind: history.ControllerCrashed, Actor: p.actor.name, Note: d.note})
	if f := p.flight; f != nil && f.sent != nil && f.sent.effect != "" && d.late > 0 {
		p.executeLate(f.sent, d.late)
	}
	p.abandon()
	p.restart(max(d.downtime, startLatency))
}

// executeLate executes an effect when nobody waits for it any more.
func (p *process) executeLate(c *call, by time.Duration) {
	late := p.w.schedule(&p.actor, ClassLate, true, by, func(trouble) {
		c.run(false, func(err error) {
			if err == nil {
				p.w.emit(history.Event{Kind: history.ControllerEffect, Actor: p.actor.name, Value: c.effect, Note: "executed " + by.String() + " late"})
			}
		})
	})
	late.overdue = true
}

// abandon unwinds the reconcile in flight.
func (p *process) abandon() {
	if f := p.flight; f != nil {
		p.flight = nil
		f.thread.kill()
		p.threads.put(f.thread)
	}
}

func (p *process) restart(after time.Duration) {
	life := p.life
	p.w.schedule(&p.actor, ClassStart, false, after, func(t trouble) {
		switch {
		case p.up || p.life != life:
		case p.api.away:
			p.restart(restartLatency) // it cannot list, and ends
		default:
			p.start(max(p.stale, t.by))
		}
	})
}

// changed is told of every committed change.
func (p *process) changed(kind *kube.Kind) {
	if !p.up {
		return
	}
	for _, s := range p.streams {
		if s.kind == kind && !s.frozen {
			s.expect()
		}
	}
}

// expect schedules the delivery of one change.
func (s *stream) expect() {
	life := s.p.life
	delay := max(watchLatency, s.due-s.p.w.now)
	delivery := s.p.w.schedule(&s.actor, ClassDeliver, false, delay, func(t trouble) {
		switch {
		case life != s.p.life || s.frozen || s.p.api.away || !s.p.view.Pending(s.kind):
		case t.fault == scenarios.FaultRelist:
			s.relist()
		default:
			s.handle(s.p.view.Deliver(s.kind))
		}
	})
	s.due = delivery.at
	delivery.due = s.p.w.now + watchLatency // but for those before it that are late
}

// relist brings the cache to the present state; what lies between is never
// seen.
func (s *stream) relist() {
	for _, change := range s.p.view.Relist(s.kind) {
		s.handle(change)
	}
}

// thaw lets a frozen stream catch up, one change after the other.
func (s *stream) thaw() {
	if !s.frozen {
		return
	}
	s.frozen = false
	s.catchUp()
}

// catchUp lets a stream that stood still learn of everything that it missed.
func (s *stream) catchUp() {
	if s.p.up && !s.frozen {
		for range s.p.view.Lag(s.kind) {
			s.expect()
		}
	}
}

// handle enqueues what a change in the cache concerns, as the registration says:
// the state before the change counts as well as the one after it.
func (s *stream) handle(change kube.Change) {
	for _, obj := range [...]client.Object{change.Old, change.New} {
		if obj == nil {
			continue
		}
		if s.reconciled {
			s.p.enqueue(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
		}
		for _, mapping := range s.mappings {
			for _, request := range mapping(context.Background(), s.p.client, obj) {
				s.p.enqueue(request)
			}
		}
	}
}

func (p *process) item(r reconcile.Request) *item {
	it := p.items[r]
	if it == nil {
		it = new(item)
		p.items[r] = it
	}
	return it
}

// enqueue puts a request into the queue, once; one that is being worked on
// comes again afterwards.
func (p *process) enqueue(r reconcile.Request) {
	it := p.item(r)
	switch {
	case it.processing:
		it.dirty = true
	case !it.queued:
		it.queued = true
		p.queue = append(p.queue, r)
		p.wake()
	}
}

// enqueueAfter does so later. Of several delays for a request the shortest
// counts.
func (p *process) enqueueAfter(r reconcile.Request, delay time.Duration) {
	it := p.item(r)
	at := p.w.now + delay
	if it.timer != nil && it.timer.index >= 0 {
		if it.timer.at <= at {
			return
		}
		p.w.cancel(it.timer)
	}
	it.timer = p.w.schedule(&p.actor, ClassTimer, false, delay, func(trouble) {
		it.timer = nil
		p.enqueue(r)
	})
}

// wake lets the worker take the next request, if it is free.
func (p *process) wake() {
	if p.work == nil && p.flight == nil && len(p.queue) > 0 {
		p.work = p.w.schedule(&p.actor, ClassWork, false, workLatency, func(trouble) {
			p.work = nil
			p.begin()
		})
	}
}

// begin starts the reconcile of the first request in the queue.
func (p *process) begin() {
	request := p.queue[0]
	p.queue = slices.Delete(p.queue, 0, 1)
	it := p.item(request)
	it.queued, it.processing = false, true

	f := &flight{request: request, thread: p.threads.get()}
	p.flight = f
	p.next(f, f.thread.run(func() {
		defer func() {
			if v := recover(); v != nil {
				if _, ok := v.(killed); !ok {
					f.panic = v
				}
			}
		}()
		f.result, f.err = p.reconciler.Reconcile(context.Background(), request)
	}))
}

// next serves the call that a reconcile has come to, or concludes it when there
// is none.
func (p *process) next(f *flight, c *call) {
	if c != nil {
		p.serve(f, c)
		return
	}
	p.flight = nil
	p.threads.put(f.thread)
	p.finish(f)
	p.wake()
}

// finish does with the request what its reconcile asked for.
func (p *process) finish(f *flight) {
	it := p.item(f.request)
	it.processing = false
	if f.panic != nil {
		// controller-runtime recovers panics and retries as well.
		f.err = fmt.Errorf("panic: %v", f.panic)
	}
	var unmodelled *kube.Unmodelled
	switch {
	case errors.As(f.err, &unmodelled):
		p.w.fail(fmt.Errorf("controller %s: %w", p.actor.name, unmodelled))
	case f.err != nil:
		p.w.emit(history.Event{Kind: history.ControllerError, Actor: p.actor.name, Object: f.request.Name, Value: f.err.Error()})
		delay := retryMax
		if it.failures < 18 { // 5 ms << 18 is beyond the maximum
			delay = min(retryBase<<it.failures, retryMax)
		}
		it.failures++
		p.enqueueAfter(f.request, delay)
	case f.result.RequeueAfter > 0:
		it.failures = 0
		p.enqueueAfter(f.request, f.result.RequeueAfter)
	default:
		it.failures = 0
	}
	if it.dirty {
		it.dirty = false
		p.enqueue(f.request)
	}
}

// serve performs the call that a reconcile waits for, as a step of its own.
func (p *process) serve(f *flight, c *call) {
	life := p.life
	latency := apiLatency
	if c.class == ClassBMC {
		latency = bmcLatency
	}
	f.sent = c
	p.w.schedule(&p.actor, c.class, c.effect != "", latency, func(t trouble) {
		if life != p.life {
			return
		}
		d := death{note: "before " + c.what(), downtime: crashDowntime}
		if at := p.crashAt; at != nil && c.effect != "" && (at.Each || p.effects+1 == at.Effect) {
			t = trouble{fault: scenarios.FaultCrashAfter}
			if at.Point == scenarios.CrashBefore {
				t.fault = scenarios.FaultCrashBefore
			}
			d = deathOf(at, d.note)
		}
		switch t.fault {
		case scenarios.FaultCrashLate:
			d.late = t.by
			p.kill(d)
			return
		case scenarios.FaultCrashStale:
			d.stale = t.by
			p.kill(d)
			return
		case scenarios.FaultCrashBefore:
			p.kill(d)
			return
		}
		f.sent = nil
		switch t.fault {
		case scenarios.FaultLate:
			p.executeLate(c, t.by)
			p.answer(f, c, c.lost())
			return
		case scenarios.FaultErrorBefore:
			p.answer(f, c, c.lost())
			return
		}
		if status := t.fault.Status(); status != 0 && c.refuse != nil {
			p.answer(f, c, c.refuse(status))
			return
		}
		var timeout *step
		done := func(err error) {
			p.w.cancel(timeout)
			if life != p.life || c.answered {
				return
			}
			if c.effect != "" && err == nil {
				p.effects++
				p.w.emit(history.Event{Kind: history.ControllerEffect, Actor: p.actor.name, Value: c.effect})
			}
			switch t.fault {
			case scenarios.FaultCrashAfter:
				if err == nil || p.crashAt == nil {
					d.note = "after " + c.what()
					p.kill(d)
					return
				}
			case scenarios.FaultErrorAfter:
				err = c.lost()
			}
			p.answer(f, c, err)
		}
		c.run(t.fault == scenarios.FaultIgnore, done)
		if c.patience > 0 && life == p.life && !c.answered {
			timeout = p.w.schedule(&p.actor, ClassTimeout, false, c.patience, func(trouble) { done(c.impatient) })
		}
	})
}

// crashDowntime is how long a process is down after a crash that no step of the
// scenario asked for.
const crashDowntime = 3 * time.Second

// deathOf is the death that a step of the scenario asks for.
func deathOf(c *scenarios.CrashOp, note string) death {
	return death{note: note, downtime: time.Duration(c.RestartAfter), stale: time.Duration(c.StaleBy), late: time.Duration(c.LateBy)}
}

func (c *call) what() string {
	if c.effect == "" {
		return "a read"
	}
	return c.effect
}

// answer hands a call's result to the reconcile and lets it go on.
func (p *process) answer(f *flight, c *call, err error) {
	if c.answered {
		return
	}
	c.answered = true
	c.err = err
	p.next(f, f.thread.resume())
}

// perform suspends the reconcile in flight until the call is answered.
func (p *process) perform(life int, c *call) error {
	if life != p.life || p.flight == nil {
		panic(killed{})
	}
	p.flight.thread.suspend(c)
	return c.err
}

// gate makes a scheduling step of every API call of one incarnation.
type gate struct {
	p    *process
	life int
}

// Call implements kube.Gate.
func (g gate) Call(k *kube.Call) error {
	c := &call{
		class: ClassAPI, refuse: k.Refuse,
		run:      func(_ bool, done func(error)) { g.p.api.execute(g.p.actor.name, k, done) },
		patience: apiTimeout, impatient: errAPITimeout,
		lost: func() error { return apierrors.NewTimeoutError("the simulated request timed out", 1) },
	}
	if k.Writes() {
		c.effect = string(k.Verb) + " " + k.Kind.Kind + "/" + k.Key.Name
	}
	return g.p.perform(g.life, c)
}
