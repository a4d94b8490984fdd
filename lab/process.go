package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/lab/gate"
	thismachine "github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/lab/runner"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
)

const (
	// A program that ends by itself is started again, as a kubelet does, after a time that doubles
	// up to maxBackoff. One that was never up is given up after its last attempt.
	maxBackoff = 30 * time.Second
	attempts   = 3
)

// running holds the running controllers, and their runner.
type running struct {
	runner    runner.Runner
	within    runner.Runner // of this process, whatever the other is
	programs  []runner.Runner
	processes []*proc
	agents    []*agent
	pods      *pods // nil unless controllers are Pods
	// refusals and schedule hold the faults that the scenario and the plan apply to their
	// requests.
	refusals refusals
	schedule *schedule
}

// proc is one controller that can be killed alone, around each of its effects, and
// that starts again.
type proc struct {
	b *Backend
	// name is that of the controller, or of its second process.
	name       string
	controller controllers.Selection
	// program starts its own programs; both are nil for a controller of fencelab's or of a module,
	// which the lab's runner starts.
	program  *scenarios.Program
	programs *runner.Programs
	// host is where it runs, if it has a place; again lets it run again there.
	host  string
	again func() error
	// second says that the scenario has started it beside another one.
	second bool
	// lease says which of several processes of the controller leads; empty for the only one.
	lease string

	mu    sync.Mutex
	life  *life
	crash scenarios.CrashPlan
	// falls counts how often a program has ended by itself since it was up.
	falls int
	over  bool
	// told holds the last version of each object that it received, over all its lives.
	told map[*objects.Kind]learned
	// stale is the age of the lists with which its next incarnation begins.
	stale time.Duration
}

// life is one incarnation of a process, and the judge of all that it asks: nothing that it
// does after it was killed gets out any more.
type life struct {
	p           *proc
	incarnation runner.Incarnation
	proxies     []*gate.Proxy // its ways to the BMCs, and to Ironic
	ironic      string        // the URL of the latter
	// done is closed when the incarnation has ended and its proxies are closed.
	done chan struct{}

	// Guarded by p.mu.
	up, dead, paused bool
	// back is the time at which the next incarnation starts, once this is dead; zero if its host
	// starts it.
	back time.Time
	// faults maps IDs of requests to the faults that strike once they are answered.
	faults map[uint64]scenarios.StepFault
	// stale is the version as of which its caches are filled, empty for the present one; listed are
	// the kinds that were.
	stale  string
	listed map[*objects.Kind]bool
}

func (b *Backend) startControllers() error {
	chosen, err := b.controllers()
	if err != nil {
		return err
	}
	for _, c := range chosen {
		if c.Place != controllers.Cluster {
			continue // it began with its host
		}
		if b.plan.Spec.ProgramOf(c.Name) == nil {
			if err := b.grant(c.Registration); err != nil {
				return fmt.Errorf("grant the controller %s its roles: %w", c.Name, err)
			}
		}
		p := &proc{b: b, name: c.Name, controller: c}
		if p.program = b.plan.Spec.ProgramOf(c.Name); p.program != nil {
			p.programs = b.starts(p.program)
		}
		b.procs.processes = append(b.procs.processes, p)
		if err := b.replicate(p); err != nil {
			return fmt.Errorf("prepare the processes of the controller %s: %w", c.Name, err)
		}
		// A health check must not take the first boots of emulated nodes for failures.
		if c.StartsAfterNodes || b.options.realNodes() {
			b.tasks.Go(func() { p.startLast() })
			continue
		}
		if err := p.start(); err != nil {
			return fmt.Errorf("controller %s: %w", c.Name, err)
		}
	}
	return nil
}

// startLast starts the process when the Nodes are up.
func (p *proc) startLast() {
	if !p.b.nodesUp() {
		return
	}
	if err := p.start(); err != nil && p.b.ctx.Err() == nil {
		p.b.record.Fail(fmt.Errorf("start controller %s: %w", p.name, err))
	}
}

