package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/reboot"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/page"
	"github.com/fencelab/fencelab/sim/kube"
	"github.com/fencelab/fencelab/sim/steps"
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
	// expiredLatency is when a client lists again whose watch has expired.
	expiredLatency = time.Second
	// The rate limiter of a controller-runtime work queue, but of a controller with New.
	retryBase = controllers.RetryBase
	retryMax  = 1000 * time.Second
)

// process is one controller: its cache, its queue with its workers, and the
// reconciles that are in flight. It is what controller-runtime's manager is to the
// same Registration in the lab. It can be killed at every call and starts again
// with an empty memory.
//
// It has many fields because a death has to end all of them at once.
type process struct {
	w *world
	// actor is called like the controller, or like its second, third, ... process.
	actor actor
	// at is its end of every link that it has.
	at           string
	store        *kube.Store
	api          *apiServer
	registration controllers.Registration
	deps         controllers.Deps
	kinds        []*kube.Kind
	streams      []*stream
	// names tell which hosts the objects in its cache stand for.
	names   objects.Names
	bmcs    map[string]*fakebmc.BMC
	threads *threads

	// slow is how often it has kept the simulator waiting.
	slow int
	// life numbers the incarnations, so that a step of a dead one does nothing.
	life int
	// starting says that the first one was asked for.
	starting bool
	up       bool
	// nextStart is the step that starts the next incarnation.
	nextStart  *step
	view       *kube.View
	client     *kube.Client
	reconciler reconcile.Reconciler

	queue queue
	// pickups are the workers that are about to take a request, flights those that
	// have one; running is the one that runs at this moment.
	pickups []*step
	flights []*flight
	running *flight
	// paused says that the process stands still; held is what it will do as soon as
	// it goes on.
	paused bool
	held   []func()
	// offset is how far its clock is ahead.
	offset time.Duration
	// host is where an agent runs, with its peers by theirs; nil for a process in the
	// cluster, which has a reconciler.
	host  *host
	peers map[string]*process
	agent controllers.Agent
	// managed is the incarnation of a process that sets up its controllers itself.
	managed *managed
	// second says that the scenario has started it beside another one.
	second bool
	// election is nil where the process is alone; standby says that it is up as a
	// candidate, and vote is its next step in the election.
	election *election
	standby  bool
	vote     *step
	leases   *kube.Kind
	// stale is how old the lists will be that the next incarnation starts from.
	stale time.Duration
	// limiter bounds how often it asks the API server.
	limiter limiter
	crash   scenarios.CrashPlan
}

// stream is the watch of one kind that feeds a process's cache, in order.
type stream struct {
	p    *process
	kind *kube.Kind
	// table is what the table of kinds has of it; nil for objects in another form than
	// their own type.
	table *objects.Kind
	actor actor
	// reconciled says that the process reconciles this very kind; mappings turn
	// its objects into requests for others.
	reconciled bool
	mappings   []mapFunc
	frozen     bool
	// due is when the last delivery that was scheduled will happen: streams
	// don't overtake themselves.
	due time.Duration
	// expected is how many deliveries are scheduled.
	expected int
}

type mapFunc = func(context.Context, client.Reader, client.Object) []reconcile.Request

// flight is a reconcile that has begun and not ended.
type flight struct {
	p      *process
	entry  *entry
	thread *coroutine
	// body is what an agent does; nil for the reconcile of a request.
	body func() error
	// done is what to do when it has ended; nil for the reconcile of a request.
	done   func(*flight)
	result reconcile.Result
	err    error
	panic  *controllers.PanicError
	// sent are the calls that are on their way to whom they are for: one, unless the
	// reconcile has goroutines of its own.
	sent []*call
	// first is room for the one.
	first [1]*call
}

