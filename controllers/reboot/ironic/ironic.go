// Package ironic commands the power of hosts through Ironic, which owns their BMCs. It is
// a reboot.Power.
//
// What an answer of Ironic's proves, and about when (read in 21.4.4 and on master):
//
//   - power_state is a record. The conductor writes it when an operation has ended, when it
//     adopts a host, and when it finds the record empty; its synchronization compares it with
//     the BMC once in an interval and changes the host, not the record. No answer says when the
//     BMC was read, so a record alone proves nothing about now: it stays as it was
//     when somebody switches the host past Ironic, or when the BMC is out of reach.
//   - "power off" was PowerState Off or PoweringOff: the redfish driver knows no difference.
//     Ironic says "power off" of a host for as long as it shuts down, which can take minutes.
//   - target_power_state is set before a command is answered with 202, and empty again when
//     the operation has ended: while it is set the record is of before. A conductor that
//     is started anew clears it, and leaves the record as it was, whatever the BMC has done.
//   - reservation is the lock under which that happens. A second command is answered with 409
//     meanwhile, and not carried out; a soft power off holds it until the guest is down
//     or its time is up.
//   - last_error is of the last operation, and is cleared when the next one is accepted.
//
// So a host is off when two agree. Ironic has recorded that it should be off, and has nothing
// under way, so that its synchronization will hold it there; and then the BMC, asked directly,
// says Off. If Ironic already wants a host off, by its record or by the operation under way, it
// would not send a command to switch it off. Then the BMC is commanded directly, which agrees
// with Ironic. All other commands go through Ironic, which would otherwise undo them.
package ironic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/apiversions"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/httpbasic"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/noauth"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/reboot"
)

// Config says which Ironic, and how far to believe it.
type Config struct {
	// Endpoint is its API's URL, without the version.
	Endpoint string
	// User and Password are for http_basic; without a user Ironic asks for no credentials.
	User, Password string
	// TrustRecord takes Ironic's record for the state of a host, and asks no BMC: for BMCs that
	// only Ironic reaches. A host that is powering off, or that was switched on past
	// Ironic, is taken for off then.
	TrustRecord bool
	// Timeout bounds a call, and SoftTimeout how long Ironic waits for a guest to shut down.
	Timeout, SoftTimeout time.Duration
}

// The microversions: from the first one on a soft power off takes a time limit, and from the last
// one on Ironic reports hosts that are not to be switched off.
const (
	leastMinor, mostMinor = 27, 95
)

// Power is reboot.Power through Ironic. The node of a BareMetalHost is named as
// baremetal-operator does: NAMESPACE~NAME.
type Power struct {
	config Config
	bmc    reboot.Power // nil where only Ironic reaches it

	mu     sync.Mutex
	client *gophercloud.ServiceClient // nil until its version is known
}

// New returns a Power that reads the credentials of BMCs from secrets.
func New(secrets client.Reader, c Config) *Power {
	p := &Power{config: c}
	if !c.TrustRecord {
		p.bmc = reboot.NewRedfish(secrets, c.Timeout)
	}
	return p
}

// NodeName returns the name of a BareMetalHost's node in Ironic.
func NodeName(namespace, name string) string { return namespace + "~" + name }

// State is Off only if Ironic has recorded that the host is to be off and the BMC says that
// it is.
func (p *Power) State(ctx context.Context, host *api.BareMetalHost) (reboot.PowerState, error) {
	node, err := p.node(ctx, host)
	switch {
	case err != nil:
		return "", err
	case !recordedOff(node):
		return reboot.On, nil
	case p.bmc == nil && node.Maintenance:
		return reboot.On, nil // the record is not kept up to date
	case p.bmc == nil:
		return reboot.Off, nil
	}
	return p.bmc.State(ctx, host)
}

// recordedOff reports whether Ironic wants the host off, and has nothing under way.
func recordedOff(n *nodes.Node) bool {
	return n.PowerState == string(nodes.PowerOff) && n.TargetPowerState == ""
}

// On has Ironic switch the host on.
func (p *Power) On(ctx context.Context, host *api.BareMetalHost) error {
	return p.change(ctx, host, nodes.PowerStateOpts{Target: nodes.PowerOn})
}

// ShutDown has Ironic shut the guest down. Ironic locks the node until that is done, or its
// time is up.
func (p *Power) ShutDown(ctx context.Context, host *api.BareMetalHost) error {
	seconds := int(math.Ceil(p.config.SoftTimeout.Seconds()))
	return p.change(ctx, host, nodes.PowerStateOpts{Target: nodes.SoftPowerOff, Timeout: max(seconds, 1)})
}

