package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/reboot"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
)

// Controllers speak through the history. controller-runtime's own logger complains
// when nobody has set it.
func init() { ctrl.SetLogger(logr.Discard()) }

// restartDelay is how long a controller is down at least.
const restartDelay = 500 * time.Millisecond

// errDead is what a killed process's requests end with, before they are sent.
var errDead = errors.New("the process was killed")

// process is one controller under a manager of its own, so that it can be killed
// alone. A killed one may still run some code, but nothing that it does gets out
// any more.
type process struct {
	b *Backend
	// name is that of the controller, or of its second process.
	name       string
	controller controllers.Selection
	// second says that the scenario has started it beside another one.
	second bool

	mu    sync.Mutex
	life  *life
	crash *scenarios.CrashOp
	// effects counts those since the crash was armed.
	effects int
	over    bool
}

// life is one incarnation of a process.
type life struct {
	dead   bool
	cancel context.CancelFunc
	done   chan struct{}
}

func (b *Backend) startControllers() error {
	chosen, err := objects.Controllers(b.set, &b.plan.Spec)
	if err != nil {
		return err
	}
	for _, c := range chosen {
		if err := b.grant(c.Registration); err != nil {
			return fmt.Errorf("grant the controller %s its roles: %w", c.Name, err)
		}
		p := &process{b: b, name: c.Name, controller: c}
		b.processes = append(b.processes, p)
		if c.StartsAfterNodes {
			b.observers.Go(func() { p.startLast() })
			continue
		}
		if err := p.start(); err != nil {
			return fmt.Errorf("controller %s: %w", c.Name, err)
		}
	}
	return nil
}

// startLast starts the process when all Nodes are Ready.
func (p *process) startLast() {
	select {
	case <-p.b.stream.nodesReady:
		if err := p.start(); err != nil && p.b.ctx.Err() == nil {
			p.b.stream.fail(fmt.Errorf("start controller %s: %w", p.name, err))
		}
	case <-p.b.ctx.Done():
	}
}

// userOf is the user that a controller authenticates as.
func userOf(controller string) string { return "fencelab:" + controller }

// grant binds a controller's own role to its user, and nothing more: a role that
// lacks a verb must be found here and not in production.
func (b *Backend) grant(r controllers.Registration) error {
	controller := r.Name
	user := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: userOf(controller)}
	role := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	}
	err := b.admin.Create(b.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "lab-" + controller}, Subjects: []rbacv1.Subject{user}, RoleRef: role("fencelab-" + controller),
	})
	if err != nil || !r.NeedsBMCSecrets {
		return err
	}
	return b.admin.Create(b.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: objects.Namespace, Name: "lab-" + controller},
		Subjects:   []rbacv1.Subject{user}, RoleRef: role("fencelab-bmc-credentials"),
	})
}

// start is a new incarnation.
func (p *process) start() error {
	ctx, cancel := context.WithCancel(p.b.ctx)
	l := &life{cancel: cancel, done: make(chan struct{})}
	run, err := p.manager(l)
	if err != nil {
		cancel()
		return err
	}
	p.mu.Lock()
	p.life = l
	p.mu.Unlock()
	p.b.stream.now(history.Event{Kind: history.ControllerStarted, Actor: p.name})
	go func() {
		defer close(l.done)
		err := run.Start(ctx)
		p.mu.Lock()
		dead := l.dead || p.over
		p.mu.Unlock()
		if err != nil && !dead && p.b.ctx.Err() == nil {
			p.b.stream.fail(fmt.Errorf("controller %s ended: %w", p.name, err))
		}
	}()
	return nil
}

// manager makes a manager with the one controller, all of whose effects pass
// through gates.
func (p *process) manager(l *life) (ctrl.Manager, error) {
	config := p.b.cluster.ConfigFor(userOf(p.controller.Name))
	config.UserAgent = p.name
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &gate{p, l, next} })
	cache := p.controller.Cache
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: p.b.set.Scheme(), Logger: logr.Discard(), Client: client.Options{Cache: &cache},
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	if err != nil {
		return nil, err
	}
	selection := p.controller
	construct := selection.New
	selection.New = func(d controllers.Deps) (reconcile.Reconciler, error) {
		d.Power = func(timeout time.Duration) reboot.Power { return &powerGate{p, l, reboot.NewRedfish(d.Live, timeout)} }
		warn := d.Warn
		d.Warn = func(about client.Object, reason, message string) {
			p.b.stream.now(history.Event{Kind: history.ControllerWarning, Actor: p.name, Object: about.GetName(), Value: reason, Note: message})
			warn(about, reason, message)
		}
		return construct(d)
	}
	return mgr, controllers.SetupWithManager(mgr, selection)
}