// call is what a reconcile waits for: an API call or a BMC request.
type call struct {
	class steps.Class
	// deed is what it is in the words of a step.
	deed steps.Deed
	// effect is what the call does to the world, or "" for a read.
	effect string
	// api is the request to the API server, which needs no run; nil for any other call.
	api *kube.Call
	// overdue says that its client has given it up.
	overdue bool
	// run performs it and calls done, at once or later.
	run func(ignored bool, done func(error))
	// lost is the error of a call whose answer, or which itself, gets lost.
	lost func() error
	// patience is how long the client waits for the answer; 0 is for ever.
	patience time.Duration
	err      error
	// timeout is when its client gives up; nil unless that is to come.
	timeout *step
	// answered guards against an answer after the client gave up, and givenUp says that
	// it did so before the call arrived.
	answered, givenUp bool
	// resume lets a goroutine in the bubble go on that waits for the answer; nil for a
	// coroutine.
	resume func()
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
	p.limiter.next = 0
	p.queue.p = p
	p.queue.clear()
	p.view = kube.NewView(p.store, p.kinds...)
	g := gate{p, p.life, apiTimeout}
	for _, index := range p.registration.Indexes {
		kind, err := p.store.Server().KindOf(index.Kind)
		if err != nil {
			p.w.fail(fmt.Errorf("index for controller %s: %w", p.actor.name, err))
			return
		}
		p.view.Index(kind, index.Field, index.Extract)
	}
	p.client = kube.NewClient(p.view, g, p.actor.name)
	p.client.Cache(p.registration.Cache)
	deps := p.deps
	deps.Client, deps.Live = p.client, kube.NewReader(p.store, g, p.actor.name)
	deps.Power = func(timeout time.Duration) reboot.Power { return power{p, p.life, cmp.Or(timeout, bmcTimeout)} }
	if p.registration.Setup != nil {
		p.manage(deps)
	} else {
		reconciler, err := p.registration.New(deps)
		if err != nil {
			p.w.fail(fmt.Errorf("start controller %s: %w", p.actor.name, err))
			return
		}
		p.reconciler = reconciler
	}
	started := history.Event{Kind: history.ControllerStarted, Actor: p.actor.name}
	if stale > 0 {
		started.Note = fmt.Sprintf("from lists %s old", stale)
	}
	p.w.emit(started)
	p.w.trace.Forgot(p.w.now, p.actor.name)
	// All caches are filled before anything is handled, as a manager does.
	found := make([][]kube.Change, len(p.streams))
	for i, s := range p.streams {
		s.due, s.expected = p.w.now, 0
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
			s.handle(change, low)
		}
	}
}

// kill ends the incarnation. What it had in flight has no further effect, but
// for requests that were sent and come late.
func (p *process) kill(d death) {
	if !p.up && !p.standby {
		if s := p.nextStart; s != nil && s.index >= 0 && s.at < p.w.now+d.downtime {
			p.w.cancel(s)
			p.restart(d.downtime) // it is down already, and for longer now
		}
		return
	}
	p.stop(d)
	p.restart(max(d.downtime, startLatency))
}

// end ends the process for good, also one that is down.
func (p *process) end() {
	p.life++ // nor does it start again
	if p.up || p.standby {
		p.stop(death{note: "stopped"})
	}
}

// stop ends the incarnation.
func (p *process) stop(d death) {
	p.life++
	p.up, p.standby, p.stale = false, false, d.stale
	p.paused, p.held = false, nil
	p.crash.Died()
	p.w.cancel(p.vote)
	for _, pickup := range p.pickups {
		p.w.cancel(pickup)
	}
	p.pickups = p.pickups[:0]
	p.queue.p = p
	p.queue.clear()
	p.w.emit(history.Event{Kind: history.ControllerCrashed, Actor: p.actor.name, Note: d.note, Hinders: scenarios.SentBefore(p.actor.name, d.late)})
	for _, f := range p.flights {
		for _, c := range f.sent {
			if c.effect != "" && d.late > 0 {
				p.executeLate(c, d.late)
			}
		}
	}
	p.abandon()
}

// executeLate executes an effect when nobody waits for it any more.
func (p *process) executeLate(c *call, by time.Duration) {
	late := p.w.schedule(&p.actor, steps.ClassLate, c.deed, by, func(trouble) {
		c.overdue = true
		p.executeOverdue(c, "executed "+by.String()+" late")
	})
	late.overdue = true
}

// executeOverdue executes a request that nobody waits for any more.
func (p *process) executeOverdue(c *call, note string) {
	p.execute(c, false, func(err error) {
		if err == nil && c.effect != "" {
			p.w.emit(history.Event{Kind: history.ControllerEffect, Actor: p.actor.name, Value: c.effect, Note: note})
		}
	})
}

