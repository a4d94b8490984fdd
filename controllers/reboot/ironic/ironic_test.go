package ironic_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/reboot"
	"github.com/fencelab/fencelab/controllers/reboot/ironic"
)

// servers are an Ironic that has one record, and the BMC behind it.
type servers struct {
	t *testing.T
	// node is the record, and version the newest of the API.
	node    map[string]any
	version string
	// status and body answer what would change something.
	status int
	body   string
	// bmc is the BMC's answer about the power.
	bmc string
	// asked are the commands that came, and spoken the versions of the API.
	asked, spoken []string
	user          string
}

func (s *servers) ironic(w http.ResponseWriter, r *http.Request) {
	s.user, _, _ = r.BasicAuth()
	answer := func(status int, body any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body) // the client will complain
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /v1":
		answer(http.StatusOK, map[string]any{"version": map[string]string{"id": "v1", "min_version": "1.1", "version": s.version}})
	case "GET /v1/nodes/default~worker-1":
		s.spoken = append(s.spoken, r.Header.Get("X-OpenStack-Ironic-API-Version"))
		answer(http.StatusOK, s.node)
	case "PUT /v1/nodes/default~worker-1/states/power":
		var command map[string]any
		if err := json.NewDecoder(r.Body).Decode(&command); err != nil {
			s.t.Error(err)
		}
		s.asked = append(s.asked, strings.TrimSuffix(fmt.Sprintf("ironic %v %v", command["target"], command["timeout"]), " <nil>"))
		w.WriteHeader(s.status)
		fmt.Fprint(w, s.body)
	default:
		s.t.Errorf("Ironic is asked to %s %s", r.Method, r.URL.Path)
	}
}

func (s *servers) redfish(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		var reset struct{ ResetType string }
		if err := json.NewDecoder(r.Body).Decode(&reset); err != nil {
			s.t.Error(err)
		}
		s.asked = append(s.asked, "bmc "+reset.ResetType)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	fmt.Fprintf(w, `{"PowerState": %q}`, s.bmc)
}

// serve starts both, and returns the power of a host that is theirs.
func serve(t *testing.T, s *servers, trust bool) (*ironic.Power, *api.BareMetalHost) {
	t.Helper()
	s.t = t
	owner, bmc := httptest.NewServer(http.HandlerFunc(s.ironic)), httptest.NewServer(http.HandlerFunc(s.redfish))
	t.Cleanup(owner.Close)
	t.Cleanup(bmc.Close)
	host := &api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "worker-1"}}
	host.Spec.BMC.Address = "redfish+" + bmc.URL + "/redfish/v1/Systems/1"
	return ironic.New(nil, ironic.Config{
		Endpoint: owner.URL, User: "fencer", Password: "secret", TrustRecord: trust, Timeout: 10 * time.Second, SoftTimeout: 1500 * time.Millisecond,
	}), host
}

// TestState has every record that Ironic can have, and what it proves with what the BMC says.
func TestState(t *testing.T) {
	off := func(more map[string]any) map[string]any {
		node := map[string]any{"power_state": "power off", "target_power_state": nil}
		for key, value := range more {
			node[key] = value
		}
		return node
	}
	for _, c := range []struct {
		name           string
		node           map[string]any
		bmc            string
		asked, trusted reboot.PowerState // with the BMC's word, and without
	}{
		{"off, for both", off(nil), "Off", reboot.Off, reboot.Off},
		{"powering off is off for Ironic", off(nil), "PoweringOff", reboot.On, reboot.Off},
		{"switched on past Ironic", off(nil), "On", reboot.On, reboot.Off},
		{"a boot is under way", off(map[string]any{"target_power_state": "power on"}), "Off", reboot.On, reboot.On},
		{"a power-off is under way", map[string]any{"power_state": "power on", "target_power_state": "power off"}, "Off", reboot.On, reboot.On},
		{"a power-off is under way, of a host that was off before", off(map[string]any{"target_power_state": "power off"}), "Off", reboot.On, reboot.On},
		{"switched off past Ironic, which will switch it on", map[string]any{"power_state": "power on"}, "Off", reboot.On, reboot.On},
		{"a conductor that died has forgotten the power-off", map[string]any{"power_state": "power on", "last_error": "aborted due to conductor restart"}, "Off", reboot.On, reboot.On},
		{"on", map[string]any{"power_state": "power on"}, "On", reboot.On, reboot.On},
		{"nobody knows", map[string]any{"power_state": nil, "maintenance": true, "fault": "power failure"}, "Off", reboot.On, reboot.On},
		{"a record that nobody keeps", off(map[string]any{"maintenance": true}), "Off", reboot.Off, reboot.On},
		{"an error is no state", map[string]any{"power_state": "error"}, "Off", reboot.On, reboot.On},
	} {
		t.Run(c.name, func(t *testing.T) {
			for trust, want := range map[bool]reboot.PowerState{false: c.asked, true: c.trusted} {
				s := &servers{node: c.node, version: "1.82", bmc: c.bmc}
				power, host := serve(t, s, trust)
				if state, err := power.State(context.Background(), host); state != want || err != nil {
					t.Errorf("trusting the record is %t: %s, %v; want %s", trust, state, err, want)
				}
				if s.user != "fencer" {
					t.Errorf("Ironic was asked by %q", s.user)
				}
			}
		})
	}
}

