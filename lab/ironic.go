package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/fencelab/fencelab/controllers"
	rebootcontroller "github.com/fencelab/fencelab/controllers/reboot"
	ironicpower "github.com/fencelab/fencelab/controllers/reboot/ironic"
	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/lab/hosts"
	"github.com/fencelab/fencelab/lab/ironic"
	thismachine "github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
)

// ironicActor is Ironic's name in the history for what it does unasked.
const ironicActor = "ironic"

// askedLately is for how long after a command was accepted Ironic may send it in the name of
// whoever gave it: it does so at once, or has found nothing to do.
const askedLately = 10 * time.Second

// ironicOwner is an Ironic that owns the BMCs. Controllers command the hosts through it, each
// through a gate of its own, and it reaches the BMCs through proxies, so that the history records
// whose command a reset was: that of a controller that asked for it, or one that Ironic gave by
// itself.
type ironicOwner struct {
	bmcs     *hosts.BMCs
	since    func() time.Duration
	own      *ironic.Ironic // nil: somebody else's
	endpoint *url.URL
	names    []string // of nodes
	proxies  []*gate.Proxy
	ways     map[string]string // host:port of its ways to the BMCs, by the host

	mu    sync.Mutex
	hosts map[string]string     // by the names and the UUIDs of their nodes
	asked map[string]commission // by host
}

// commission is a controller's request to Ironic.
type commission struct {
	client, reset string
	at            time.Duration
}

// start starts an Ironic, if there is none at an endpoint, and has it adopt the hosts, which are
// on.
func (o *ironicOwner) start(ctx context.Context, endpoint string, behaves *scenarios.Ironic, from images, all *hosts.Hosts) (err error) {
	o.bmcs, o.hosts, o.ways, o.asked = all.BMCs, make(map[string]string), make(map[string]string), make(map[string]commission)
	if endpoint == "" {
		o.own, err = ironic.Launch(ctx, ironic.Options{
			Bin: behaves.Bin, Image: from.open[behaves.Image], SyncInterval: time.Duration(behaves.SyncInterval), PowerTimeout: time.Duration(behaves.PowerTimeout),
			Enrolls: behaves.Enrolls,
		})
		if err != nil {
			return err
		}
		endpoint = o.own.URL()
	}
	if o.endpoint, err = url.Parse(endpoint); err != nil {
		return fmt.Errorf("connect to Ironic: %w", err)
	}
	for _, host := range all.Names {
		proxy, err := gate.Serve(o.bmcs.URLs[host], &gate.Gate{Judge: gate.Everything{}, Read: o.bmcs.Understands(host), Next: &toBMC{o, host}}, nil, gate.Client{})
		if err != nil {
			return err
		}
		o.proxies, o.ways[host] = append(o.proxies, proxy), proxy.Address()
		node := ironicpower.NodeName(objects.Namespace, host)
		o.hosts[node], o.names = host, append(o.names, node)
		err = ironic.Adopt(ctx, endpoint, ironic.Host{
			Name: node, Address: proxy.URL(), System: o.bmcs.Systems[host], Username: hosts.BMCUser, Password: o.bmcs.Password,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// close ends Ironic, or has it forget the hosts, and returns what it has logged.
func (o *ironicOwner) close(ctx context.Context) ([]play.Artifact, error) {
	if o == nil {
		return nil, nil
	}
	var errs []error
	var logs []play.Artifact
	if o.own != nil {
		logs = append(logs, play.Artifact{Name: "ironic.log", Data: append(o.own.Log(), '\n')})
		errs = append(errs, o.own.Stop())
	} else if o.endpoint != nil {
		ctx, cancel := thismachine.WithBudget(context.WithoutCancel(ctx), hosts.CommandTimeout)
		defer cancel()
		errs = append(errs, ironic.Release(ctx, o.endpoint.String(), o.names...))
	}
	for _, proxy := range o.proxies {
		errs = append(errs, proxy.Close())
	}
	return logs, errors.Join(errs...)
}

// serve makes the proxy between one incarnation of a controller and Ironic. In the controller's
// requests it replaces the controller's own addresses of the BMCs, given by host, with Ironic's,
// on which the history records on whose behalf Ironic acts.
func (o *ironicOwner) serve(judge gate.Judge, client string, ways map[string]string) (*gate.Proxy, error) {
	show := make(map[string]string)
	for host, way := range ways {
		show[o.ways[host]] = way
	}
	read := gate.Ironic(o.hostOf)
	return gate.Serve(o.endpoint, &gate.Gate{Judge: judge, Read: read, Next: &toIronic{o, client, read}, Addresses: gate.NewAddresses(show)}, nil, gate.Client{})
}

// hostOf is the host of a node. Clients may call a node by its UUID, and make nodes of their own,
// of the same names.
func (o *ironicOwner) hostOf(node string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.hosts[node]; !known {
		ctx, cancel := thismachine.WithBudget(context.Background(), hosts.CommandTimeout)
		defer cancel()
		name, err := ironic.NameOf(ctx, o.endpoint.String(), node)
		if err != nil {
			return ""
		}
		o.hosts[node] = o.hosts[name]
	}
	return o.hosts[node]
}

// commanding is a controller whose settings lead to an Ironic.
func commanding(c controllers.Selection, endpoint string) controllers.Selection {
	if settings, ok := c.Settings.(*rebootcontroller.Settings); ok {
		through := *settings
		through.Ironic.Endpoint = endpoint
		c.Settings = &through
	}
	return c
}

// toIronic remembers who has asked for what. Ironic may act before its answer is read.
type toIronic struct {
	o      *ironicOwner
	client string
	read   func(*http.Request, []byte) gate.Request
}

// RoundTrip implements http.RoundTripper.
func (t *toIronic) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := gate.BodyOf(request)
	if err != nil {
		return nil, err
	}
	command := strings.Fields(t.read(request, body).Effect) // bmc RESET HOST
	if len(command) != 3 {
		return http.DefaultTransport.RoundTrip(request)
	}
	host, before := command[2], commission{}
	t.o.mu.Lock()
	before, t.o.asked[host] = t.o.asked[host], commission{t.client, command[1], t.o.since()}
	t.o.mu.Unlock()
	response, err := http.DefaultTransport.RoundTrip(request)
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		t.o.mu.Lock()
		t.o.asked[host] = before
		t.o.mu.Unlock()
	}
	return response, err
}

// toBMC sends Ironic's requests to a BMC, in the name of the client that Ironic acts for.
type toBMC struct {
	o    *ironicOwner
	host string
}

// RoundTrip implements http.RoundTripper.
func (t *toBMC) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := gate.BodyOf(request)
	if err != nil {
		return nil, err
	}
	client := ironicActor
	if command := strings.Fields(t.o.bmcs.Understands(t.host)(request, body).Effect); len(command) == 3 {
		t.o.mu.Lock()
		if c := t.o.asked[t.host]; c.reset == command[1] && t.o.since()-c.at < askedLately {
			client = c.client
			delete(t.o.asked, t.host)
		}
		t.o.mu.Unlock()
	}
	return t.o.bmcs.Transport(client).RoundTrip(request)
}
