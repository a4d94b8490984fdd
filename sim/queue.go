package sim

import (
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// queue is the priority queue of controller-runtime 0.24. It has one entry for
// each request: an event that comes while the entry waits for its time makes it
// ready at once, and the time is forgotten.
type queue struct {
	p       *process
	entries map[reconcile.Request]*entry
	// ready are the entries that can be handed out, or will be when their request
	// is no longer being worked on: the most important first, then in order.
	ready []*entry
	added uint64
}

// entry is what the queue knows of one request.
type entry struct {
	request reconcile.Request
	// queued says that it waits, for its time while there is a timer.
	queued bool
	timer  *step
	// locked says that it is being worked on.
	locked   bool
	priority int
	// order is that among entries of the same priority.
	order    uint64
	failures int
}

// What an entry's priority is by default, and when a list of everything brings it.
const (
	usual = 0
	low   = -100 // handler.LowPriority
)

func (q *queue) clear() {
	for _, e := range q.entries { // order does not matter: cancelling steps
		q.p.w.cancel(e.timer)
	}
	q.entries, q.ready = make(map[reconcile.Request]*entry), q.ready[:0]
}

func (q *queue) entry(r reconcile.Request) *entry {
	e := q.entries[r]
	if e == nil {
		e = &entry{request: r}
		q.entries[r] = e
	}
	return e
}

func (q *queue) next() uint64 {
	q.added++
	return q.added
}

// add puts a request into the queue, for later unless after is 0. What is there
// already keeps the more important priority and the earlier time.
func (q *queue) add(e *entry, after time.Duration, priority int) {
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
	delay := retryMax
	if e.failures < 18 { // 5 ms << 18 is beyond the maximum
		delay = min(retryBase<<e.failures, retryMax)
	}
	e.failures++
	q.add(e, delay, priority)
}

func (q *queue) wait(e *entry, delay time.Duration) {
	life := q.p.life
	e.timer = q.p.w.schedule(&q.p.actor, ClassTimer, deed{verb: "add", on: Object{"Request", e.request.Name}}, delay, func(trouble) {
		q.p.unlessPaused(life, func() {
			e.timer, e.order = nil, q.next()
			q.insert(e)
		})
	})
}

func (q *queue) insert(e *entry) {
	i := len(q.ready)
	for i > 0 && (q.ready[i-1].priority < e.priority || q.ready[i-1].priority == e.priority && q.ready[i-1].order > e.order) {
		i--
	}
	q.ready = slices.Insert(q.ready, i, e)
	q.p.wake()
}

func (q *queue) remove(e *entry) {
	i := slices.Index(q.ready, e)
	q.ready = slices.Delete(q.ready, i, i+1)
}

// available is how many requests could be handed out.
func (q *queue) available() (n int) {
	for _, e := range q.ready {
		if !e.locked {
			n++
		}
	}
	return n
}

// take hands out the first request that nobody works on, or nil.
func (q *queue) take() *entry {
	for i, e := range q.ready {
		if !e.locked {
			q.ready = slices.Delete(q.ready, i, i+1)
			e.queued, e.locked = false, true
			return e
		}
	}
	return nil
}