// execute performs a call and calls done, at once or later.
func (p *process) execute(c *call, ignored bool, done func(error)) {
	if c.api != nil {
		p.api.execute(p.actor.name, p.at, c.api, done)
		return
	}
	c.run(ignored, done)
}

// impatient is what a client says that has waited long enough.
func (c *call) impatient() error {
	switch c.class {
	case steps.ClassPeer:
		return errPeerTimeout
	case steps.ClassBMC:
		return fmt.Errorf("the BMC did not answer within %s", c.patience)
	default:
		return fmt.Errorf("the API server did not answer within %s", c.patience)
	}
}

// abandon unwinds the reconciles in flight.
func (p *process) abandon() {
	flights := p.flights
	p.flights = p.flights[:0]
	if p.managed != nil {
		p.managed.kill()
		return
	}
	for _, f := range flights {
		f.thread.kill()
		p.threads.put(f.thread)
	}
}

// pause lets the process stand still. What it has sent goes its way, and what
// comes to it waits.
func (p *process) pause() {
	p.paused = p.up || p.standby
}

// resume lets a paused process go on where it was.
func (p *process) resume() {
	if !p.paused {
		return
	}
	p.paused = false
	held := p.held
	p.held = nil
	for _, do := range held {
		do()
	}
}

// reaches reports whether requests to the API server are answered, hears whether
// changes in it arrive.
func (p *process) reaches() bool { return !p.api.away && p.w.network.joins(p.at, scenarios.API) }
func (p *process) writes() bool  { return p.api.takes() && p.reaches() }
func (p *process) hears() bool   { return !p.api.away && p.w.network.carries(scenarios.API, p.at) }

// runs reports whether an incarnation is the present one, and doesn't stand still.
func (p *process) runs(life int) bool {
	return life == p.life && !p.paused && (p.host == nil || !p.host.Halted())
}

// unlessPaused does something in an incarnation, or keeps it until that goes on.
func (p *process) unlessPaused(life int, do func()) {
	switch {
	case life != p.life:
	case p.runs(life):
		do()
	case p.paused:
		p.held = append(p.held, func() { p.unlessPaused(life, do) })
	default:
		p.host.UnlessHalted(func() { p.unlessPaused(life, do) })
	}
}

// schedule lets a step of the incarnation happen after a delay, or when that goes on.
func (p *process) schedule(a *actor, class steps.Class, d steps.Deed, delay time.Duration, run func(trouble)) *step {
	s := p.w.schedule(a, class, d, delay, run)
	s.of, s.life = p, p.life
	return s
}

