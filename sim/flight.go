package sim

import (
	"context"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios/page"
	"github.com/fencelab/fencelab/sim/kube"
)

// flights holds what a process has begun and not ended: reconciles, and the steps and answers of an
// agent.
type flights struct {
	p       *process
	threads *threads
	// aloft lists them; running is the one that has the processor, if any.
	aloft   []*flight
	running *flight
	// slow counts the times that one kept the simulator waiting.
	slow int
}

// end unwinds those that run as coroutines.
func (a *flights) end() {
	aloft := a.aloft
	a.aloft = a.aloft[:0]
	for _, f := range aloft {
		if f.thread != nil {
			f.thread.kill()
			a.threads.put(f.thread)
		}
	}
}

// of is the reconcile of a request that is under way, or nil.
func (a *flights) of(t ticket) *flight {
	for _, f := range a.aloft {
		if f.entry.ticket == t {
			return f
		}
	}
	return nil
}

// land takes one from those that are aloft.
func (a *flights) land(f *flight) {
	i := slices.Index(a.aloft, f)
	a.aloft = slices.Delete(a.aloft, i, i+1)
}

// executeLate has the world execute later what they have sent, though nobody waits for it.
func (a *flights) executeLate(by time.Duration) {
	for _, f := range a.aloft {
		for _, c := range f.sent {
			if c.effect != "" {
				a.p.executeLate(c, by)
			}
		}
	}
}

// flight is a reconcile that has begun and not ended.
type flight struct {
	p      *process
	entry  *entry
	thread *coroutine
	// reconciler works on the request; nil for what an agent does, which is body.
	reconciler reconcile.Reconciler
	body       func() error
	// answers is the place of the agent that it answers, "" for none.
	answers string
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
	// readings holds the last reading of each object.
	readings []kube.Reading
}

// saw notes a reading of the flight that runs.
func (a *flights) saw(r kube.Reading) {
	if a.running == nil {
		return // nothing asks what was read in a bubble
	}
	all := &a.running.readings
	*all = append(slices.DeleteFunc(*all, func(old kube.Reading) bool { return old.Kind == r.Kind && old.Name == r.Name }), r)
}

// launch runs a flight up to its first call.
func (a *flights) launch(f *flight) {
	f.thread, f.sent = a.threads.get(), f.first[:0]
	f.thread.mark.Timed = a.p.w.trace != nil
	a.aloft = append(a.aloft, f)
	a.next(f, a.run(f, func() *call { return f.thread.run(f) }))
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
	f.result, f.err = f.reconciler.Reconcile(context.Background(), f.entry.request)
}

// next serves the call that a flight has come to, or concludes the flight when there is none.
func (a *flights) next(f *flight, c *call) {
	if c != nil {
		a.p.serve(f, c)
		return
	}
	a.land(f)
	a.threads.put(f.thread)
	if f.panic != nil {
		// controller-runtime recovers panics and retries as well.
		f.err = f.panic
	}
	if f.done != nil {
		f.done(f)
		return
	}
	a.p.queue.finish(f)
}

// perform suspends the flight that runs until the call is answered.
func (a *flights) perform(life int, c *call) error {
	f := a.running
	if life != a.p.life || f == nil {
		panic(killed{})
	}
	f.thread.suspend(c)
	return c.err
}

// proceed lets a flight go on behind a call.
func (a *flights) proceed(f *flight, c *call) {
	if c.resume != nil {
		c.resume()
		return
	}
	a.next(f, a.run(f, f.thread.resume))
}

// run gives a flight the processor up to its next call, which it returns, or nil at its end.
func (a *flights) run(f *flight, on func() *call) *call {
	tells := a.p.resident != nil && f.answers == "" && a.p.w.came != nil
	var before any
	if tells {
		before = a.p.resident.published()
	}
	a.running = f
	c := on()
	a.timed(f.thread)
	a.running = nil
	if tells {
		a.p.resident.publishes(before)
	}
	return c
}

// again returns in how long the flight asked to be called again, in the words of the trace.
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

// actor takes the steps of the flight.
func (f *flight) actor() *actor {
	if f.entry == nil {
		return &f.p.actor
	}
	return f.entry.of.actor
}

// received takes a call from those that are on their way.
func (f *flight) received(c *call) {
	f.sent = slices.DeleteFunc(f.sent, func(sent *call) bool { return sent == c })
}