// grant binds a controller's own role to its user, and nothing more: a role that
// lacks a verb must be found here and not in production.
func (b *Backend) grant(r controllers.Registration) error {
	controller := r.Name
	user := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: runner.UserOf(controller)}
	role := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	}
	err := b.plane.admin.Create(b.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "lab-" + controller}, Subjects: []rbacv1.Subject{user}, RoleRef: role("fencelab-" + controller),
	})
	if err != nil || !r.NeedsBMCSecrets {
		return err
	}
	return b.plane.admin.Create(b.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: objects.Namespace, Name: "lab-" + controller},
		Subjects:   []rbacv1.Subject{user}, RoleRef: role("fencelab-bmc-credentials"),
	})
}

// start is a new incarnation.
func (p *proc) start() error {
	l := &life{p: p, done: make(chan struct{})}
	p.b.plane.door.Begin(p.name)
	through, err := l.open()
	if err != nil {
		return errors.Join(err, l.closeProxies())
	}
	p.mu.Lock()
	over := p.over
	if !over {
		p.life = l // it may ask for something at once
	}
	if p.stale > 0 {
		l.stale, p.stale = p.b.record.Versions.AsOf(p.b.since()-p.stale), 0
	}
	p.mu.Unlock()
	if over {
		return l.closeProxies()
	}
	controller, starter := p.controller, p.b.procs.runner
	if controller.ReachesStorage {
		controller.Storage, starter = p.b.reach(p.name), p.b.procs.within
	}
	if l.ironic != "" {
		controller = commanding(controller, l.ironic)
	}
	if p.program != nil {
		starter = p.programs.At(l.ironic, l.addresses()...)
	}
	started, err := starter.Start(p.b.ctx, p.name, controller, p.lease, through)
	p.mu.Lock()
	l.incarnation = started
	dead := l.dead
	p.mu.Unlock()
	switch {
	case err != nil:
		p.mu.Lock()
		p.life = nil
		p.mu.Unlock()
		return errors.Join(err, l.closeProxies())
	case dead:
		started.Kill() // around its first effect
	}
	if at, in := started.Ready(); at != "" {
		p.b.tasks.Go(func() {
			ready, err := runner.Up(p.b.ctx, at, in, thismachine.Budget(p.b.options.readyWithin()), started.Ended())
			if err != nil && p.b.ctx.Err() == nil {
				p.b.record.Fail(fmt.Errorf("the controller %s: %w", p.name, err))
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if ready {
				l.rise()
			}
		})
	}
	go func() {
		defer close(l.done)
		<-started.Ended()
		if err := l.closeProxies(); err != nil {
			p.b.record.Fail(fmt.Errorf("close the connections of the controller %s to the BMCs: %w", p.name, err))
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if !l.dead && !p.over && p.b.ctx.Err() == nil {
			p.fall(l)
		}
	}()
	return nil
}

// failed records what a reconcile came to. What its own death cost it is no error of its own.
func (b *Backend) failed(process, about string, err error) {
	if errors.Is(err, errDead) {
		return
	}
	e := history.Event{Kind: history.ControllerError, Actor: process, Object: about, Value: err.Error()}
	if p := (*controllers.PanicError)(nil); errors.As(err, &p) {
		e.Kind, e.Value, e.Note = history.ControllerPanicked, fmt.Sprint(p.Value), p.Where
	}
	b.record.Now(e)
}

// fall handles an incarnation that ended by itself. A program is started again, as a kubelet would
// do, and so is a process that no longer has its Lease, and in a lab that is kept any controller.
// It is called with mu held.
func (p *proc) fall(l *life) {
	failure := fmt.Errorf("the controller %s: %w", p.name, l.incarnation.Failure())
	if l.up {
		p.falls = 0
	}
	p.falls++
	if p.program == nil && p.lease == "" && !p.b.options.Kept || !l.up && p.falls >= attempts {
		p.b.record.Fail(failure)
		return
	}
	p.b.logf("%v", failure)
	p.b.record.Now(history.Event{Kind: history.ControllerCrashed, Actor: p.name, Note: "ended by itself"})
	p.reviveAfter(l, min(restartDelay<<(p.falls-1), maxBackoff))
}

// reviveAfter lets another incarnation start, when l has ended and a time is over. It is called
// with mu held.
func (p *proc) reviveAfter(l *life, delay time.Duration) {
	late := time.Duration(0)
	if d, deviates := p.b.procs.schedule.step(p.name, "start Process/"+p.name, false); deviates && d.Fault == scenarios.FaultStaleList {
		p.stale = max(p.stale, time.Duration(d.Delay))
	} else if deviates {
		late = time.Duration(d.Delay)
	}
	back := time.Now().Add(delay)
	l.back = back
	go func() {
		<-l.done
		if !thismachine.Sleep(p.b.ctx, delay) || !p.awaits(l, back) {
			return
		}
		if late > 0 && p.b.procs.schedule.wait(p.b.ctx, late) != nil {
			return
		}
		p.revive(l)
	}()
}

// awaits reports whether it is still at that time that a new incarnation starts after l: a crash of
// a process that is down already can keep it down for longer.
func (p *proc) awaits(l *life, back time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.back.Equal(back)
}

// arm makes the process crash, now or around an effect to come.
func (p *proc) arm(c *scenarios.CrashOp) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.crash.Arm(c) {
		p.kill(c, "")
	}
}

// due is the crash at this point of an effect that comes next, or nil. It is called with mu held.
func (p *proc) due(point scenarios.CrashPoint, effect string) *scenarios.CrashOp {
	if c := p.crash.Due(effect); c != nil && c.Point == point {
		return c
	}
	return nil
}

// kill ends the incarnation and lets another one start. It is called with mu
// held.
func (p *proc) kill(c *scenarios.CrashOp, note string) {
	l := p.life
	if l == nil {
		return
	}
	downtime := max(restartDelay, time.Duration(c.RestartAfter))
	if l.dead {
		if !p.over && !l.back.IsZero() && time.Now().Add(downtime).After(l.back) {
			p.reviveAfter(l, downtime) // it is down already, and for longer now
		}
		return
	}
	l.die()
	p.stale = max(p.stale, time.Duration(c.StaleBy))
	p.crash.Died()
	p.b.record.Now(history.Event{Kind: history.ControllerCrashed, Actor: p.name, Note: note, Hinders: scenarios.SentBefore(p.name, time.Duration(c.LateBy))})
	p.reviveAfter(l, downtime)
}

// die kills the incarnation. It is called with p.mu held.
func (l *life) die() {
	l.dead = true
	if l.incarnation != nil { // else start is still at it
		l.incarnation.Kill()
	}
}

// revive starts a new incarnation after l, unless somebody else has.
func (p *proc) revive(l *life) {
	p.mu.Lock()
	current := p.life == l && !p.over
	p.mu.Unlock()
	if !current {
		return
	}
	again := p.start
	if p.again != nil {
		again = p.again
	}
	if err := again(); err != nil && p.b.ctx.Err() == nil {
		p.b.record.Fail(fmt.Errorf("restart controller %s: %w", p.name, err))
	}
}

// startSecond starts another process of a controller, or the one that was stopped
// before.
func (b *Backend) startSecond(controller string) error {
	for _, p := range b.procs.processes {
		if p.name != controller {
			continue
		}
		second := &proc{b: b, name: history.Process(controller, 2), controller: p.controller, programs: p.programs, program: p.program, second: true}
		b.procs.processes = slices.DeleteFunc(b.procs.processes, func(p *proc) bool { return p.name == second.name })
		b.procs.processes = append(b.procs.processes, second)
		return second.start()
	}
	return fmt.Errorf("the controller %q is not part of this run", controller)
}

func (b *Backend) stopSecond(controller string) error {
	for _, p := range b.procs.processes {
		if p.name == history.Process(controller, 2) {
			p.end()
			return nil
		}
	}
	return fmt.Errorf("there is no second process of the controller %q", controller)
}

// end ends the process for good: nothing that it does gets out any more.
func (p *proc) end() {
	p.mu.Lock()
	if p.life != nil && !p.life.dead {
		p.life.die()
		p.b.record.Now(history.Event{Kind: history.ControllerCrashed, Actor: p.name, Note: "stopped"})
	}
	p.mu.Unlock()
	p.stop()
}

// stand lets the process stand still, or go on.
func (p *proc) stand(still bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.life
	if l == nil || l.dead || l.incarnation == nil || l.paused == still {
		return nil
	}
	l.paused = still
	if still {
		return l.incarnation.Pause()
	}
	return l.incarnation.Resume()
}

// What a heal does with a process: see scenarios.Running.

func (p *proc) Plays(name string) bool { return p.name == name }
func (p *proc) Second() bool           { return p.second }
func (p *proc) Resume() error          { return p.stand(false) }

func (p *proc) End() error {
	p.end()
	return nil
}

func (p *proc) Mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crash = scenarios.CrashPlan{}
}

