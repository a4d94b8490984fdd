package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/kube"
)

// peerTimeout is when an agent gives up on a peer that doesn't answer.
const peerTimeout = 5 * time.Second

// addAgents makes a process of an agent on every host.
func (b *Backend) addAgents(c controllers.Selection) {
	peers := make(map[string]*process, len(b.hosts))
	for _, h := range b.hosts {
		p := &process{
			w: b.w, actor: actor{name: scenarios.ProcessOn(c.Name, h.name), place: placeAgent}, at: h.at, store: b.store, api: b.api, registration: c.Registration,
			bmcs: b.bmcs, threads: &b.sim.threads, host: h, peers: peers,
			deps: controllers.Deps{Settings: c.Settings, Overlay: c.Overlay, Host: controllers.Host{Name: h.name, Node: h.kubelet.node}},
		}
		p.deps.Clock = wallClock{b.w, &h.kubelet.offset}
		p.deps.Warn = b.warner(p)
		p.deps.Decided = b.decided(c.Name, p, func() string { return h.name })
		peers[h.name] = p
		h.agents = append(h.agents, p)
		if c.FeedsWatchdog {
			h.feeder = p
			h.arm()
		}
		b.processes = append(b.processes, p)
	}
}

// startAgent is a new incarnation of a process on a host.
func (p *process) startAgent() {
	p.life++
	p.up = true
	reader := func(patience time.Duration) client.Reader {
		return kube.NewReader(p.store, gate{p, p.life, patience}, p.actor.name)
	}
	deps := p.deps
	deps.Live, deps.LiveWithin = reader(apiTimeout), reader
	// Without a cache every read is one of the API server.
	deps.Client = uncached{kube.NewClient(kube.NewView(p.store), gate{p, p.life, apiTimeout}, p.actor.name), deps.Live}
	deps.Watchdog, deps.Peers = feeding{p, p.life}, asking{p, p.life}
	agent, err := p.registration.NewAgent(deps)
	if err != nil {
		p.w.fail(fmt.Errorf("start %s: %w", p.actor.name, err))
		return
	}
	p.agent = agent
	p.w.emit(history.Event{Kind: history.ControllerStarted, Host: p.host.name, Actor: p.actor.name})
	p.stepAfter(workLatency)
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
func (p *process) stepAfter(pause time.Duration) {
	life := p.life
	p.w.schedule(&p.actor, ClassTimer, deed{verb: "step", on: Object{"Process", p.actor.name}}, pause, func(trouble) {
		p.unlessPaused(life, func() {
			var next time.Duration
			p.launch(&flight{}, func() (err error) {
				next, err = p.agent.Step(context.Background())
				return err
			}, func(f *flight) {
				if f.err != nil {
					p.w.emit(history.Event{Kind: history.ControllerError, Host: p.host.name, Actor: p.actor.name, Value: f.err.Error()})
				}
				p.stepAfter(controllers.Pause(next))
			})
		})
	})
}

// dieWithBoot ends the process with the boot that it runs in. That is not a crash: the
// end of a boot ends all that runs in it.
func (p *process) dieWithBoot() {
	p.life++
	p.up, p.paused, p.held = false, false, nil
	p.abandon()
}

// feeding is how one incarnation reaches the watchdog of its host. It implements
// controllers.Watchdog.
type feeding struct {
	p    *process
	life int
}

// Feed lets the watchdog wait for its whole time again.
func (f feeding) Feed(context.Context) error {
	switch h := f.p.host; {
	case f.life != f.p.life:
		return errors.New("the process is gone")
	case h.timings.watchdog == 0:
		return fmt.Errorf("the host %s has no watchdog", h.name)
	default:
		h.fed = h.w.now
		return nil
	}
}

// asking is how one incarnation reaches its peers. It implements controllers.Peers.
type asking struct {
	p    *process
	life int
}

var (
	errNoPeer      = errors.New("connect to the peer: connection refused")
	errPeerTimeout = fmt.Errorf("the peer did not answer within %s", peerTimeout)
)

// Ask sends a request as a step. A peer whose host is off, or cut off, never answers.
func (a asking) Ask(_ context.Context, host string, request []byte) ([]byte, error) {
	p := a.p
	to := p.peers[host]
	if to == nil {
		return nil, fmt.Errorf("ask the peer on %s: the topology has no such host", host)
	}
	var answer []byte
	c := &call{
		class: ClassPeer, deed: deed{verb: "ask", on: Object{"Host", host}}, lost: func() error { return errPeerTimeout },
		patience: peerTimeout, impatient: func() error { return errPeerTimeout },
	}
	c.run = func(_ bool, done func(error)) {
		if !p.w.network.carries(p.at, to.at) {
			return
		}
		to.asked(p.host.name, request, func(said []byte, err error) {
			if p.w.network.carries(to.at, p.at) {
				answer = said
				done(err)
			}
		})
	}
	err := p.perform(a.life, c)
	return answer, err
}

// asked has the agent answer a request, as soon as its host lets it.
func (p *process) asked(from string, request []byte, done func([]byte, error)) {
	answerer, ok := p.agent.(controllers.Answerer)
	switch {
	case !p.host.booted:
		return
	case !p.up || !ok:
		done(nil, errNoPeer)
		return
	}
	p.unlessPaused(p.life, func() {
		var said []byte
		p.launch(&flight{}, func() (err error) {
			said, err = answerer.Answer(context.Background(), from, request)
			return err
		}, func(f *flight) { done(said, f.err) })
	})
}