// arm makes the process crash, now or around an effect to come.
func (p *process) arm(c *scenarios.CrashOp) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.Effect == 0 && !c.Each {
		p.kill(c, "")
		return
	}
	p.crash, p.effects = c, 0
}

// due reports whether the next effect is one around which to crash. It is called
// with mu held.
func (p *process) due(point scenarios.CrashPoint) bool {
	return p.crash != nil && p.crash.Point == point && (p.crash.Each || p.effects+1 == p.crash.Effect)
}

// kill ends the incarnation and lets another one start. It is called with mu
// held.
func (p *process) kill(c *scenarios.CrashOp, note string) {
	if p.life == nil || p.life.dead {
		return
	}
	p.life.dead = true
	p.life.cancel()
	if p.crash != nil && !p.crash.Each {
		p.crash = nil
	}
	p.b.stream.now(history.Event{Kind: history.ControllerCrashed, Actor: p.name, Note: note})
	l := p.life
	delay := max(restartDelay, time.Duration(c.RestartAfter))
	go func() {
		<-l.done
		select {
		case <-time.After(delay):
		case <-p.b.ctx.Done():
			return
		}
		p.revive(l)
	}()
}

// revive starts a new incarnation after l, unless somebody else has.
func (p *process) revive(l *life) {
	p.mu.Lock()
	current := p.life == l && !p.over
	p.mu.Unlock()
	if !current {
		return
	}
	if err := p.start(); err != nil && p.b.ctx.Err() == nil {
		p.b.stream.fail(fmt.Errorf("restart controller %s: %w", p.name, err))
	}
}

// startSecond starts another process of a controller, or the one that was stopped
// before.
func (b *Backend) startSecond(controller string) error {
	for _, p := range b.processes {
		if p.name != controller {
			continue
		}
		second := &process{b: b, name: scenarios.Process(controller, 2), controller: p.controller, second: true}
		b.processes = slices.DeleteFunc(b.processes, func(p *process) bool { return p.name == second.name })
		b.processes = append(b.processes, second)
		return second.start()
	}
	return fmt.Errorf("the controller %q is not part of this run", controller)
}

func (b *Backend) stopSecond(controller string) error {
	for _, p := range b.processes {
		if p.name == scenarios.Process(controller, 2) {
			p.end()
			return nil
		}
	}
	return fmt.Errorf("there is no second process of the controller %q", controller)
}

// end ends the process for good: nothing that it does gets out any more.
func (p *process) end() {
	p.mu.Lock()
	if p.life != nil && !p.life.dead {
		p.life.dead = true
		p.b.stream.now(history.Event{Kind: history.ControllerCrashed, Actor: p.name, Note: "stopped"})
	}
	p.mu.Unlock()
	p.stop()
}

// heal disarms the crash. A process that is down comes back by itself, within
// the time that its crash set.
func (p *process) heal() {
	if p.second {
		p.end()
		return
	}
	p.mu.Lock()
	p.crash = nil
	l := p.life
	dead := l != nil && l.dead
	p.mu.Unlock()
	if dead {
		<-l.done
		p.revive(l)
	}
}

func (p *process) stop() {
	p.mu.Lock()
	p.over = true
	l := p.life
	p.mu.Unlock()
	if l != nil {
		l.cancel()
		<-l.done
	}
}

// effect performs something that a controller does to the world, around which it
// may crash.
func (p *process) effect(l *life, what string, do func() error) error {
	p.mu.Lock()
	switch {
	case l.dead:
		p.mu.Unlock()
		return errDead
	case p.due(scenarios.CrashBefore):
		p.kill(p.crash, "before "+what)
		p.mu.Unlock()
		return errDead
	}
	p.mu.Unlock()
	if err := do(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.dead {
		return errDead
	}
	p.b.stream.now(history.Event{Kind: history.ControllerEffect, Actor: p.name, Value: what})
	if p.due(scenarios.CrashAfter) {
		p.kill(p.crash, "after "+what)
		return errDead
	}
	p.effects++
	return nil
}

func (l *life) isDead(p *process) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.dead
}

