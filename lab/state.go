package lab

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/lab/hosts"
)

// State lists the running parts of a lab, and their condition.
type State struct {
	// API is the URL of the API server, and APIError why it is not ready.
	API      string `json:"api"`
	APIError string `json:"apiError,omitempty"`
	// Hypervisor is the URI of the libvirt that others can connect to; empty without one.
	Hypervisor      string `json:"hypervisor,omitempty"`
	HypervisorError string `json:"hypervisorError,omitempty"`
	// Logs is the directory of what controllers and hosts say.
	Logs string `json:"logs"`
	// BMCUser is the user name for the BMCs.
	BMCUser     string            `json:"bmcUser"`
	Hosts       []HostState       `json:"hosts"`
	Controllers []ControllerState `json:"controllers"`
	// Failure is why the lab can't go on.
	Failure string `json:"failure,omitempty"`
}

// HostState is the condition of a host. Power is its physical state, Node the state in the API.
type HostState struct {
	Name  string `json:"name"`
	Power string `json:"power"`
	Node  string `json:"node"`
	BMC   string `json:"bmc"`
	// Domain is its name in the hypervisor, if it is there.
	Domain string `json:"domain,omitempty"`
}

// ControllerState is that of a controller or an agent: up, or why not.
type ControllerState struct {
	Name  string `json:"name"`
	State string `json:"state"`
}

// works is the state of a controller that is up.
const works = "up"

// Problems are the reasons why the lab is not as it should be. What happens to hosts is no
// problem of the lab's.
func (s *State) Problems() (problems []string) {
	if s.APIError != "" {
		problems = append(problems, "the API server is not ready: "+s.APIError)
	}
	if s.HypervisorError != "" {
		problems = append(problems, s.HypervisorError)
	}
	for _, c := range s.Controllers {
		if c.State != works {
			problems = append(problems, "the controller "+c.Name+" "+c.State)
		}
	}
	if s.Failure != "" {
		problems = append(problems, s.Failure)
	}
	return problems
}

// stateTimeout bounds what is asked for a State.
const stateTimeout = 5 * time.Second

// State says how the lab is, which has been started.
func (b *Backend) State(ctx context.Context) *State {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	s := &State{API: b.plane.Config().Host, Logs: b.dir, BMCUser: hosts.BMCUser}
	if err := b.ready(ctx); err != nil {
		s.APIError = err.Error()
	}
	var err error
	if s.Hypervisor, err = b.hosts.Machines.Hypervisor(); err != nil {
		s.HypervisorError = err.Error()
	}
	for _, name := range b.hosts.Names {
		s.Hosts = append(s.Hosts, b.hostState(ctx, name))
	}
	for _, p := range b.procs.processes {
		s.Controllers = append(s.Controllers, ControllerState{p.name, p.state()})
	}
	if err := b.record.Failed(); err != nil {
		s.Failure = err.Error()
	}
	return s
}

// Lacks lists what has to come up before a story could begin, and is empty once it has.
func (b *Backend) Lacks() []string { return b.record.Lacks() }

// Kubeconfig is an administrator's, of a lab that has been started.
func (b *Backend) Kubeconfig() ([]byte, error) { return cluster.Kubeconfig(b.plane.Config()) }

// BMCPassword is that of the BMCs' user, of a lab that has been started.
func (b *Backend) BMCPassword() string { return b.hosts.BMCs.Password }

// ready asks the API server whether it is.
func (b *Backend) ready(ctx context.Context) error {
	config := b.plane.Config()
	asking, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer asking.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := asking.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1000))
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", answer.Status, text)
	}
	return err
}

func (b *Backend) hostState(ctx context.Context, name string) HostState {
	h := HostState{Name: name, BMC: b.hosts.BMCs.SystemAt(name), Domain: b.hosts.ByName[name].DomainName()}
	power, err := b.hosts.ByName[name].PowerState()
	if h.Power = string(power); err != nil {
		h.Power = "unknown: " + err.Error()
	}
	var node corev1.Node
	switch err := b.plane.admin.Get(ctx, client.ObjectKey{Name: b.plan.Spec.Topology.NodeOf(name)}, &node); {
	case apierrors.IsNotFound(err):
		h.Node = "there is none"
	case err != nil:
		h.Node = "unknown: " + err.Error()
	case slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}):
		h.Node = "Ready"
	default:
		h.Node = "not Ready"
	}
	return h
}

// state says whether the process is up, or why not.
func (p *proc) state() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.life
	if l == nil {
		return "has not started yet"
	}
	select {
	case <-l.done:
		return "is down"
	default:
	}
	switch {
	case l.dead:
		return "is going down"
	case l.paused:
		return "stands still"
	case !l.up:
		return "has asked for nothing yet"
	}
	return works
}
