package reboot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fencelab/fencelab/controllers/api"
)

const systemPath = "/redfish/v1/Systems/1"

// service is a BMC with one system.
type service struct {
	// system is the answer to a GET, and refusal the status of every POST if
	// it is not zero.
	system   string
	refusal  int
	received []string
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if username, password, _ := r.BasicAuth(); username != "admin" || password != "secret" {
		http.Error(w, `{"error":{"message":"who are you?"}}`, http.StatusUnauthorized)
		return
	}
	body, _ := io.ReadAll(r.Body)
	s.received = append(s.received, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+string(body)))
	switch {
	case r.Method == http.MethodGet && r.URL.Path == systemPath:
		fmt.Fprint(w, s.system)
	case r.Method == http.MethodPost && s.refusal != 0:
		w.WriteHeader(s.refusal)
		fmt.Fprint(w, `{"error":{"message":"general","@Message.ExtendedInfo":[{"Message":"not now"}]}}`)
	case r.Method == http.MethodPost:
		w.WriteHeader(http.StatusNoContent)
	default:
		http.NotFound(w, r)
	}
}

// reach returns a Redfish and a host at the server.
func reach(t *testing.T, server *httptest.Server, timeout time.Duration) (*Redfish, *api.BareMetalHost) {
	t.Cleanup(server.Close)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "bmc"},
		Data:       map[string][]byte{"username": []byte("admin"), "password": []byte("secret")},
	}
	host := &api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "worker-1"}}
	host.Spec.BMC = api.BMCDetails{Address: "redfish+" + server.URL + systemPath, CredentialsName: "bmc"}
	return NewRedfish(fake.NewClientBuilder().WithScheme(api.NewScheme()).WithObjects(secret).Build(), timeout), host
}

func TestRedfishState(t *testing.T) {
	for system, want := range map[string]PowerState{
		`{"PowerState":"Off"}`:         Off,
		`{"PowerState":"On"}`:          On,
		`{"PowerState":"PoweringOff"}`: On,
		`{"PowerState":null}`:          On,
		`{}`:                           On,
	} {
		power, host := reach(t, httptest.NewServer(&service{system: system}), time.Minute)
		if got, err := power.State(context.Background(), host); got != want || err != nil {
			t.Errorf("%s: %s, %v", system, got, err)
		}
	}
	for _, system := range []string{``, `null and void`, `{"PowerState":1}`, `[]`} {
		power, host := reach(t, httptest.NewServer(&service{system: system}), time.Minute)
		if got, err := power.State(context.Background(), host); err == nil {
			t.Errorf("%s: %s", system, got)
		}
	}
}

func TestRedfishCommands(t *testing.T) {
	for resetType, command := range map[string]func(*Redfish, context.Context, *api.BareMetalHost) error{
		"On": (*Redfish).On, "GracefulShutdown": (*Redfish).ShutDown, "ForceOff": (*Redfish).Off,
	} {
		for name, tc := range map[string]struct {
			reset string // the action in the ComputerSystem
			want  string // the path of the POST
		}{
			"no action listed":  {`{}`, systemPath + "/Actions/ComputerSystem.Reset"},
			"target":            {`{"target":"/redfish/v1/Systems/1/Actions/Reset"}`, systemPath + "/Actions/Reset"},
			"target and values": {`{"target":"/r","ResetType@Redfish.AllowableValues":["On","ForceOff","GracefulShutdown"]}`, "/r"},
		} {
			s := &service{system: `{"PowerState":"On","Actions":{"#ComputerSystem.Reset":` + tc.reset + `}}`}
			power, host := reach(t, httptest.NewServer(s), time.Minute)
			if err := command(power, context.Background(), host); err != nil {
				t.Errorf("%s, %s: %v", resetType, name, err)
			}
			want := []string{"GET " + systemPath, "POST " + tc.want + ` {"ResetType":"` + resetType + `"}`}
			if !slices.Equal(s.received, want) {
				t.Errorf("%s, %s: received %q", resetType, name, s.received)
			}
		}
	}
}