// Off makes Ironic cut the power. If Ironic already wants the host off, it commands the BMC
// itself: Ironic would send nothing for a host that it considers off, and accepts no other command
// while it waits for a guest that shuts down.
func (p *Power) Off(ctx context.Context, host *api.BareMetalHost) error {
	node, err := p.node(ctx, host)
	switch {
	case err != nil:
		return err
	case node.DisablePowerOff:
		return fmt.Errorf("power off %s: Ironic has disable_power_off for it, and would reboot it: %w: %w", node.Name, reboot.ErrRefused, errors.ErrUnsupported)
	case p.bmc != nil && (recordedOff(node) || node.TargetPowerState == string(nodes.PowerOff)):
		return p.bmc.Off(ctx, host)
	}
	if err := p.change(ctx, host, nodes.PowerStateOpts{Target: nodes.PowerOff}); err != nil || !recordedOff(node) {
		return err
	}
	return fmt.Errorf("power off %s: Ironic has recorded it as off, and may have sent nothing", node.Name)
}

func (p *Power) node(ctx context.Context, host *api.BareMetalHost) (*nodes.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	client, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	name := NodeName(host.Namespace, host.Name)
	node, err := nodes.Get(ctx, client, name).Extract()
	if err != nil {
		return nil, explain("read node "+name, err)
	}
	return node, nil
}

func (p *Power) change(ctx context.Context, host *api.BareMetalHost, o nodes.PowerStateOpts) error {
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	client, err := p.open(ctx)
	if err != nil {
		return err
	}
	name := NodeName(host.Namespace, host.Name)
	if err := nodes.ChangePowerState(ctx, client, name, o).ExtractErr(); err != nil {
		return explain(fmt.Sprintf("ask for %s of node %s", o.Target, name), err)
	}
	return nil
}

// open returns the client, with the newest microversion that both sides speak.
func (p *Power) open(ctx context.Context) (*gophercloud.ServiceClient, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client != nil {
		return p.client, nil
	}
	client, err := dial(p.config)
	if err != nil {
		return nil, fmt.Errorf("open Ironic: %w", err)
	}
	version, err := apiversions.Get(ctx, client, "v1").Extract()
	if err != nil {
		return nil, explain("ask for its version", err)
	}
	major, text, _ := strings.Cut(version.Version, ".")
	minor, err := strconv.Atoi(text)
	if err != nil || major != "1" || minor < leastMinor {
		return nil, fmt.Errorf("ironic at %s speaks version %q of its API: it takes 1.%d, of Ironic 7.0, at least", p.config.Endpoint, version.Version, leastMinor)
	}
	client.Microversion = "1." + strconv.Itoa(min(minor, mostMinor))
	client.Endpoint += "v1/"
	p.client = client
	return client, nil
}

// dial makes a client, with no connection yet.
func dial(c Config) (client *gophercloud.ServiceClient, err error) {
	if c.User == "" {
		client, err = noauth.NewBareMetalNoAuth(noauth.EndpointOpts{IronicEndpoint: c.Endpoint})
	} else {
		client, err = httpbasic.NewBareMetalHTTPBasic(httpbasic.EndpointOpts{IronicEndpoint: c.Endpoint, IronicUser: c.User, IronicUserPassword: c.Password})
	}
	if err != nil {
		return nil, err
	}
	client.HTTPClient = http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true}, // as with BMCs: one that was kept may be to an Ironic from before
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return client, nil
}

// explain converts an error of Ironic to one that reboot.Power has to return. What Ironic refuses
// before it has taken the node's lock, or without it, it does not carry out; and none of that says
// anything about the state of the host.
func explain(what string, err error) error {
	var answer gophercloud.ErrUnexpectedResponseCode
	if !errors.As(err, &answer) {
		return fmt.Errorf("ironic: %s: %w", what, err)
	}
	said := strings.ToValidUTF8(strings.Join(strings.Fields(string(answer.Body)), " "), "")
	if runes := []rune(said); len(runes) > 300 {
		said = string(runes[:300]) + "..."
	}
	err = fmt.Errorf("ironic: %s: %d %s: %s", what, answer.Actual, http.StatusText(answer.Actual), said)
	switch answer.Actual {
	case http.StatusConflict, http.StatusServiceUnavailable, http.StatusNotFound, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotAcceptable:
		return fmt.Errorf("%w: %w", err, reboot.ErrNotNow)
	case http.StatusBadRequest:
		return fmt.Errorf("%w: %w: %w", err, reboot.ErrRefused, errors.ErrUnsupported)
	}
	return err
}
