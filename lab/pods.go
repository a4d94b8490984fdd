package lab

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/lab/container"
	"github.com/fencelab/fencelab/lab/door"
	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/vms"
	"github.com/fencelab/fencelab/vms/guest/evidence"
	"github.com/fencelab/fencelab/vms/network"
)

// pods are the foreign Pods that act as controllers, on every host. Their kubelets pull their
// images from a registry of the lab, and they find the API server where every Pod looks for it: at
// the Service kubernetes. Behind that is one proxy for all of them. Its requests go through the
// gate of the agent that the Pod's token names.
type pods struct {
	proxy    *gate.Proxy
	server   http.RoundTripper // the way to the API server that begins behind the gates
	gates    map[podIdentity]podGate
	feeds    bool
	registry *container.Registry
}

// podIdentity holds the claims of a Pod's token: its user, and the Node that it is bound to.
type podIdentity struct{ user, node string }

// podGate sends requests of an agent to the API server.
type podGate struct {
	agent *agent
	http.RoundTripper
}

// addPods adds the images of Pods to the registry, installs their manifests, and gives each Pod a
// gate to the API server. The kubelets start the Pods once a manifest creates the DaemonSet.
func (b *Backend) addPods(c controllers.Selection, given *scenarios.Pods) error {
	if b.procs.pods == nil {
		if err := b.openPods(); err != nil {
			return err
		}
	}
	b.procs.pods.feeds = b.procs.pods.feeds || given.FeedsWatchdog
	for _, image := range given.Images {
		if err := b.procs.pods.registry.Add(given.File(image)); err != nil {
			return err
		}
	}
	for _, installed := range given.Installs {
		if err := b.install(manifestsOf(given.File(installed))); err != nil {
			return fmt.Errorf("install %s: %w", installed, err)
		}
	}
	for i := range b.plan.Spec.Topology.Hosts {
		host := &b.plan.Spec.Topology.Hosts[i]
		who := podIdentity{"system:serviceaccount:" + objects.Namespace + ":" + given.ServiceAccount, host.Node()}
		if _, taken := b.procs.pods.gates[who]; taken {
			return fmt.Errorf("the ServiceAccount %s is that of other Pods as well, so their requests can't be told apart", given.ServiceAccount)
		}
		a := b.newAgent(c, host.Name)
		a.again = a.startAgain
		b.procs.pods.gates[who] = podGate{a, a.through(b.procs.pods.server)}
	}
	return nil
}

// anyone is the way to the API server for clients with tokens of their own.
func (b *Backend) anyone() *rest.Config {
	config := rest.AnonymousClientConfig(b.plane.Config())
	config.CAData, config.ServerName = b.plane.CA(), cluster.ServerName
	return config
}

func (b *Backend) openPods() error {
	serving, err := b.plane.ProxyConfig()
	if err != nil {
		return err
	}
	serving.ClientAuth = tls.NoClientCert
	p := &pods{gates: make(map[podIdentity]podGate)}
	if p.registry, err = container.NewRegistry(); err != nil {
		return err
	}
	b.procs.pods = p
	p.proxy, err = b.plane.door.Serve(b.anyone(), func(next http.RoundTripper) http.RoundTripper {
		p.server = next
		return byToken{p.gates, b.plane.door.Through(next)}
	}, serving, gate.Client{})
	return err
}

// targets returns the addresses that nodes have to reach.
func (p *pods) targets() []network.Target {
	if p == nil {
		return nil
	}
	return []network.Target{{To: p.proxy.Address(), At: cluster.Service}, {To: p.registry.Address()}}
}

// tell adds the configuration for these Pods to that of a kubelet. at maps targets to the
// addresses where it reaches them.
func (p *pods) tell(k *evidence.Kubelet, at map[string]netip.AddrPort) {
	if p != nil {
		k.Services, k.Registry, k.PodsFeed = cluster.Services, "http://"+at[p.registry.Address()].String(), p.feeds
	}
}

func (p *pods) close(d *door.Door) error {
	if p == nil {
		return nil
	}
	err := p.registry.Close()
	if p.proxy != nil {
		err = errors.Join(err, d.Close(p.proxy))
	}
	return err
}

// byToken sends a request through the gate of the Pod that it comes from. Those of others go
// ungated.
type byToken struct {
	gates  map[podIdentity]podGate
	others http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t byToken) RoundTrip(request *http.Request) (*http.Response, error) {
	who, pod := identity(request)
	gate, known := t.gates[who]
	if !known {
		return t.others.RoundTrip(request)
	}
	gate.agent.isIn(pod)
	return gate.RoundTrip(request)
}

// isIn notes from which Pod the agent sends requests. The Pod changes when it is replaced; an agent
// that has to stay dead is dead in the new one, too.
func (a *agent) isIn(pod string) {
	before, _ := a.pod.Swap(pod).(string)
	if before == pod || before == "" {
		return
	}
	a.mu.Lock()
	dead := a.life != nil && a.life.dead
	a.mu.Unlock()
	if !dead {
		a.gone(false)
		return
	}
	a.b.tasks.Go(func() {
		if err := a.tell("", evidence.KillPod); err != nil {
			a.b.logf("kill %s: %v", a.name, err)
		}
	})
}

// podGone handles events in the guest of an agent in a foreign Pod.
func (a *agent) podGone(e vms.Event) {
	if e.Kind == vms.Kind(evidence.PodStopped) && e.Detail == a.pod.Load() {
		a.gone(false)
	}
}

// forget makes the next request begin another life, since no event reports the start of a foreign
// Pod.
func (a *agent) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.life != nil && a.life.dead {
		a.life = nil
	}
}

// identity returns the claims of the token of a request, and the UID of the Pod. It doesn't verify
// them. The API server does: a request with a token that it does not believe has no effect.
func identity(request *http.Request) (who podIdentity, pod string) {
	token, _ := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer ")
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return podIdentity{}, ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return podIdentity{}, ""
	}
	var claims struct {
		Subject string `json:"sub"`
		Bound   struct {
			Node struct {
				Name string `json:"name"`
			} `json:"node"`
			Pod struct {
				UID string `json:"uid"`
			} `json:"pod"`
		} `json:"kubernetes.io"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return podIdentity{}, ""
	}
	return podIdentity{claims.Subject, claims.Bound.Node.Name}, claims.Bound.Pod.UID
}
