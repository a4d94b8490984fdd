package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	utilclock "k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/sim/bubble"
	"github.com/fencelab/fencelab/sim/kube"
)

// managed is one incarnation of a process that sets up its controllers itself: other
// people's SetupWithManager, controllers, predicates and handlers, in a bubble, where they
// may start goroutines and read the clock. What surrounds them is the simulator's: the
// manager, clients whose calls are steps, informers that get what a delivery brings,
// and the queues, so that nothing happens among them but by a step.
//
// Methods of it run either in the bubble, as those of the manager and the queue do, or
// outside of it, and say which.
type managed struct {
	p         *process
	life      int
	bubble    *bubble.Bubble
	cancel    context.CancelFunc
	dead      atomic.Bool
	setUp     bool
	informers map[*kube.Kind]*informer
	// waiting are the goroutines that wait for the answer to a call.
	waiting map[*call]*bubble.Answer
}

// manage begins an incarnation that sets up its controllers itself.
func (p *process) manage(deps controllers.Deps) {
	if p.w.bubble == nil {
		p.w.bubble = bubble.New(epoch)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &managed{p: p, life: p.life, bubble: p.w.bubble, cancel: cancel, informers: make(map[*kube.Kind]*informer), waiting: make(map[*call]*bubble.Answer)}
	for _, k := range p.cache.kinds {
		m.informers[k] = &informer{m: m, kind: k}
	}
	p.program, p.parts, p.loops = m, append(p.parts, m), nil
	warn := deps.Warn
	deps.Warn = func(about client.Object, reason, message string) {
		about = about.DeepCopyObject().(client.Object)
		m.say(func() { warn(about, reason, message) })
	}
	deps.Clock, deps.Power, deps.Decided = utilclock.RealClock{}, nil, nil // real by the bubble's clock
	mgr, run := newManager(m, deps)
	m.turn(func() {
		err := p.registration.Setup(ctx, mgr, deps)
		m.bubble.Say(func() {
			m.setUp = true
			if err != nil {
				p.w.fail(fmt.Errorf("set up the controller %s: %w", p.actor.name, err))
			}
		})
	})
	if !m.setUp {
		p.w.fail(fmt.Errorf("set up the controller %s: Setup blocks, but must return immediately", p.actor.name))
		return
	}
	run(ctx)
	for _, c := range p.loops {
		if c.queue == nil && p.w.broken == nil {
			p.w.fail(fmt.Errorf("run the controller %s: %s did not start immediately; one of its sources is not synced", p.actor.name, c.name))
		}
	}
}

// turn has something done in the bubble at the present time, until everything stands still.
func (m *managed) turn(do func()) { m.p.w.heard(m.bubble.Turn(m.p.w.now, do)) }

// heard does what was said in the bubble. Go's scheduler decides who speaks first at a moment,
// so the calls among it are put in order.
func (w *world) heard(said []func()) {
	for _, do := range said {
		do()
	}
	calls := w.asked
	w.asked = nil
	slices.SortStableFunc(calls, func(a, b asked) int {
		return cmp.Or(cmp.Compare(a.m.p.actor.name, b.m.p.actor.name), cmp.Compare(a.f.entry.String(), b.f.entry.String()), cmp.Compare(a.text, b.text))
	})
	for _, a := range calls {
		a.m.p.unlessPaused(a.m.life, func() { a.m.p.serve(a.f, a.c) })
	}
}

// asked is a call that was made in the bubble.
type asked struct {
	m    *managed
	f    *flight
	c    *call
	text string
}

// stir lets time pass in the bubble, at most until the next step, and reports whether
// something has happened there.
func (w *world) stir(until time.Duration) bool {
	if !slices.ContainsFunc(w.managed, func(p *process) bool { return p.up && len(p.flights.aloft) > 0 }) {
		return false // a clock that nobody looks at is set when somebody does
	}
	at, said := w.bubble.Pass(until)
	if len(said) == 0 {
		return false
	}
	w.now = max(w.now, at)
	w.heard(said)
	return true
}

// say is called in the bubble: something is to be done outside, if the incarnation lives.
func (m *managed) say(do func()) {
	m.bubble.Say(func() { m.p.unlessPaused(m.life, do) })
}

// flightKey is what the context of a reconcile has its ticket under.
type flightKey struct{}

// perform is called in the bubble: the goroutine waits until its call is answered. Calls of one
// moment are put in the order of their texts.
func (m *managed) perform(ctx context.Context, life int, c *call, text, name string) error {
	if life != m.life || m.dead.Load() {
		if c.fails {
			return errGone
		}
		bubble.Exit()
	}
	t, _ := ctx.Value(flightKey{}).(ticket)
	m.bubble.Wait(func(answer *bubble.Answer) {
		m.waiting[c] = answer
		c.resume = func() {
			delete(m.waiting, c)
			m.turn(answer.Give)
		}
		f := m.p.flights.of(t)
		switch {
		case m.dead.Load():
			delete(m.waiting, c)
			m.turn(func() { c.kill(answer) })
		case f == nil:
			m.p.w.fail(fmt.Errorf("controller %s: %s outside a reconcile, or with a context other than the reconcile's, which the simulator does not model", m.p.actor.name, name))
		default:
			m.p.w.asked = append(m.p.w.asked, asked{m, f, c, text})
		}
	})
	return c.err
}

// begin hands a request to a worker of its controller.
func (m *managed) begin(f *flight) {
	m.p.flights.aloft = append(m.p.flights.aloft, f)
	m.turn(func() { f.entry.of.queue.hand(f.entry.request, f.entry.priority) })
}

// landed notes that a request is no longer worked on.
func (m *managed) landed(t ticket) {
	f := m.p.flights.of(t)
	m.p.flights.land(f)
	m.p.queue.release(f.entry)
}

// learn gives a change in the cache to the handlers of its kind.
func (m *managed) learn(s *stream, change kube.Change, priority int) {
	i, initial := m.informers[s.kind], priority == low && change.Old == nil
	if len(i.handlers) == 0 {
		return
	}
	m.turn(func() {
		for _, h := range i.handlers {
			h.tell(change, initial)
		}
	})
}

// end ends every goroutine of the incarnation that waits for an answer, and has the
// others end. Whatever they still try to do on the way has no effect.
func (m *managed) end() {
	m.dead.Store(true)
	waiting := m.waiting
	m.waiting = nil
	m.turn(func() {
		m.cancel()
		for c, answer := range waiting { // order does not matter: none has an effect any more
			c.kill(answer)
		}
	})
}

// kill ends the goroutine that waits for the answer to a call, or fails the call.
func (c *call) kill(answer *bubble.Answer) {
	if !c.fails {
		answer.Kill()
		return
	}
	c.err = errGone
	answer.Give()
}

// observed is a reconciler whose calls are known as its own, and whose errors are
// recorded.
type observed struct {
	reconcile.Reconciler
	m *managed
	c *loop
}

// Reconcile is called in the bubble.
func (o observed) Reconcile(ctx context.Context, request reconcile.Request) (result reconcile.Result, err error) {
	defer func() {
		failure := recover()
		if failure != nil {
			err = controllers.Recovered(failure)
		}
		if err != nil {
			o.m.say(func() { o.m.failed(request, err) })
		}
		if failure != nil {
			panic(failure) // controller-runtime recovers it
		}
	}()
	return o.Reconciler.Reconcile(context.WithValue(ctx, flightKey{}, ticket{o.c, request}), request)
}

func (m *managed) failed(request reconcile.Request, err error) {
	var unmodelled *kube.Unmodelled
	if errors.As(err, &unmodelled) {
		m.p.w.fail(fmt.Errorf("controller %s: %w", m.p.actor.name, unmodelled))
		return
	}
	m.p.failed(request.Name, err)
}
