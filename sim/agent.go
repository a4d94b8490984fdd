package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/kube"
	"github.com/fencelab/fencelab/sim/steps"
)

// resident is a process on a host, where it runs an agent in each boot.
type resident struct {
	p    *process
	host *host
	// peers are the processes of the same agent, by their hosts.
	peers map[string]*process
	agent controllers.Agent
	// next is the step that begins the agent's next one, and leaving says that there is none.
	next    *step
	leaving bool
}

// addAgents makes a process of an agent on every host.
func (b *Backend) addAgents(c controllers.Selection) {
	peers := make(map[string]*process, len(b.hosts))
	for _, h := range b.hosts {
		p := b.newProcess(c, scenarios.ProcessOn(c.Name, h.name), steps.PlaceAgent+h.name, h.at)
		p.resident = &resident{p: p, host: h, peers: peers}
		p.deps.Host = controllers.Host{Name: h.name, Node: h.kubelet.node}
		p.deps.Clock = wallClock{b.w, &h.kubelet.offset}
		p.deps.Decided = b.decided(c.Name, p, func() string { return h.name })
		peers[h.name] = p
		h.agents = append(h.agents, p)
		if c.FeedsWatchdog {
			h.feeder = p
			h.FedBy(p.actor.name)
		}
		b.processes = append(b.processes, p)
	}
}

// start begins an incarnation.
func (r *resident) start() {
	p := r.p
	p.begin(&p.uplink, &p.flights)
	p.up, p.actor.whole = true, p.uplink.limiter.Every > 0
	within := func(patience time.Duration) client.Client {
		g, store := gate{p, p.life, patience}, p.uplink.store
		// Without a cache every read is one of the API server.
		return uncached{kube.NewClient(kube.NewView(store), g, p.actor.name), kube.NewReader(store, g, p.actor.name)}
	}
	deps := p.deps
	deps.Client, deps.LiveWithin = within(apiTimeout), within
	deps.Live = deps.Client
	deps.Boot, deps.Watchdog, deps.Peers = boot{r.host, r.host.Boot(), p.registration.Name}, feeding{r, p.life}, asking{r, p.life}
	deps.Reboot = func(context.Context) error { return r.reboot(p.life) }
	agent, err := p.registration.NewAgent(deps)
	if err != nil {
		p.w.fail(fmt.Errorf("start %s: %w", p.actor.name, err))
		return
	}
	r.agent, r.leaving = agent, false
	p.w.emit(history.Event{Kind: history.ControllerStarted, Host: r.host.name, Actor: p.actor.name})
	r.stepAfter(workLatency)
}

// published returns what the agent's answers read; nil if it doesn't say that.
func (r *resident) published() any {
	if publisher, ok := r.agent.(controllers.Publisher); ok {
		return publisher.Published()
	}
	return nil
}

// publishes reports what a part of a Step has published.
func (r *resident) publishes(before any) {
	_, answers := r.agent.(controllers.Answerer)
	if now := r.published(); answers && (now == nil || !reflect.DeepEqual(before, now)) {
		r.p.w.comes(steps.Published)
	}
}

// uncached reads from the API server and writes to it.
type uncached struct {
	client.Client
	live client.Reader
}

// Get reads an object.
func (u uncached) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return u.live.Get(ctx, key, obj, opts...)
}

// List reads a list.
func (u uncached) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return u.live.List(ctx, list, opts...)
}

// stepAfter lets the agent's next step begin.
func (r *resident) stepAfter(pause time.Duration) {
	p := r.p
	r.next = p.schedule(&p.actor, steps.ClassTimer, steps.Deed{Verb: "step", On: steps.Object{Kind: "Process", Name: p.actor.name}}, r.host.clock.lasts(pause), func(trouble) {
		var next time.Duration
		p.flights.launch(&flight{p: p, body: func() (err error) {
			next, err = r.agent.Step(context.Background())
			return err
		}, done: func(f *flight) {
			if f.err != nil {
				p.failed("", f.err)
			}
			if r.leaving {
				r.leave()
				return
			}
			r.stepAfter(controllers.Pause(next))
		}})
	})
}

// retire ends the agent in order, once the step that it is in has ended.
func (r *resident) retire() {
	r.leaving, r.p.actor.whole = true, true
	r.p.w.emit(history.Event{Kind: history.ControllerStopping, Host: r.host.name, Actor: r.p.actor.name})
	if len(r.p.flights.aloft) == 0 {
		r.p.w.cancel(r.next)
		r.p.unlessPaused(r.p.life, r.leave)
	}
}

// leave has the agent retire, and ends its process as onhost does: it disarms the watchdog, unless
// the agent objects.
func (r *resident) leave() {
	p, bye := r.p, func() error { return nil }
	if agent, ok := r.agent.(controllers.Retirer); ok {
		bye = func() error { return agent.Retire(context.Background()) }
	}
	p.flights.launch(&flight{p: p, body: bye, done: func(f *flight) {
		if f.err != nil {
			p.failed("", f.err)
		} else {
			r.host.Disarm()
		}
		p.kill(death{note: "stopped in order"})
	}})
}

