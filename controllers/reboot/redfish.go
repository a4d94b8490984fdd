package reboot

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
)

// Redfish is Power over Redfish (DSP0266). It needs two resources of it: a
// ComputerSystem and its Reset action. Each call is one or two requests, on
// connections of its own: a connection kept from before a BMC restarted would fail
// a command that was never read. They are authenticated by Basic, which costs no
// session; where it is refused a session is opened for the call.
type Redfish struct {
	secrets      client.Reader
	timeout      time.Duration
	safe, unsafe *http.Client // with and without verified certificates
	sessionsOnly sessionsOnly
}

// NewRedfish returns a Power that reads credentials from secrets at every call,
// which should not be a cache of all Secrets, and gives each call the timeout.
func NewRedfish(secrets client.Reader, timeout time.Duration) *Redfish {
	return &Redfish{secrets: secrets, timeout: timeout, safe: newHTTP(false), unsafe: newHTTP(true)}
}

func newHTTP(insecure bool) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			// The host says so in spec.bmc.disableCertificateVerification.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: insecure}, //nolint:gosec
		},
		CheckRedirect: func(request *http.Request, via []*http.Request) error {
			// A POST that turns into a GET would look as if it was accepted,
			// and credentials are for one BMC.
			if request.Method != via[0].Method || request.URL.Host != via[0].URL.Host || len(via) > 3 {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
}

// State reads PowerState of the host's ComputerSystem.
func (r *Redfish) State(ctx context.Context, host *api.BareMetalHost) (PowerState, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	bmc, err := r.open(ctx, host)
	if err != nil {
		return "", err
	}
	defer bmc.logOut(ctx)
	system, err := bmc.system(ctx)
	if err != nil {
		return "", err
	}
	return ParsePowerState(system.PowerState), nil
}

// On sends the reset type On.
func (r *Redfish) On(ctx context.Context, host *api.BareMetalHost) error {
	return r.reset(ctx, host, "On")
}

// ShutDown sends the reset type GracefulShutdown. It fails with
// errors.ErrUnsupported if the BMC says that it has none.
func (r *Redfish) ShutDown(ctx context.Context, host *api.BareMetalHost) error {
	return r.reset(ctx, host, "GracefulShutdown")
}

// Off sends the reset type ForceOff.
func (r *Redfish) Off(ctx context.Context, host *api.BareMetalHost) error {
	return r.reset(ctx, host, "ForceOff")
}

func (r *Redfish) reset(ctx context.Context, host *api.BareMetalHost, resetType string) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	bmc, err := r.open(ctx, host)
	if err != nil {
		return err
	}
	defer bmc.logOut(ctx)
	system, err := bmc.system(ctx)
	if err != nil {
		return err
	}
	action := &system.Actions.Reset
	if allowed := action.Allowed; len(allowed) > 0 && !slices.Contains(allowed, resetType) {
		return fmt.Errorf("reset %s with %s: it takes %s only: %w: %w", bmc.url, resetType, strings.Join(allowed, ", "), ErrRefused, errors.ErrUnsupported)
	}
	target := bmc.url.JoinPath("Actions", "ComputerSystem.Reset")
	if action.Target != "" {
		if target, err = bmc.own(action.Target); err != nil {
			return fmt.Errorf("reset %s: the target of its action: %w", bmc.url, err)
		}
	}
	_, err = bmc.do(ctx, http.MethodPost, target, map[string]string{"ResetType": resetType})
	return err
}

// bmc is a host's BMC during one call.
type bmc struct {
	url                *url.URL // of the ComputerSystem
	http               *http.Client
	username, password string
	sessionsOnly       *sessionsOnly
	session            *session // nil without one
}

func (r *Redfish) open(ctx context.Context, host *api.BareMetalHost) (*bmc, error) {
	address, err := parseAddress(host.Spec.BMC.Address)
	if err != nil {
		return nil, err
	}
	b := &bmc{url: address, http: r.safe, sessionsOnly: &r.sessionsOnly}
	if host.Spec.BMC.DisableCertificateVerification {
		b.http = r.unsafe
	}
	if name := host.Spec.BMC.CredentialsName; name != "" {
		var secret corev1.Secret
		if err := r.secrets.Get(ctx, types.NamespacedName{Namespace: host.Namespace, Name: name}, &secret); err != nil {
			return nil, fmt.Errorf("read the BMC's credentials: %w", err)
		}
		b.username, b.password = string(secret.Data["username"]), string(secret.Data["password"])
	}
	return b, nil
}

// parseAddress turns the address of a BMC into the URL of its ComputerSystem.
func parseAddress(address string) (*url.URL, error) {
	schemes := map[string]string{"redfish": "https", "redfish+https": "https", "redfish+http": "http"}
	u, err := url.Parse(address)
	if err != nil || schemes[u.Scheme] == "" || u.Host == "" || strings.Trim(u.Path, "/") == "" {
		if err == nil {
			// the address may contain a password
			address = u.Redacted()
		}
		return nil, fmt.Errorf("the BMC address %q is not redfish+http://HOST:PORT/redfish/v1/Systems/ID, or redfish:// or redfish+https:// for TLS", address)
	}
	return &url.URL{Scheme: schemes[u.Scheme], Host: u.Host, Path: u.Path}, nil
}

// computerSystem has the needed fields of the ComputerSystem resource (DSP2046).
type computerSystem struct {
	PowerState string
	Actions    struct {
		Reset struct {
			Target  string   `json:"target"`
			Allowed []string `json:"ResetType@Redfish.AllowableValues"`
		} `json:"#ComputerSystem.Reset"`
	}
}

func (b *bmc) system(ctx context.Context) (*computerSystem, error) {
	data, err := b.do(ctx, http.MethodGet, b.url, nil)
	if err != nil {
		return nil, err
	}
	var system computerSystem
	if err := json.Unmarshal(data, &system); err != nil {
		return nil, fmt.Errorf("GET %s: the answer is no ComputerSystem: %w", b.url, err)
	}
	return &system, nil
}

// send sends one request and returns the body and header of a successful answer. authenticate may
// be nil.
func (b *bmc) send(ctx context.Context, method string, target *url.URL, body any, authenticate func(*http.Request)) ([]byte, http.Header, error) {
	content, err := encode(body)
	if err != nil {
		return nil, nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), content)
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if authenticate != nil {
		authenticate(request)
	}
	response, err := b.http.Do(request)
	if err != nil {
		return nil, nil, err // says method and URL
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return nil, nil, fmt.Errorf("%s %s: read the answer: %w", method, target, err)
	}
	if code := response.StatusCode; code < 200 || code > 299 {
		err := fmt.Errorf("%s %s: %s: %s", method, target, response.Status, complaint(data))
		if code == http.StatusUnauthorized {
			err = fmt.Errorf("%w: %w", err, errUnauthorized)
		}
		return nil, nil, StatusError(code, err)
	}
	return data, response.Header, nil
}

// complaint returns the message of an error response (DSP0266, 8.6), or its beginning.
func complaint(data []byte) string {
	var response struct {
		Error struct {
			Message  string                     `json:"message"`
			Extended []struct{ Message string } `json:"@Message.ExtendedInfo"`
		} `json:"error"`
	}
	text := string(data)
	if json.Unmarshal(data, &response) == nil {
		switch extended := response.Error.Extended; {
		case len(extended) > 0 && extended[0].Message != "":
			text = extended[0].Message
		case response.Error.Message != "":
			text = response.Error.Message
		}
	}
	text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "")
	if runes := []rune(text); len(runes) > 200 {
		text = string(runes[:200]) + "..."
	}
	return text
}