// Revive doesn't wait for the time that its crash set.
func (p *proc) Revive() error {
	p.mu.Lock()
	l := p.life
	dead := l != nil && l.dead
	p.mu.Unlock()
	if dead {
		<-l.done
		p.revive(l)
	}
	return nil
}

func (p *proc) stop() {
	p.mu.Lock()
	p.over = true
	l := p.life
	if l != nil && p.host == "" {
		l.die()
	} else if l != nil {
		l.dead = true // it goes with its host
	}
	p.mu.Unlock()
	if l != nil && p.host == "" {
		<-l.done
	}
}

// open makes the ways of an incarnation: proxies to the BMCs, and the gate to the API
// server, where the BMCs have the addresses of their proxies.
func (l *life) open() (gate.Way, error) {
	b, show, ways := l.p.b, make(map[string]string), make(map[string]string)
	for host, target := range b.hosts.BMCs.URLs {
		proxy, err := gate.ServeEither(target, &gate.Gate{Judge: l, Read: b.hosts.BMCs.Understands(host), Next: b.hosts.BMCs.Transport(l.p.name)}, b.hosts.BMCs.Secure)
		if err != nil {
			return nil, err
		}
		l.proxies = append(l.proxies, proxy)
		show[target.Host], ways[host] = proxy.Address(), proxy.Address()
	}
	if b.ironic != nil {
		proxy, err := b.ironic.serve(l, l.p.name, ways)
		if err != nil {
			return nil, err
		}
		l.proxies, l.ironic = append(l.proxies, proxy), proxy.URL()
	}
	addresses := gate.NewAddresses(show)
	judge := b.limited(l)
	var listener gate.Listener
	if b.procs.schedule.listening() {
		listener = l
	}
	return func(next http.RoundTripper) http.RoundTripper {
		return &gate.Gate{Judge: judge, Listener: listener, Read: gate.API(b.kinds), Next: b.plane.door.Through(next), UserAgent: l.p.name, Addresses: addresses}
	}, nil
}

