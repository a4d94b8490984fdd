package sim

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/reboot"
	"github.com/fencelab/fencelab/controllers/release"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/sim/kube"
	"github.com/fencelab/fencelab/sim/steps"
)

// cache shows a process the objects of its kinds, each as of the last delivery. It shows a process
// that is down what the last incarnation knew.
type cache struct {
	p       *process
	kinds   []*kube.Kind
	streams []*stream
	// names map the objects to the hosts that they stand for.
	names  objects.Names
	view   *kube.View
	client *kube.Client
}

// open makes an empty cache for the present incarnation, and adds the clients of that to deps.
func (c *cache) open(deps controllers.Deps) (controllers.Deps, error) {
	p, store := c.p, c.p.uplink.store
	c.view = kube.NewView(store, c.kinds...)
	if !c.p.brought {
		c.view.ShareLists()
	}
	for _, index := range p.registration.Indexes {
		kind, err := store.Server().KindOf(index.Kind)
		if err != nil {
			return deps, fmt.Errorf("index for controller %s: %w", p.actor.name, err)
		}
		c.view.Index(kind, index.Field, index.Extract)
	}
	g := gate{p, p.life, apiTimeout}
	c.client = kube.NewClient(c.view, g, p.actor.name)
	c.client.Cache(p.registration.Cache)
	c.client.Speak(p.scheme)
	live := kube.NewReader(store, g, p.actor.name)
	if deps.Decided != nil {
		c.client.Saw, live.Saw = p.flights.saw, p.flights.saw
	}
	deps.Client, deps.Live = c.client, live
	deps.BMC = func(timeout time.Duration) http.RoundTripper {
		return transport{p, g.life, cmp.Or(timeout, bmcTimeout)}
	}
	deps.Power = func(timeout time.Duration) reboot.Power { return power{p, g.life, cmp.Or(timeout, bmcTimeout)} }
	deps.Storage = func(timeout time.Duration) release.Storage { return driver{p, g.life, timeout} }
	return deps, nil
}

// fill lists every kind, from a server that is behind by some time. All caches are filled before
// anything is handled, as a manager does.
func (c *cache) fill(stale time.Duration) {
	now := c.p.w.now
	found := make([][]kube.Change, len(c.streams))
	for i, s := range c.streams {
		s.last, s.expected = nil, 0
		if stale == 0 {
			found[i] = c.view.Relist(s.kind)
			continue
		}
		// The server was behind, but not before the topology was there.
		found[i] = c.view.RelistAsOf(s.kind, epoch.Add(max(0, now-stale)))
		for range c.view.Lag(s.kind) {
			s.expect()
		}
	}
	for i, s := range c.streams {
		for _, change := range found[i] {
			s.handle(change, low)
		}
	}
}

// changed takes note of a committed change of a kind.
func (c *cache) changed(kind *kube.Kind) {
	if !c.p.up {
		return
	}
	for _, s := range c.streams {
		if s.kind.Base() == kind && !s.frozen {
			s.expect()
		}
	}
}

// stream is the watch of one kind that feeds a process's cache, in order.
type stream struct {
	p    *process
	kind *kube.Kind
	// table is what the table of kinds has of it; nil for objects in another form than
	// their own type.
	table     *objects.Kind
	actor     actor
	listeners []listener
	frozen    bool
	// last is the last delivery that was scheduled: streams don't overtake themselves.
	last *step
	// expected is how many deliveries are scheduled.
	expected int
}

// listener is a loop that reconciles whatever keys returns for an object, or the object itself if
// keys is nil.
type listener struct {
	loop *loop
	keys func(context.Context, client.Reader, client.Object) []reconcile.Request
}

// expect schedules the delivery of one change.
func (s *stream) expect() {
	delay := watchLatency
	if s.last != nil {
		delay = max(delay, s.last.at-s.p.w.now)
	}
	delivery := s.p.schedule(&s.actor, steps.ClassDeliver, steps.Deed{Verb: "deliver", On: steps.Object{Kind: s.kind.Kind}, By: s}, delay, s.deliver)
	s.last = delivery
	s.expected++
	delivery.due = s.p.w.now + watchLatency // but for those before it that are late
}

func (s *stream) deliver(t trouble) {
	s.expected--
	switch {
	case s.frozen || !s.p.uplink.hears() || !s.p.cache.view.Pending(s.kind):
	case t.fault == scenarios.FaultRelist:
		s.relist()
	default:
		s.handle(s.p.cache.view.Deliver(s.kind), usual)
	}
}

// relist brings the cache to the present state; what lies between is never
// seen. What hasn't changed is looked at again as well, when nothing else is to be
// done: an informer reports it as an update, and controller-runtime how important that is.
func (s *stream) relist() {
	changes := s.p.cache.view.Relist(s.kind)
	changed := make(map[client.ObjectKey]bool, len(changes))
	for _, change := range changes {
		changed[change.Key] = true
		s.handle(change, usual)
	}
	for _, obj := range s.p.cache.view.Objects(s.kind) {
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
	s.p.w.schedule(&s.actor, steps.ClassDeliver, steps.Deed{Verb: steps.Lists, On: steps.Object{Kind: s.kind.Kind}}, expiredLatency, func(trouble) {
		switch {
		case life != s.p.life: // another process has listed, and watches
			s.thaw()
		case !s.p.uplink.hears():
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
		for range s.p.cache.view.Lag(s.kind) {
			s.expect()
		}
	}
}

// handle gives a change in the cache to the program.
func (s *stream) handle(change kube.Change, priority int) {
	if s.p.w.trace != nil && s.table != nil {
		s.p.w.trace.Learned(s.p.w.now, s.p.actor.name, s.p.cache.names, s.table, meta(change.Old), meta(change.New))
	}
	s.p.program.learn(s, change, priority)
}
