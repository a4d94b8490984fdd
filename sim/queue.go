package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/sim/kube"
	"github.com/fencelab/fencelab/sim/steps"
)

// queue is the priority queue of controller-runtime 0.24. It has one entry for
// each request: an event that comes while the entry waits for its time makes it
// ready at once, and the time is forgotten.
type queue struct {
	p       *process
	entries map[ticket]*entry
	// ready are the entries that can be handed out, or will be when their request
	// is no longer being worked on: the most important first, then in order.
	ready []*entry
	added uint64
}

// loop is one controller of a process. In truth each has a queue of its own; here those of a
// process share one, with the order among their requests.
type loop struct {
	// name is empty for the only one of a process.
	name string
	// starts says that it reconciles the empty request when the process starts.
	starts bool
	// actor takes its steps.
	actor *actor
	// workers is how many requests it works on at once, busy how many it does work on, and pickups
	// are the workers that are about to take one.
	workers, busy int
	pickups       []*step
	// reconciler belongs to the present incarnation. It is nil for a loop in the bubble, where
	// queue hands requests to the workers.
	reconciler reconcile.Reconciler
	queue      *workQueue
}

// ticket is what a queue has one entry for: a request to a loop.
type ticket struct {
	of      *loop
	request reconcile.Request
}

func (t ticket) String() string {
	if t.of.name == "" {
		return t.request.String()
	}
	return t.of.name + " " + t.request.String()
}

// entry is what the queue knows of one request.
type entry struct {
	ticket
	// text is the request in words.
	text string
	// queued says that it waits, for its time while there is a timer.
	queued bool
	timer  *step
	// locked says that it is being worked on.
	locked   bool
	priority int
	// order is that among entries of the same priority.
	order    uint64
	failures int
	// again is how often it was asked for again at once, since which effect of anybody's.
	again, effects int
}

// What an entry's priority is by default, and when a list of everything brings it.
const (
	usual = 0
	low   = -100 // handler.LowPriority
)

// end empties the queue.
func (q *queue) end() {
	for _, l := range q.p.loops {
		for _, pickup := range l.pickups {
			q.p.w.cancel(pickup)
		}
		l.pickups, l.busy = l.pickups[:0], 0
	}
	for _, e := range q.entries { // order does not matter: cancelling steps
		q.p.w.cancel(e.timer)
	}
	clear(q.entries)
	q.ready = q.ready[:0]
}

func (q *queue) entry(of *loop, r reconcile.Request) *entry {
	t := ticket{of, r}
	e := q.entries[t]
	if e == nil {
		e = &entry{ticket: t, text: r.String()}
		q.entries[t] = e
	}
	return e
}

// enqueue puts a request into the queue.
func (q *queue) enqueue(of *loop, r reconcile.Request, priority int) {
	if q.p.w.queued != nil {
		q.p.w.queued(of.actor.name, r.Name)
	}
	q.add(q.entry(of, r), 0, priority)
}

func (q *queue) next() uint64 {
	q.added++
	return q.added
}

// add puts a request into the queue, for later unless after is 0. What is there
// already keeps the more important priority and the earlier time.
func (q *queue) add(e *entry, after time.Duration, priority int) {
	q.p.w.comes(steps.Queued)
	switch {
	case !e.queued:
		e.queued, e.priority, e.order = true, priority, q.next()
		if after > 0 {
			q.wait(e, after)
		} else {
			q.insert(e)
		}
	case e.timer != nil:
		if priority > e.priority {
			e.priority, e.order = priority, q.next()
		}
		switch {
		case after == 0:
			q.p.w.cancel(e.timer)
			e.timer = nil
			q.insert(e)
		case q.p.w.now+after < e.timer.at:
			q.p.w.cancel(e.timer)
			q.wait(e, after)
		}
	case priority > e.priority:
		q.remove(e)
		e.priority, e.order = priority, q.next()
		q.insert(e)
	}
}

// addRateLimited puts a request into the queue that was tried in vain.
func (q *queue) addRateLimited(e *entry, priority int) {
	longest := retryMax
	if q.p.registration.Setup == nil {
		longest = controllers.RetryMost
	}
	delay := longest
	if e.failures < 18 { // 5 ms << 18 is beyond the maximum
		delay = min(retryBase<<e.failures, longest)
	}
	e.failures++
	q.add(e, delay, priority)
}

func (q *queue) wait(e *entry, delay time.Duration) {
	e.timer = q.p.schedule(e.of.actor, steps.ClassTimer, steps.Deed{Verb: "add", On: steps.Object{Kind: "Request", Name: e.request.Name}}, delay, func(trouble) {
		e.timer, e.order = nil, q.next()
		q.insert(e)
	})
}

func (q *queue) insert(e *entry) {
	i := len(q.ready)
	for i > 0 && (q.ready[i-1].priority < e.priority || q.ready[i-1].priority == e.priority && q.ready[i-1].order > e.order) {
		i--
	}
	q.ready = slices.Insert(q.ready, i, e)
	q.wake(e.of)
}

func (q *queue) remove(e *entry) {
	i := slices.Index(q.ready, e)
	q.ready = slices.Delete(q.ready, i, i+1)
}

// available is how many requests of a loop could be handed out.
func (q *queue) available(of *loop) (n int) {
	for _, e := range q.ready {
		if e.of == of && !e.locked {
			n++
		}
	}
	return n
}

// take hands out the first request of a loop that no worker has, or nil.
func (q *queue) take(of *loop) *entry {
	for i, e := range q.ready {
		if e.of == of && !e.locked {
			q.ready = slices.Delete(q.ready, i, i+1)
			e.queued, e.locked = false, true
			of.busy++
			return e
		}
	}
	return nil
}

// wake lets workers of a loop that are free take requests.
func (q *queue) wake(l *loop) {
	p := q.p
	for len(l.pickups)+l.busy < l.workers && len(l.pickups) < q.available(l) {
		var pickup *step
		pickup = p.schedule(l.actor, steps.ClassWork, steps.Deed{Verb: "take", On: steps.Object{Kind: "Queue", Name: l.actor.name}}, workLatency, func(trouble) {
			l.pickups = slices.DeleteFunc(l.pickups, func(s *step) bool { return s == pickup })
			if e := q.take(l); e != nil {
				p.program.begin(&flight{p: p, entry: e})
			}
		})
		l.pickups = append(l.pickups, pickup)
	}
}

// release lets the request be handed out again.
func (q *queue) release(e *entry) {
	e.locked = false
	e.of.busy--
	if q.p.w.came != nil && q.available(e.of) > 0 {
		q.p.w.comes(steps.Freed)
	}
	q.wake(e.of)
}

// finish does with a request what its reconcile asked for.
func (q *queue) finish(f *flight) {
	q.again(f)
	q.release(f.entry)
}

// again puts the request of a reconcile into the queue once more, if that asked for it or failed.
func (q *queue) again(f *flight) {
	e, p := f.entry, q.p
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
		q.rests(e, f.result.RequeueAfter)
		q.add(e, f.result.RequeueAfter, priority)
	case again:
		q.addRateLimited(e, priority)
	default:
		e.failures = 0
	}
}