// limited holds the requests of an incarnation to the API server as its client would do by
// itself, if the plan limits how often that asks.
type limited struct {
	*life
	limit flowcontrol.RateLimiter
}

func (b *Backend) limited(l *life) gate.Judge {
	for _, c := range b.plan.Spec.Controllers {
		if limit := c.RateLimit; c.Name == l.p.controller.Name && limit != nil {
			return limited{l, flowcontrol.NewTokenBucketRateLimiter(float32(1/time.Duration(limit.Every).Seconds()), limit.Burst)}
		}
	}
	return l
}

// Asked implements gate.Judge.
func (l limited) Asked(ctx context.Context, r gate.Request) error {
	if r.Verb != "" {
		if err := l.limit.Wait(ctx); err != nil {
			return err
		}
	}
	return l.life.Asked(ctx, r)
}

// addresses returns the addresses of its proxies to the BMCs and to Ironic.
func (l *life) addresses() []string {
	addresses := make([]string, len(l.proxies))
	for i, proxy := range l.proxies {
		addresses[i] = proxy.Address()
	}
	return addresses
}

func (l *life) closeProxies() error {
	var errs []error
	for _, proxy := range l.proxies {
		errs = append(errs, proxy.Close())
	}
	return errors.Join(errs...)
}

// rise notes that the incarnation is up. It is called with p.mu held.
func (l *life) rise() {
	if !l.up && !l.dead {
		l.up = true
		e := history.Event{Kind: history.ControllerStarted, Host: l.p.host, Actor: l.p.name}
		if l.stale != "" && l.p.program == nil {
			e.Note = "from old lists"
		}
		l.p.b.record.Now(e)
	}
}