func (p *process) restart(after time.Duration) {
	life := p.life
	p.nextStart = p.w.schedule(&p.actor, steps.ClassStart, steps.Deed{Verb: "start", On: steps.Object{Kind: "Process", Name: p.actor.name}}, after, func(t trouble) {
		switch {
		case p.up || p.standby || p.life != life:
		case p.host != nil:
			p.host.UnlessHalted(func() {
				if p.life == life {
					p.startAgent()
				}
			})
		case !p.reaches():
			p.restart(restartLatency) // it cannot list, and ends
		case p.election != nil:
			p.stale = max(p.stale, t.by)
			p.stand()
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
		if s.kind.Base() == kind && !s.frozen {
			s.expect()
		}
	}
}

// expect schedules the delivery of one change.
func (s *stream) expect() {
	delay := max(watchLatency, s.due-s.p.w.now)
	delivery := s.p.schedule(&s.actor, steps.ClassDeliver, steps.Deed{Verb: "deliver", On: steps.Object{Kind: s.kind.Kind}, By: s}, delay, s.deliver)
	s.due = delivery.at
	s.expected++
	delivery.due = s.p.w.now + watchLatency // but for those before it that are late
}

func (s *stream) deliver(t trouble) {
	s.expected--
	switch {
	case s.frozen || !s.p.hears() || !s.p.view.Pending(s.kind):
	case t.fault == scenarios.FaultRelist:
		s.relist()
	default:
		s.handle(s.p.view.Deliver(s.kind), usual)
	}
}

// relist brings the cache to the present state; what lies between is never
// seen. What hasn't changed is looked at again as well, when nothing else is to be
// done: an informer tells it as an update, and controller-runtime how important that is.
func (s *stream) relist() {
	changes := s.p.view.Relist(s.kind)
	changed := make(map[client.ObjectKey]bool, len(changes))
	for _, change := range changes {
		changed[change.Key] = true
		s.handle(change, usual)
	}
	for _, obj := range s.p.view.Objects(s.kind) {
		if !changed[client.ObjectKeyFromObject(obj)] {
			s.handle(kube.Change{Old: obj, New: obj}, low)
		}
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

// expire ends the watch: what it would go on from is not kept any more. Nothing is
// learned before the cache has listed anew; a process that is down lists when it starts.
func (s *stream) expire() {
	if !s.p.up {
		s.frozen = false
		return
	}
	s.p.w.emit(history.Event{Kind: history.APIFault, Actor: s.p.actor.name, Object: s.kind.Kind + "/", Value: "410", Note: "watch"})
	s.frozen = true
	s.listAgain(s.p.life)
}

func (s *stream) listAgain(life int) {
	s.p.w.schedule(&s.actor, steps.ClassDeliver, steps.Deed{Verb: "list", On: steps.Object{Kind: s.kind.Kind}}, expiredLatency, func(trouble) {
		switch {
		case life != s.p.life: // another process has listed, and watches
			s.thaw()
		case !s.p.hears():
			s.listAgain(life)
		default:
			s.p.unlessPaused(life, func() {
				s.frozen = false
				s.relist()
			})
		}
	})
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
func (s *stream) handle(change kube.Change, priority int) {
	if s.p.w.trace != nil && s.table != nil {
		s.p.w.trace.Learned(s.p.w.now, s.p.actor.name, s.p.names, s.table, meta(change.Old), meta(change.New))
	}
	if s.p.managed != nil {
		s.p.managed.tell(s.kind, change, priority == low && change.Old == nil)
		return
	}
	for _, obj := range [...]client.Object{change.Old, change.New} {
		if obj == nil {
			continue
		}
		if s.reconciled {
			s.p.enqueue(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)}, priority)
		}
		for _, mapping := range s.mappings {
			for _, request := range mapping(context.Background(), s.p.client, obj) {
				s.p.enqueue(request, priority)
			}
		}
	}
}

func (p *process) enqueue(r reconcile.Request, priority int) {
	p.queue.add(p.queue.entry(nil, r), 0, priority)
}

// wake lets workers that are free take requests.
func (p *process) wake() {
	for len(p.pickups)+len(p.flights) < p.workers() && len(p.pickups) < p.queue.available() {
		var pickup *step
		pickup = p.schedule(&p.actor, steps.ClassWork, steps.Deed{Verb: "take", On: steps.Object{Kind: "Queue", Name: p.actor.name}}, workLatency, func(trouble) {
			p.pickups = slices.DeleteFunc(p.pickups, func(s *step) bool { return s == pickup })
			if e := p.queue.take(); e != nil {
				p.begin(e)
			}
		})
		p.pickups = append(p.pickups, pickup)
	}
}

// begin starts a reconcile.
func (p *process) begin(e *entry) {
	f := &flight{p: p, entry: e}
	if p.managed != nil {
		p.managed.work(f)
		return
	}
	p.launch(f)
}

// launch runs a flight up to its first call.
func (p *process) launch(f *flight) {
	f.thread, f.sent = p.threads.get(), f.first[:0]
	f.thread.mark.Timed = p.w.trace != nil
	p.flights = append(p.flights, f)
	p.running = f
	c := f.thread.run(f)
	p.timed(f.thread)
	p.running = nil
	p.next(f, c)
}

// run is what the coroutine of the flight runs.
func (f *flight) run() {
	defer func() {
		if v := recover(); v != nil {
			if _, ok := v.(killed); !ok {
				f.panic = controllers.Recovered(v)
			}
		}
	}()
	if f.body != nil {
		f.err = f.body()
		return
	}
	f.result, f.err = f.p.reconciler.Reconcile(context.Background(), f.entry.request)
}

// next serves the call that a reconcile has come to, or concludes it when there
// is none.
func (p *process) next(f *flight, c *call) {
	if c != nil {
		p.serve(f, c)
		return
	}
	i := slices.Index(p.flights, f)
	p.flights = slices.Delete(p.flights, i, i+1)
	p.threads.put(f.thread)
	if f.panic != nil {
		// controller-runtime recovers panics and retries as well.
		f.err = f.panic
	}
	if f.done != nil {
		f.done(f)
		return
	}
	p.finish(f)
	f.entry.locked = false
	p.wake()
}

// again is when the flight asked to be called again, as the trace has it.
func (f *flight) again() string {
	switch {
	case f.err != nil:
		return page.Failed
	case f.result.RequeueAfter > 0:
		return f.result.RequeueAfter.String()
	//lint:ignore SA1019 others' controllers use it
	case f.result.Requeue:
		return page.AtOnce
	}
	return ""
}

// finish does with the request what its reconcile asked for.
func (p *process) finish(f *flight) {
	e, q := f.entry, &p.queue
	p.w.trace.Ran(p.w.now, p.actor.name, e.request.Name, f.again())
	priority := e.priority
	if f.result.Priority != nil {
		priority = *f.result.Priority
	}
	if f.err != nil {
		var unmodelled *kube.Unmodelled
		if errors.As(f.err, &unmodelled) {
			p.w.fail(fmt.Errorf("controller %s: %w", p.actor.name, unmodelled))
			return
		}
		p.failed(e.request.Name, f.err)
		if !errors.Is(f.err, reconcile.TerminalError(nil)) { // which waits for an event, and its failures still count
			q.addRateLimited(e, priority)
		}
		return
	}
	//lint:ignore SA1019 others' controllers use it
	again := f.result.Requeue
	switch {
	case f.result.RequeueAfter > 0:
		e.failures = 0
		p.rests(e, f.result.RequeueAfter)
		q.add(e, f.result.RequeueAfter, priority)
	case again:
		q.addRateLimited(e, priority)
	default:
		e.failures = 0
	}
}

// failed records what went wrong with what a process ran about an object, or about nothing.
func (p *process) failed(about string, err error) {
	e := history.Event{Kind: history.ControllerError, Actor: p.actor.name, Object: about, Value: err.Error()}
	if v := (*controllers.PanicError)(nil); errors.As(err, &v) {
		e.Kind, e.Value, e.Note = history.ControllerPanicked, fmt.Sprint(v.Value), v.Where
	}
	if p.agent != nil {
		e.Host = p.host.name
	}
	p.w.emit(e)
}

// serve performs the call that a reconcile waits for, as a step of its own.
func (p *process) serve(f *flight, c *call) {
	life := p.life
	latency := apiLatency
	switch c.class {
	case steps.ClassAPI:
		latency += p.limiter.wait(p.w.now)
	case steps.ClassBMC:
		latency = bmcLatency
	case steps.ClassWatchdog:
		latency = workLatency
	}
	f.sent = append(f.sent, c)
	arrival := p.w.schedule(&p.actor, c.class, c.deed, latency, func(t trouble) {
		switch {
		case c.givenUp:
			p.executeOverdue(c, "executed after its client had given up")
		case life == p.life:
			p.arrive(f, c, t)
		}
	})
	// The clients of BMCs start their time limit when they send, and the request arrives all the
	// same. The same holds for agents, whose own hosts depend on it.
	if (c.class == steps.ClassBMC || p.host != nil && c.patience > 0) && arrival.at > p.w.now+latency+c.patience {
		p.w.schedule(&p.actor, steps.ClassTimeout, steps.Deed{Verb: "give up", On: c.deed.On}, c.patience, func(trouble) {
			if life != p.life || arrival.index < 0 {
				return
			}
			f.received(c)
			c.givenUp, c.overdue, arrival.overdue = true, true, true
			p.answer(f, c, c.impatient())
		})
	}
}

// arrive performs a call where it is for, and lets go wrong what the plan says.
func (p *process) arrive(f *flight, c *call, t trouble) {
	var crash *scenarios.CrashOp
	if c.effect != "" {
		crash = p.crash.Due()
	}
	if crash != nil {
		t = trouble{fault: scenarios.FaultCrashAfter}
		if crash.Point == scenarios.CrashBefore {
			t.fault = scenarios.FaultCrashBefore
		}
	}
	switch t.fault {
	case scenarios.FaultCrashLate:
		p.kill(death{note: "before " + c.what(), downtime: crashDowntime, late: t.by})
		return
	case scenarios.FaultCrashStale:
		p.kill(death{note: "before " + c.what(), downtime: crashDowntime, stale: t.by})
		return
	case scenarios.FaultCrashBefore:
		p.kill(deathOf(crash, "before "+c.what()))
		return
	}
	f.received(c)
	switch t.fault {
	case scenarios.FaultLate:
		p.executeLate(c, t.by)
		p.answer(f, c, c.lost())
		return
	case scenarios.FaultErrorBefore:
		p.answer(f, c, c.lost())
		return
	}
	if status := t.fault.Status(); status != 0 && c.api != nil {
		p.answer(f, c, c.api.Refuse(status))
		return
	}
	life, fault := p.life, t.fault
	done := func(err error) {
		p.w.cancel(c.timeout)
		if life != p.life || c.answered {
			return
		}
		if c.effect != "" && err == nil {
			p.crash.Effect()
			p.w.emit(history.Event{Kind: history.ControllerEffect, Actor: p.actor.name, Value: c.effect})
		}
		switch fault {
		case scenarios.FaultCrashAfter:
			if err == nil || !p.crash.Armed() {
				p.kill(deathOf(crash, "after "+c.what()))
				return
			}
		case scenarios.FaultErrorAfter:
			err = c.lost()
		}
		p.answer(f, c, err)
	}
	p.execute(c, fault == scenarios.FaultIgnore, done)
	if c.patience > 0 && life == p.life && !c.answered {
		c.timeout = p.w.schedule(&p.actor, steps.ClassTimeout, steps.Deed{Verb: "give up", On: c.deed.On}, c.patience, func(trouble) { done(c.impatient()) })
	}
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
	if p.runs(p.life) {
		p.proceed(f, c)
		return
	}
	p.unlessPaused(p.life, func() { p.proceed(f, c) })
}

// proceed lets a reconcile go on behind a call.
func (p *process) proceed(f *flight, c *call) {
	if c.resume != nil {
		c.resume()
		return
	}
	p.running = f
	then := f.thread.resume()
	p.timed(f.thread)
	p.running = nil
	p.next(f, then)
}

// received takes a call from those that are on their way.
func (f *flight) received(c *call) {
	f.sent = slices.DeleteFunc(f.sent, func(sent *call) bool { return sent == c })
}

// workers is how many requests may be worked on at once.
func (p *process) workers() int {
	if p.managed != nil {
		return p.managed.workers()
	}
	return p.registration.Workers
}

// limiter is the rate limit of a client. The zero limiter lets every request go at once.
type limiter struct {
	scenarios.RateLimit
	// next is when the request after the last one would be due if there were no bursts.
	next time.Duration
}

// wait takes the turn of a request, and returns how long it has to wait for that.
func (l *limiter) wait(now time.Duration) time.Duration {
	every := time.Duration(l.Every)
	wait := max(0, l.next-every*time.Duration(l.Burst-1)-now)
	l.next = max(now+wait, l.next) + every
	return wait
}

// perform suspends the reconcile that runs until the call is answered.
func (p *process) perform(life int, c *call) error {
	f := p.running
	if life != p.life || f == nil {
		panic(killed{})
	}
	f.thread.suspend(c)
	return c.err
}

// gate makes a scheduling step of every API call of one incarnation.
type gate struct {
	p    *process
	life int
	// patience is how long the client waits for an answer.
	patience time.Duration
}

// Call implements kube.Gate.
func (g gate) Call(ctx context.Context, k *kube.Call) error {
	c := &call{
		class: steps.ClassAPI, api: k, patience: g.patience,
		lost: func() error { return apierrors.NewTimeoutError("the simulated request timed out", 1) },
	}
	if k.Writes() {
		c.effect = effectOf(k)
	}
	c.deed = steps.Deed{Verb: k.Action(), On: steps.Object{Kind: k.Kind.Kind, Name: k.Key.Name}, Effect: c.effect != ""}
	if g.p.registration.Setup != nil {
		return g.p.managed.perform(ctx, g.life, c, k)
	}
	return g.p.perform(g.life, c)
}
