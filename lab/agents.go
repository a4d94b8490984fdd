package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/manifests"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/lab/container"
	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/lab/hosts"
	"github.com/fencelab/fencelab/lab/inguest/program"
	thismachine "github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/lab/runner"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/vms"
	"github.com/fencelab/fencelab/vms/guest/evidence"
	"github.com/fencelab/fencelab/vms/keeper"
)

// watchdogDevice is the path of the watchdog in guests.
const watchdogDevice = "/dev/watchdog0"

// agent is a controller with a place: a program in a host's guest, which begins with each
// boot of it and ends with that. On real nodes it is in a Pod of a DaemonSet. Its way to
// the API server leads through the hosts' network, and then through a gate that stays when
// the program comes and goes. It is the judge of all that the program asks.
type agent struct {
	*proc
	// proxy is its own way to the API; nil if it is in a foreign Pod: these share one proxy.
	proxy *gate.Proxy
	guest func(context.Context, evidence.Command) error
	// pod is the UID of that Pod, a string, once it was heard of.
	pod atomic.Value
}

// impossibleAgents are the reasons why agents can't be run: those of other modules, and all where
// hosts have no guests.
func (b *Backend) impossibleAgents(spec *scenarios.Spec) (reasons []string) {
	var feeders []string
	for _, c := range spec.Controllers {
		if c.Pods != nil && c.Pods.FeedsWatchdog {
			feeders = append(feeders, c.Name)
		}
		r, err := b.set.Lookup(c.Name)
		if err != nil || r.Place != controllers.EveryHost {
			continue
		}
		if r.FeedsWatchdog {
			feeders = append(feeders, c.Name)
		}
		if b.options.models() {
			reasons = append(reasons, "the agent "+c.Name+": it runs in a host's guest, which a model host does not have; run with --hosts guest")
			continue
		}
		if _, err := controllers.Lookup(c.Name); err != nil {
			reasons = append(reasons, "the controller "+c.Name+": the lab's guests can run only fencelab's own agents")
		}
	}
	if len(feeders) > 1 && spec.HasPods() {
		reasons = append(reasons, strings.Join(feeders, " and ")+": a host has one watchdog, and each of these would feed it")
	}
	return reasons
}