func TestRedfishRefusals(t *testing.T) {
	for code, unsupported := range map[int]bool{
		http.StatusBadRequest: true, http.StatusMethodNotAllowed: true, http.StatusNotImplemented: true,
		http.StatusConflict: false, http.StatusServiceUnavailable: false, http.StatusFound: false,
	} {
		power, host := reach(t, httptest.NewServer(&service{system: `{}`, refusal: code}), time.Minute)
		err := power.ShutDown(context.Background(), host)
		if err == nil || errors.Is(err, errors.ErrUnsupported) != unsupported || !strings.Contains(err.Error(), "not now") {
			t.Errorf("%d: %v", code, err)
		}
	}
	s := &service{system: `{"Actions":{"#ComputerSystem.Reset":{"ResetType@Redfish.AllowableValues":["On","ForceOff"]}}}`}
	power, host := reach(t, httptest.NewServer(s), time.Minute)
	if err := power.ShutDown(context.Background(), host); !errors.Is(err, errors.ErrUnsupported) || len(s.received) != 1 {
		t.Errorf("not allowed: %v, received %q", err, s.received)
	}
	s = &service{system: `{"Actions":{"#ComputerSystem.Reset":{"target":"http://elsewhere.invalid/"}}}`}
	power, host = reach(t, httptest.NewServer(s), time.Minute)
	if err := power.Off(context.Background(), host); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("a target elsewhere: %v", err)
	}
}

// TestRedfishIsNotLedAway redirects a POST so that it would become a GET, and any
// request to another server.
func TestRedfishIsNotLedAway(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another server received %s %s with %v", r.Method, r.URL, r.Header)
	}))
	defer elsewhere.Close()
	for name, location := range map[string]string{"to a GET": systemPath, "elsewhere": elsewhere.URL} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				http.Redirect(w, r, location, http.StatusFound)
				return
			}
			fmt.Fprint(w, `{}`)
		}))
		power, host := reach(t, server, time.Minute)
		if err := power.Off(context.Background(), host); err == nil || !strings.Contains(err.Error(), "302") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRedfishCredentials(t *testing.T) {
	power, host := reach(t, httptest.NewServer(&service{system: `{}`}), time.Minute)
	host.Spec.BMC.CredentialsName = ""
	if _, err := power.State(context.Background(), host); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("without credentials: %v", err)
	}
	host.Spec.BMC.CredentialsName = "missing"
	if _, err := power.State(context.Background(), host); err == nil || !strings.Contains(err.Error(), "credentials") {
		t.Errorf("missing credentials: %v", err)
	}
}

func TestRedfishCertificates(t *testing.T) {
	for _, scheme := range []string{"redfish", "redfish+https"} {
		power, host := reach(t, httptest.NewTLSServer(&service{system: `{"PowerState":"Off"}`}), time.Minute)
		host.Spec.BMC.Address = strings.Replace(host.Spec.BMC.Address, "redfish+https", scheme, 1)
		if _, err := power.State(context.Background(), host); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: an unknown certificate: %v", scheme, err)
		}
		host.Spec.BMC.DisableCertificateVerification = true
		if got, err := power.State(context.Background(), host); got != Off || err != nil {
			t.Errorf("%s: %s, %v", scheme, got, err)
		}
	}
}

func TestRedfishTimeout(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	power, host := reach(t, server, 20*time.Millisecond)
	t.Cleanup(func() { close(hang) }) // before the server closes
	if _, err := power.State(context.Background(), host); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a hanging BMC: %v", err)
	}
}

func TestParseAddress(t *testing.T) {
	for address, want := range map[string]string{
		"redfish://10.0.0.1/redfish/v1/Systems/1":            "https://10.0.0.1/redfish/v1/Systems/1",
		"redfish+https://bmc:8443/redfish/v1/Systems/uuid":   "https://bmc:8443/redfish/v1/Systems/uuid",
		"redfish+http://[::1]:8000/redfish/v1/Systems/1":     "http://[::1]:8000/redfish/v1/Systems/1",
		"redfish+http://user:pw@bmc/redfish/v1/Systems/1?x#": "http://bmc/redfish/v1/Systems/1",
		"":                         "",
		"ipmi://10.0.0.1":          "",
		"https://bmc/redfish/v1":   "",
		"redfish://10.0.0.1":       "",
		"redfish:///redfish/v1/Sy": "",
		"redfish://%zz/":           "",
	} {
		got, err := parseAddress(address)
		switch {
		case want == "" && err == nil:
			t.Errorf("%q became %s", address, got)
		case want != "" && (err != nil || got.String() != want):
			t.Errorf("%q became %s, %v", address, got, err)
		}
	}
}

func TestComplaint(t *testing.T) {
	long, _ := json.Marshal(map[string]any{"error": map[string]string{"message": strings.Repeat("ä", 1000)}})
	for _, tc := range []struct{ in, want string }{
		{`{"error":{"message":"a\nb"}}`, "a b"},
		{`<html>no</html>`, "<html>no</html>"},
		{"\xff", ""},
		{string(long), strings.Repeat("ä", 200) + "..."},
	} {
		if got := complaint([]byte(tc.in)); got != tc.want {
			t.Errorf("%q: %q", tc.in, got)
		}
	}
}