// Asked implements gate.Judge.
func (l *life) Asked(ctx context.Context, r gate.Request) error {
	if err := l.asks(r); err != nil {
		return err
	}
	if d, deviates := l.p.b.procs.schedule.step(l.p.name, r.Deed, r.Effect != ""); deviates {
		if err := l.deviate(ctx, r, d); err != nil {
			return err
		}
	}
	return l.arrives(r)
}

// asks notes that the incarnation asks for something.
func (l *life) asks(r gate.Request) error {
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.dead {
		return errDead
	}
	if p.program == nil || p.program.Ready == "" {
		l.rise() // it has come up when it first asks for something
	}
	if l.stale != "" && r.Fills && r.Verb == "" && !l.listed[r.Watches] {
		return &gate.Refusal{Code: http.StatusUnprocessableEntity, Message: "the plan has it list first"} // as clients do then
	}
	return nil
}

// arrives decides the fate of a request that arrives at the server.
func (l *life) arrives(r gate.Request) error {
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.dead {
		return errDead
	}
	if w := r.Warning; w != nil {
		p.b.record.Now(history.Event{Kind: history.ControllerWarning, Actor: p.name, Object: w.About, Value: w.Reason, Note: w.Message})
	}
	if code := p.b.procs.refusals.code(p.name, r.Verb, r.Kind); r.Verb != "" && code != 0 {
		object := r.Kind + "/" + r.Name
		p.b.record.Now(history.Event{Kind: history.APIFault, Actor: p.name, Object: object, Value: fmt.Sprint(code), Note: r.Verb})
		return &gate.Refusal{Code: code, Message: "the scenario has the API server refuse to " + r.Verb + " " + object}
	}
	p.b.record.Writers.Asks(r.Effect, p.name)
	if c := p.due(scenarios.CrashBefore, r.Effect); c != nil && r.Effect != "" {
		p.kill(c, "before "+r.Effect)
		if late := time.Duration(c.LateBy); late > 0 {
			return l.late(r, errDead, late, executedLate(late))
		}
		return errDead
	}
	if r.Effect != "" {
		p.b.record.Writers.Sends(r.Kind+"/"+r.Name, p.name)
	}
	return nil
}

// Answered implements gate.Judge.
func (l *life) Answered(r gate.Request, a gate.Answer) error {
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.b.record.Writers.Done(r.Kind+"/"+r.Name, p.name)
	fault := l.faults[r.ID]
	delete(l.faults, r.ID)
	if a.Err == nil && a.Status >= http.StatusBadRequest {
		p.b.record.Writers.Refused(r.Effect, p.name)
	}
	if a.Err != nil || a.Status >= http.StatusBadRequest {
		return l.answerDeviates(r, fault) // no effect, as far as anybody knows: the caller gets it as it is
	}
	if a.Version != "" {
		p.b.record.Writers.Wrote(a.Version, p.name)
	}
	if a.Released {
		p.b.record.Writers.Released(r.Kind+"/"+r.Name, p.name)
	}
	if l.dead {
		return errDead
	}
	p.b.record.Now(history.Event{Kind: history.ControllerEffect, Actor: p.name, Value: r.Effect})
	if err := l.answerDeviates(r, fault); err != nil {
		if fault == scenarios.FaultErrorAfter {
			p.crash.Effect(r.Effect)
		}
		return err
	}
	if c := p.due(scenarios.CrashAfter, r.Effect); c != nil {
		p.kill(c, "after "+r.Effect)
		return errDead
	}
	p.crash.Effect(r.Effect)
	return nil
}

// answerDeviates does with an answer what the plan says. It is called with p.mu held.
func (l *life) answerDeviates(r gate.Request, fault scenarios.StepFault) error {
	switch fault {
	case scenarios.FaultCrashAfter:
		l.p.kill(deviating, "after "+r.Effect)
		return errDead
	case scenarios.FaultErrorAfter:
		return errLost
	}
	return nil
}