// makeAgents makes the agents of the plan, and their network paths. Hosts are made later, with
// these paths in their configuration.
func (b *Backend) makeAgents() error {
	chosen, err := b.controllers()
	if err != nil {
		return err
	}
	for _, c := range chosen {
		if c.Place != controllers.EveryHost {
			continue
		}
		if given := b.plan.Spec.PodsOf(c.Name); given != nil {
			if err := b.addPods(c, given); err != nil {
				return fmt.Errorf("prepare the Pods of %s: %w", c.Name, err)
			}
			continue
		}
		if err := b.grant(c.Registration); err != nil {
			return fmt.Errorf("grant the agent %s its roles: %w", c.Name, err)
		}
		for i := range b.plan.Spec.Topology.Hosts {
			if err := b.addAgent(c, b.plan.Spec.Topology.Hosts[i].Name); err != nil {
				return err
			}
		}
		if b.options.realNodes() {
			if err := b.deploy(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// agentImage is on the disks of real nodes, which vms/node/build.sh makes.
const agentImage = "localhost/agent:1"

// deploy creates an agent's DaemonSet: the one that fencelab's users create, but for the
// way to the API server, which is that of the gate. Its Pods come with the Nodes.
func (b *Backend) deploy(c controllers.Selection) error {
	account, set := new(corev1.ServiceAccount), new(appsv1.DaemonSet)
	for _, document := range bytes.Split(manifests.Agent, []byte("\n---\n")) {
		var into client.Object
		switch {
		case bytes.Contains(document, []byte("\nkind: ServiceAccount\n")):
			into = account
		case bytes.Contains(document, []byte("\nkind: DaemonSet\n")):
			into = set
		default:
			continue
		}
		if err := yaml.UnmarshalStrict(document, into); err != nil {
			return fmt.Errorf("read the manifest of agents: %w", err)
		}
	}
	if err := b.plane.admin.Create(b.ctx, account); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the ServiceAccount of the agent %s: %w", c.Name, err)
	}
	set.Name = "fencelab-" + c.Name
	set.Spec.Selector.MatchLabels = map[string]string{"app": set.Name}
	set.Spec.Template.Labels = set.Spec.Selector.MatchLabels
	pod, no := &set.Spec.Template.Spec, false
	pod.AutomountServiceAccountToken = &no
	only := &pod.Containers[0]
	only.Image, only.ImagePullPolicy = agentImage, corev1.PullNever
	only.Args = []string{evidence.Program{Name: c.Name}.NodePath()}
	if !c.AsksPeers {
		only.Ports = nil
	}
	// part of the program's configuration
	isIdentity := func(name string) bool { return name == "identity" }
	pod.Volumes = slices.DeleteFunc(pod.Volumes, func(v corev1.Volume) bool { return isIdentity(v.Name) })
	only.VolumeMounts = slices.DeleteFunc(only.VolumeMounts, func(m corev1.VolumeMount) bool { return isIdentity(m.Name) })
	if b.options.Cluster == Kind {
		pod.NodeSelector = map[string]string{cluster.Label: keeper.Name()} // the cluster's own node is no host
	}
	if err := b.plane.admin.Create(b.ctx, set); err != nil {
		return fmt.Errorf("create the DaemonSet of the agent %s: %w", c.Name, err)
	}
	return nil
}

func (b *Backend) addAgent(c controllers.Selection, host string) error {
	user := runner.UserOf(c.Name)
	a := b.newAgent(c, host)
	a.again = a.startAgain
	serving, err := b.plane.ProxyConfig()
	if err != nil {
		return err
	}
	a.proxy, err = b.plane.door.Serve(b.plane.ConfigFor(user), a.through, serving, gate.Client{User: user})
	return err
}

func (b *Backend) newAgent(c controllers.Selection, host string) *agent {
	a := &agent{proc: &proc{b: b, name: scenarios.ProcessOn(c.Name, host), host: host, controller: c}}
	b.procs.agents = append(b.procs.agents, a)
	b.procs.processes = append(b.procs.processes, a.proc)
	return a
}

// through makes the agent's way to the API server.
func (a *agent) through(next http.RoundTripper) http.RoundTripper {
	heard := &earshot{next: a.b.plane.door.Through(next), heard: func() { a.b.record.Heard(a.name) }}
	return &gate.Gate{Judge: a, Read: gate.API(a.b.kinds), Next: heard, UserAgent: a.name}
}

// earshot notices that an agent hears the API server: it asks again what it has asked before,
// with nothing but answers in between, or watches. That its process runs says less, since the
// network and the first look of a slow guest take their time, and an agent that has heard
// nothing yet in its boot does not act as one that was cut off.
type earshot struct {
	next  http.RoundTripper
	heard func()

	mu sync.Mutex
	// asked are the requests that were answered since the last failure.
	asked map[string]bool
}

// RoundTrip implements http.RoundTripper.
func (h *earshot) RoundTrip(request *http.Request) (*http.Response, error) {
	what := request.Method + " " + request.URL.Path
	h.mu.Lock()
	again := h.asked[what]
	h.mu.Unlock()
	response, err := h.next.RoundTrip(request)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil || response.StatusCode >= http.StatusInternalServerError:
		h.asked = nil
	case again || request.URL.Query().Has("watch"):
		h.heard()
	case h.asked == nil:
		h.asked = map[string]bool{what: true}
	default:
		h.asked[what] = true
	}
	return response, err
}

// identify makes the certificate by which agents on a host are known to their peers.
func (b *Backend) identify(node string) (_ *program.Identity, err error) {
	if b.plane.peers == nil {
		if b.plane.peers, err = cluster.NewPeers(); err != nil {
			return nil, err
		}
	}
	certificate, key, err := b.plane.peers.Issue(node)
	return &program.Identity{Certificate: certificate, Key: key, Authority: b.plane.peers.CA()}, err
}

// programs returns the programs of a host's agents. api holds the address at which guests reach
// the proxy of each.
func (b *Backend) programs(host *scenarios.Host, api map[string]netip.AddrPort) ([]vms.Program, error) {
	var programs []vms.Program
	for _, a := range b.procs.agents {
		if a.host != host.Name || a.proxy == nil {
			continue
		}
		user := runner.UserOf(a.controller.Name)
		config := b.plane.ConfigFor(user)
		config.Host, config.ServerName = "https://"+api[a.proxy.Address()].String(), cluster.ServerName
		kubeconfig, err := cluster.Kubeconfig(config)
		if err != nil {
			return nil, err
		}
		settings, err := json.Marshal(a.controller.Settings)
		if err != nil {
			return nil, fmt.Errorf("write the settings of %s: %w", a.name, err)
		}
		told := program.Config{
			Kubeconfig: kubeconfig, Agent: a.controller.Name, Settings: settings, Overlay: a.controller.Overlay,
			Host: controllers.Host{Name: host.Name, Node: host.Node()}, InPod: b.options.realNodes(),
		}
		feeds := a.controller.FeedsWatchdog && host.Watchdog > 0
		if feeds {
			told.Watchdog = watchdogDevice
		}
		if a.controller.AsksPeers {
			if told.Identity, err = b.identify(host.Node()); err != nil {
				return nil, err
			}
		}
		data, err := json.Marshal(told)
		if err != nil {
			return nil, fmt.Errorf("write the configuration of %s: %w", a.name, err)
		}
		programs = append(programs, vms.Program{Program: evidence.Program{Name: a.controller.Name, FeedsWatchdog: feeds}, Config: data})
	}
	return programs, nil
}

// feeder is the agent that feeds the watchdog of a host, or nil.
func (b *Backend) feeder(host string) *agent {
	for _, a := range b.procs.agents {
		if a.host == host && a.controller.FeedsWatchdog {
			return a
		}
	}
	return nil
}

// programmed handles events of programs in guests: one runs, one is gone, or all of a boot are.
func (b *Backend) programmed(e vms.Event, at time.Duration) {
	if e.Late {
		return
	}
	for _, a := range b.procs.agents {
		if a.host != e.Host {
			continue
		}
		switch {
		case e.Kind == vms.PoweredOff, e.Kind == vms.Reset:
			a.gone(true)
		case a.proxy == nil:
			a.podGone(e)
		case e.Process != a.controller.Name:
		case e.Kind == vms.Kind(evidence.ProgramStarted):
			a.started(at)
		case e.Kind == vms.Kind(evidence.ProgramStopped):
			a.gone(false)
		}
	}
}

// started begins an incarnation of a program that is ready, unless the program has asked for
// something before it was heard of.
func (a *agent) started(at time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.life != nil && a.life.up && !a.life.dead {
		return
	}
	a.begin().up = true
	a.b.record.Put(history.Event{At: at, Kind: history.ControllerStarted, Host: a.host, Actor: a.name})
}

// begin is called with mu held.
func (a *agent) begin() *life {
	a.life = &life{p: a.proc, done: make(chan struct{})}
	a.life.incarnation = inGuest{a, a.life.done}
	return a.life
}

// gone ends the incarnation: its process is gone, perhaps with the whole boot.
func (a *agent) gone(boot bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.life
	if boot && a.proxy == nil {
		a.life = nil // the first request of the next boot begins another
	}
	if l == nil {
		if !boot && !a.over && a.proxy != nil {
			a.b.record.Fail(fmt.Errorf("the program of %s has not started: see the console of %s", a.name, a.host))
		}
		return
	}
	select {
	case <-l.done:
		return
	default:
		close(l.done)
	}
	switch {
	case !l.dead && !boot && a.b.options.realNodes():
		// Its Pod may have been deleted, with the Node for example. What becomes of the host then
		// is the story's.
		a.life = nil
		a.b.record.Now(history.Event{Kind: history.ControllerCrashed, Host: a.host, Actor: a.name, Note: "its container ended"})
	case !l.dead && !boot && !a.over:
		a.b.record.Fail(fmt.Errorf("the program of %s has exited: see the console of %s", a.name, a.host))
	case !l.dead:
		a.life = nil
	}
}

// startAgain lets the program run again, if its boot goes on: another one has a program of
// its own.
func (a *agent) startAgain() error {
	if a.proxy == nil {
		a.forget()
	}
	if err := a.tell(evidence.StartProgram, evidence.StartPod); err != nil {
		a.b.logf("%s could not be restarted, perhaps because its host is off: %v", a.name, err)
	}
	return nil
}

// tell sends a command for the program, or for the Pod that it is in, to the guest.
func (a *agent) tell(program, pod evidence.Command) error {
	command := program.Of(a.controller.Name)
	if a.proxy == nil {
		uid, _ := a.pod.Load().(string)
		command = pod.Of(uid)
	}
	ctx, cancel := thismachine.WithBudget(a.b.ctx, hosts.CommandTimeout)
	defer cancel()
	return a.guest(ctx, command)
}

// endBoot ends the incarnation for the rest of the boot. The guest kills the programs that feed the
// watchdog, but knows of no Pods.
func (a *agent) endBoot() error {
	a.mu.Lock()
	if a.life != nil && !a.life.dead {
		a.life.dead = true
		a.b.record.Now(history.Event{Kind: history.ControllerCrashed, Actor: a.name, Note: "stopped"})
	}
	a.mu.Unlock()
	if a.proxy != nil {
		return nil
	}
	return a.tell("", evidence.KillPod)
}

// Asked implements gate.Judge.
func (a *agent) Asked(ctx context.Context, r gate.Request) error {
	a.mu.Lock()
	l := a.life
	if l == nil && !a.over {
		l = a.begin()
	}
	a.mu.Unlock()
	if l == nil {
		return errDead
	}
	return l.Asked(ctx, r)
}

// Answered implements gate.Judge.
func (a *agent) Answered(r gate.Request, answer gate.Answer) error {
	a.mu.Lock()
	l := a.life
	a.mu.Unlock()
	if l == nil {
		return errDead
	}
	return l.Answered(r, answer)
}

// closeAgents ends the ways of the agents.
func (b *Backend) closeAgents() error {
	var errs []error
	for _, a := range b.procs.agents {
		if a.proxy != nil {
			errs = append(errs, b.plane.door.Close(a.proxy))
		}
	}
	return errors.Join(append(errs, b.procs.pods.close(b.plane.door))...)
}

// inGuest is one incarnation of an agent. Its guest may not hear for a while.
type inGuest struct {
	*agent
	done chan struct{}
}

func (g inGuest) Kill() {
	go func() {
		for g.b.ctx.Err() == nil {
			err := g.tell(evidence.KillProgram, evidence.KillPod)
			select {
			case <-g.done:
				return
			case <-time.After(restartDelay):
			}
			if err != nil {
				g.b.logf("kill %s: %v", g.name, err)
			}
		}
	}()
}

func (g inGuest) Ended() <-chan struct{}            { return g.done }
func (inGuest) Ready() (string, *container.Network) { return "", nil }
func (inGuest) Failure() error                      { return nil }
func (g inGuest) Pause() error                      { return g.tell(evidence.PauseProgram, evidence.PausePod) }
func (g inGuest) Resume() error                     { return g.tell(evidence.ResumeProgram, evidence.ResumePod) }