// TestCommands checks which server gets which command, and the result of each answer.
func TestCommands(t *testing.T) {
	on := map[string]any{"power_state": "power on"}
	off := map[string]any{"power_state": "power off"}
	goingOff := map[string]any{"power_state": "power on", "target_power_state": "power off", "reservation": "fencelab"}
	const locked = `{"error_message": "Node is locked by host fencelab, please retry after the current operation is completed."}`
	for _, c := range []struct {
		name    string
		node    map[string]any
		trust   bool
		status  int
		do      func(*ironic.Power, context.Context, *api.BareMetalHost) error
		asked   string
		is      []error // nil: no error
		unclear bool    // an error that leaves the outcome unknown
	}{
		{name: "on", node: off, status: 202, do: (*ironic.Power).On, asked: "ironic power on"},
		{name: "a soft off has whole seconds", node: on, status: 202, do: (*ironic.Power).ShutDown, asked: "ironic soft power off 2"},
		{name: "off", node: on, status: 202, do: (*ironic.Power).Off, asked: "ironic power off"},
		{name: "off, while Ironic takes it for off", node: off, do: (*ironic.Power).Off, asked: "bmc ForceOff"},
		{name: "off, while a soft off holds the lock", node: goingOff, do: (*ironic.Power).Off, asked: "bmc ForceOff"},
		{name: "off of a host that only Ironic reaches, while it takes it for off", node: off, trust: true, status: 202, do: (*ironic.Power).Off, asked: "ironic power off", unclear: true},
		{name: "off of one, while the lock is held", node: goingOff, trust: true, status: 409, do: (*ironic.Power).Off, asked: "ironic power off", is: []error{reboot.ErrNotNow}},
		{name: "locked", node: on, status: 409, do: (*ironic.Power).On, asked: "ironic power on", is: []error{reboot.ErrNotNow}},
		{name: "no worker is free", node: on, status: 503, do: (*ironic.Power).Off, asked: "ironic power off", is: []error{reboot.ErrNotNow}},
		{name: "not enrolled", node: on, status: 404, do: (*ironic.Power).Off, asked: "ironic power off", is: []error{reboot.ErrNotNow}},
		{name: "no soft off", node: on, status: 400, do: (*ironic.Power).ShutDown, asked: "ironic soft power off 2", is: []error{reboot.ErrRefused, errors.ErrUnsupported}},
		{name: "an error in Ironic", node: on, status: 500, do: (*ironic.Power).Off, asked: "ironic power off", unclear: true},
		{name: "a host that is never to be off", node: map[string]any{"power_state": "power on", "disable_power_off": true}, do: (*ironic.Power).Off, is: []error{reboot.ErrRefused, errors.ErrUnsupported}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &servers{node: c.node, version: "1.95", bmc: "On", status: c.status, body: locked}
			power, host := serve(t, s, c.trust)
			err := c.do(power, context.Background(), host)
			if asked := strings.Join(s.asked, ", "); asked != c.asked {
				t.Errorf("asked for %q, want %q", asked, c.asked)
			}
			if (err != nil) != (c.is != nil || c.unclear) {
				t.Fatalf("it came to %v", err)
			}
			for _, known := range []error{reboot.ErrNotNow, reboot.ErrRefused, errors.ErrUnsupported} {
				want := false
				for _, is := range c.is {
					want = want || is == known
				}
				if errors.Is(err, known) != want {
					t.Errorf("%v: is it %q? want %t", err, known, want)
				}
			}
			if c.status == 409 && !strings.Contains(err.Error(), "locked by host") {
				t.Errorf("%v doesn't say what Ironic said", err)
			}
		})
	}
}

// TestVersion: both sides speak the newest version that both know, and an Ironic that is too old
// is reported as such.
func TestVersion(t *testing.T) {
	for version, want := range map[string]string{"1.27": "1.27", "1.82": "1.82", "1.95": "1.95", "1.115": "1.95", "1.26": "", "2.0": "", "": ""} {
		s := &servers{node: map[string]any{"power_state": "power on"}, version: version}
		power, host := serve(t, s, true)
		_, err := power.State(context.Background(), host)
		if spoken := strings.Join(s.spoken, ","); spoken != want || (err == nil) != (want != "") {
			t.Errorf("an Ironic of %q is spoken to in %q: %v", version, spoken, err)
		}
	}
}

// TestAway: an unreachable Ironic proves nothing, neither that a host is off nor that a command is
// refused. Once it is back it is asked again.
func TestAway(t *testing.T) {
	power := ironic.New(nil, ironic.Config{Endpoint: "http://127.0.0.1:1", Timeout: 5 * time.Second})
	host := &api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "worker-1"}}
	if state, err := power.State(context.Background(), host); err == nil {
		t.Errorf("it is %s", state)
	}
	if err := power.Off(context.Background(), host); err == nil || errors.Is(err, reboot.ErrRefused) || errors.Is(err, reboot.ErrNotNow) {
		t.Errorf("off: %v", err)
	}
}
