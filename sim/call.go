package sim

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/kube"
	"github.com/fencelab/fencelab/sim/steps"
)

// uplink connects a process to the API server and to the BMCs.
type uplink struct {
	w *world
	// at names the process in the links of the network.
	at string
	// host is the end of the host that the story has put it on, "" without one.
	host      string
	store     *kube.Store
	api       *apiServer
	bmcs      map[string]*fakebmc.BMC
	addresses *addresses
	// faces has the Redfish services of the BMCs that a client has asked over HTTP.
	faces map[string]*redfish.Face
	// storage has the volume; nil without one.
	storage *storage
	// via is the protocol by which it commands BMCs.
	via string
	// limiter bounds how often it asks the API server.
	limiter limiter
}

func (u *uplink) end() { u.limiter.next = 0 }

// reaches reports whether requests to the API server are answered, writes whether writes are, and
// hears whether changes in it arrive.
func (u *uplink) reaches() bool { return u.hears() && u.sends() }
func (u *uplink) writes() bool  { return u.api.takes() && u.reaches() }
func (u *uplink) hears() bool   { return u.api.answers() && u.carries(scenarios.API, "") }
func (u *uplink) sends() bool   { return u.carries("", scenarios.API) }

// carries reports whether a message gets through; "" stands for the process. It takes the process's
// own link and that of its host.
func (u *uplink) carries(from, to string) bool {
	n := &u.w.network
	return n.carries(cmp.Or(from, u.at), cmp.Or(to, u.at)) && (u.host == "" || n.carries(cmp.Or(from, u.host), cmp.Or(to, u.host)))
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

// call is what a reconcile waits for: an API call or a BMC request.
type call struct {
	class steps.Class
	// deed is what it is in the words of a step, and actor takes that step.
	deed  steps.Deed
	actor *actor
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
	// fails says that the call fails once its process is gone, in place of ending its goroutine,
	// for which others of a library wait.
	fails bool
	// resume lets a goroutine in the bubble go on that waits for the answer; nil for a
	// coroutine.
	resume func()
}

func (c *call) what() string {
	if c.effect == "" {
		return "a read"
	}
	return c.effect
}

// impatient is what a client says that has waited long enough.
func (c *call) impatient() error {
	switch c.class {
	case steps.ClassPeer:
		return errPeerTimeout
	case steps.ClassBMC:
		return fmt.Errorf("the BMC did not answer within %s", c.patience)
	case steps.ClassStorage:
		return fmt.Errorf("the storage did not answer within %s", c.patience)
	default:
		return fmt.Errorf("the API server did not answer within %s", c.patience)
	}
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
	if m, ok := g.p.program.(*managed); ok {
		return m.perform(ctx, g.life, c, k.String()+" "+string(k.Patch), k.String())
	}
	return g.p.flights.perform(g.life, c)
}

// serve performs the call that a reconcile waits for, as a step of its own.
func (p *process) serve(f *flight, c *call) {
	life := p.life
	latency := apiLatency
	switch c.class {
	case steps.ClassAPI:
		latency += p.uplink.limiter.wait(p.w.now)
	case steps.ClassBMC, steps.ClassStorage:
		latency = bmcLatency
	case steps.ClassWatchdog:
		latency = workLatency
	}
	f.sent, c.actor = append(f.sent, c), f.actor()
	if f.reconciler != nil { // which makes one call at a time, unlike a reconcile in the bubble
		c.deed.Request = f.entry.text
	}
	c.deed.Answers = f.answers
	arrival := p.w.schedule(c.actor, c.class, c.deed, latency, func(t trouble) {
		switch {
		case c.givenUp:
			p.executeOverdue(c, "executed after its client had given up")
		case life == p.life:
			p.arrive(f, c, t)
		}
	})
	// The clients of BMCs start their time limit when they send, and the request arrives all the
	// same. The same holds for agents, whose own hosts depend on it.
	if (c.class == steps.ClassBMC || p.resident != nil && c.patience > 0) && arrival.at > p.w.now+latency+c.patience {
		p.w.schedule(c.actor, steps.ClassTimeout, steps.Deed{Verb: "give up", On: c.deed.On, Request: c.deed.Request, Answers: f.answers}, c.patience, func(trouble) {
			if life != p.life || arrival.index < 0 {
				return
			}
			f.received(c)
			c.givenUp, c.overdue, arrival.makeOdd().overdue = true, true, true
			p.answer(f, c, c.impatient())
		})
	}
}

// arrive performs a call where it is for, and lets go wrong what the plan says.
func (p *process) arrive(f *flight, c *call, t trouble) {
	var crash *scenarios.CrashOp
	if c.effect != "" {
		crash = p.crash.Due(c.effect)
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
			p.crash.Effect(c.effect)
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
		c.timeout = p.w.schedule(c.actor, steps.ClassTimeout, steps.Deed{Verb: "give up", On: c.deed.On, Request: c.deed.Request, Answers: f.answers}, c.patience, func(trouble) { done(c.impatient()) })
	}
}

// answer hands a call's result to the reconcile and lets it go on.
func (p *process) answer(f *flight, c *call, err error) {
	if c.answered {
		return
	}
	c.answered = true
	c.err = err
	if p.runs(p.life) {
		p.flights.proceed(f, c)
		return
	}
	p.unlessPaused(p.life, func() { p.flights.proceed(f, c) })
}

// execute performs a call and calls done, at once or later.
func (p *process) execute(c *call, ignored bool, done func(error)) {
	if c.api != nil {
		p.uplink.api.execute(p.actor.name, &p.uplink, c.api, done)
		return
	}
	c.run(ignored, done)
}

// executeLate executes an effect when nobody waits for it any more.
func (p *process) executeLate(c *call, by time.Duration) {
	late := p.w.schedule(c.actor, steps.ClassLate, c.deed, by, func(trouble) {
		c.overdue = true
		p.executeOverdue(c, "executed "+by.String()+" late")
	})
	late.makeOdd().overdue = true
}

// executeOverdue executes a request that nobody waits for any more.
func (p *process) executeOverdue(c *call, note string) {
	p.execute(c, false, func(err error) {
		if err == nil && c.effect != "" {
			p.w.emit(history.Event{Kind: history.ControllerEffect, Actor: p.actor.name, Value: c.effect, Note: note})
		}
	})
}