// boot is a boot of a host, as its processes find it. It implements controllers.Boot.
type boot struct {
	h           *host
	id, program string
}

func (b boot) ID() string            { return b.id }
func (b boot) Uptime() time.Duration { return b.h.clock.read(b.h.w.now) }
func (b boot) Load() ([]byte, error) { return b.h.kept[b.program], nil }
func (b boot) Save(state []byte) error {
	if b.h.kept == nil {
		b.h.kept = map[string][]byte{}
	}
	b.h.kept[b.program] = state
	return nil
}

// errGone is what a process hears that has nothing to say any more.
var errGone = errors.New("the process is gone")

// feeding is how one incarnation reaches the watchdog of its host. It implements
// controllers.Watchdog.
type feeding struct {
	r    *resident
	life int
}

// Timeout is how long the watchdog waits.
func (f feeding) Timeout() time.Duration { return f.r.host.WatchdogTime() }

// Feed lets the watchdog wait for its whole time again, as a step: a process may stand
// still between deciding to do so and doing it.
func (f feeding) Feed(context.Context) error {
	p, h := f.r.p, f.r.host
	if h.WatchdogTime() == 0 {
		return fmt.Errorf("the host %s has no watchdog", h.name)
	}
	c := &call{class: steps.ClassWatchdog, deed: h.deed("feed"), lost: func() error { return errGone }}
	c.run = func(_ bool, done func(error)) {
		p.unlessPaused(f.life, func() {
			h.Feed()
			done(nil)
		})
	}
	return p.flights.perform(f.life, c)
}

// reboot has the kernel reboot at once, which ends the process as well.
func (r *resident) reboot(life int) error {
	p := r.p
	c := &call{class: steps.ClassPower, deed: r.host.deed("reboot"), lost: func() error { return errGone }}
	c.run = func(bool, func(error)) {
		p.unlessPaused(life, func() {
			r.host.Reboot(p.actor.name, "rebooted by its agent")
		})
	}
	return p.flights.perform(life, c)
}

// asking is how one incarnation reaches its peers. It implements controllers.Peers.
type asking struct {
	r    *resident
	life int
}

var (
	errNoPeer      = errors.New("connect to the peer: connection refused")
	errPeerTimeout = errors.New("the peers did not all answer in time")
)

// Ask sends a request to each, as a step of its own. A peer whose host is off, or cut
// off, never answers.
func (a asking) Ask(_ context.Context, peers map[string][]string, request []byte, within time.Duration) map[string][]byte {
	answers := map[string][]byte{}
	c := &call{
		class: steps.ClassPeer, deed: steps.Deed{Verb: "ask", On: steps.Object{Kind: "Host"}}, lost: func() error { return errPeerTimeout },
		patience: within,
	}
	c.run = func(_ bool, done func(error)) {
		left := len(peers)
		if left == 0 {
			done(nil)
		}
		for _, node := range slices.Sorted(maps.Keys(peers)) {
			a.r.send(c, node, request, func(said []byte, err error) {
				if err == nil && !c.answered {
					answers[node] = said
				}
				if left--; left == 0 {
					done(nil)
				}
			})
		}
	}
	_ = a.r.p.flights.perform(a.life, c) // who has not answered is not among the answers
	return answers
}

// send brings a request to the peer on a Node's host, and its answer back.
func (r *resident) send(c *call, node string, request []byte, answered func([]byte, error)) {
	p, to := r.p, r.peers[r.p.cache.names.OfNode(node)]
	if to == nil {
		return // nothing is there
	}
	asker := p.actor.place
	if c.deed.Answers != "" {
		asker = steps.PlaceAgents // and then who has asked it, and so on
	}
	deed := steps.Deed{Verb: c.deed.Verb, On: steps.Object{Kind: "Host", Name: to.resident.host.name}, Answers: c.deed.Answers, Whole: to.actor.whole}
	p.w.schedule(&p.actor, steps.ClassPeer, deed, apiLatency, func(t trouble) {
		if t.fault != "" || !p.w.network.carries(p.uplink.at, to.uplink.at) {
			return
		}
		to.resident.asked(p.deps.Host.Node, asker, request, func(said []byte, err error) {
			p.w.comes(steps.Answered)
			if p.w.network.carries(to.uplink.at, p.uplink.at) {
				answered(said, err)
			}
		})
	})
}

// asked has the agent answer a request from a Node, as soon as its host lets it. Whoever is at the
// place of the asker goes on then.
func (r *resident) asked(from, asker string, request []byte, done func([]byte, error)) {
	p := r.p
	answerer, ok := r.agent.(controllers.Answerer)
	switch {
	case !r.host.Booted():
		return
	case !p.up || !ok:
		done(nil, errNoPeer)
		return
	}
	p.unlessPaused(p.life, func() {
		var said []byte
		p.flights.launch(&flight{p: p, answers: asker, body: func() (err error) {
			said, err = answerer.Answer(context.Background(), from, request)
			return err
		}, done: func(f *flight) { done(said, f.err) }})
	})
}