// gate is the way of an incarnation's requests to the API server.
type gate struct {
	p    *process
	life *life
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (g *gate) RoundTrip(request *http.Request) (*http.Response, error) {
	if !g.life.isDead(g.p) {
		if response := g.p.refuse(request); response != nil {
			return response, nil
		}
	}
	what := apiEffect(request)
	if what == "" {
		if g.life.isDead(g.p) {
			return nil, errDead
		}
		return g.next.RoundTrip(request)
	}
	if object, ok := strings.CutPrefix(what, "delete "); ok {
		g.p.b.writers.deletes(object, g.p.name)
	}
	var response *http.Response
	err := g.p.effect(g.life, what, func() (err error) {
		response, err = g.next.RoundTrip(request)
		if err == nil && response.StatusCode >= 400 {
			return errRefused // no effect: the caller gets the answer as it is
		}
		if err == nil {
			err = g.sign(response)
		}
		return err
	})
	switch {
	case errors.Is(err, errRefused):
		return response, nil
	case err != nil && response != nil:
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		return nil, err
	}
	return response, err
}

// sign notes whose the version in an answer is.
func (g *gate) sign(response *http.Response) error {
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	if version := versionIn(body); version != "" {
		g.p.b.writers.wrote(version, g.p.name)
	}
	return err
}

var errRefused = errors.New("the API server refused")

// verbs and kinds name effects as the simulator does.
var (
	verbs = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}
	kinds = map[string]string{
		"nodes": "Node", "pods": "Pod", "leases": "Lease", "secrets": "Secret",
		"baremetalhosts": "BareMetalHost", "machines": "Machine", "machinehealthchecks": "MachineHealthCheck",
	}
)

// apiEffect is what a request does to the objects that matter, such as "delete
// Node/worker-1", or "" when it changes none of them.
func apiEffect(request *http.Request) string {
	if verb, kind, name := about(request); verb != "" && verbs[request.Method] != "" {
		return verb + " " + kind + "/" + name
	}
	return ""
}

// nameInBody is the name of the object that a request creates.
func nameInBody(request *http.Request) string {
	if request.GetBody == nil {
		return ""
	}
	body, err := request.GetBody()
	if err != nil {
		return ""
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		return ""
	}
	var created struct{ Metadata struct{ Name string } }
	if json.Unmarshal(data, &created) == nil {
		return created.Metadata.Name
	}
	// Built-in kinds travel as protobuf, behind four bytes that say so.
	var object runtime.Unknown
	var pod corev1.Pod
	if len(data) > 4 && object.Unmarshal(data[4:]) == nil && pod.Unmarshal(object.Raw) == nil {
		return pod.Name // metadata is the first field of every kind
	}
	return ""
}

// powerGate is the way of an incarnation's commands to the BMCs.
type powerGate struct {
	p    *process
	life *life
	next reboot.Power
}

// State implements reboot.Power.
func (g *powerGate) State(ctx context.Context, host *api.BareMetalHost) (reboot.PowerState, error) {
	if g.life.isDead(g.p) {
		return reboot.Unreachable, errDead
	}
	defer g.errand(host, "")()
	return g.next.State(ctx, host)
}

// On implements reboot.Power.
func (g *powerGate) On(ctx context.Context, host *api.BareMetalHost) error {
	return g.command(ctx, host, fakebmc.ResetOn, g.next.On)
}

// ShutDown implements reboot.Power.
func (g *powerGate) ShutDown(ctx context.Context, host *api.BareMetalHost) error {
	return g.command(ctx, host, fakebmc.ResetGracefulShutdown, g.next.ShutDown)
}

// Off implements reboot.Power.
func (g *powerGate) Off(ctx context.Context, host *api.BareMetalHost) error {
	return g.command(ctx, host, fakebmc.ResetForceOff, g.next.Off)
}

func (g *powerGate) command(ctx context.Context, host *api.BareMetalHost, reset fakebmc.ResetType, send func(context.Context, *api.BareMetalHost) error) error {
	return g.p.effect(g.life, "bmc "+string(reset)+" "+host.Name, func() error {
		defer g.errand(host, "")() // it reads where to send the command
		defer g.errand(host, reset)()
		return send(ctx, host)
	})
}

// errand lets the BMC's events name the controller until done is called.
func (g *powerGate) errand(host *api.BareMetalHost, reset fakebmc.ResetType) (done func()) {
	key := errand{host.Name, reset}
	g.p.b.errands.Store(key, g.p.name)
	return func() { g.p.b.errands.Delete(key) }
}
