package redfish_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencelab/fencelab/fakebmc/redfish"
)

const subscriptionsURL = "/redfish/v1/EventService/Subscriptions"

// listener takes what is pushed to it, and refuses it as often as is said.
func listener(t *testing.T) (url string, got chan map[string]any, refuses *atomic.Int32) {
	t.Helper()
	got, refuses = make(chan map[string]any, 100), new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuses.Add(-1) >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		data, err := io.ReadAll(r.Body)
		var event map[string]any
		if err == nil {
			err = json.Unmarshal(data, &event)
		}
		if err != nil {
			t.Error(err)
		}
		event["X-Secret"] = r.Header.Get("X-Secret")
		got <- event
	}))
	t.Cleanup(server.Close)
	return server.URL + "/events/", got, refuses
}

func messageOf(event map[string]any) string {
	return event["Events"].([]any)[0].(map[string]any)["MessageId"].(string)
}

// TestPush: a destination hears of each edge in its order, with what it asked for, until it is
// deleted.
func TestPush(t *testing.T) {
	to, got, refuses := listener(t)
	cfg := account
	cfg.Destinations = []string{to}
	r := newRig(t, cfg, "node-1")
	if service := r.do("GET", "/redfish/v1/EventService", "").json(t); inSystem(service, "Subscriptions", "@odata.id") != subscriptionsURL {
		t.Errorf("the service leads to %v", service)
	}
	created := r.do("POST", subscriptionsURL, fmt.Sprintf(`{"Destination": %q, "Context": "mine", "Protocol": "Redfish", "EventTypes": ["Alert"], "HttpHeaders": [{"X-Secret": "token"}]}`, to+"node-1"))
	at := created.header.Get("Location")
	if created.status != http.StatusCreated || at != subscriptionsURL+"/1" || strings.Contains(string(created.body), "token") {
		t.Fatalf("it answers %d, %s: %s", created.status, at, created.body)
	}
	refuses.Store(1) // and the event is sent again
	r.do("POST", resetURL, resetBody("ForceOff"))
	event := next(t, "the first event", got)
	for messageOf(event) != "ResourceEvent.1.4.ResourcePoweredOff" {
		if event["Context"] != "mine" || event["X-Secret"] != "token" {
			t.Errorf("it is told %v", event)
		}
		event = next(t, "that the host is off", got)
	}
	if list := r.do("GET", subscriptionsURL, "").json(t); list["Members@odata.count"] != 1.0 {
		t.Errorf("there are %v", list)
	}
	if gone := r.do("DELETE", at, ""); gone.status != http.StatusNoContent {
		t.Errorf("its end answers %d", gone.status)
	}
	r.do("POST", resetURL, resetBody("On"))
	r.until("On")
	if left := r.do("GET", at, ""); left.status != http.StatusNotFound || len(got) > 0 {
		t.Errorf("it is there still (%d), or told more (%d)", left.status, len(got))
	}
}

// TestPushFaults: rules for events hold them up or lose them, and nothing else.
func TestPushFaults(t *testing.T) {
	to, got, _ := listener(t)
	r := newRig(t, redfish.Config{Destinations: []string{to}}, "node-1")
	r.rule(`{"when": {"client": "events", "count": 2}, "effect": {"hang": true}}`)
	if created := r.do("POST", subscriptionsURL, fmt.Sprintf(`{"Destination": %q}`, to)); created.status != http.StatusCreated {
		t.Fatalf("it answers %d: %s", created.status, created.body)
	}
	r.do("POST", resetURL, resetBody("ForceOff"))
	r.until("Off")
	r.do("POST", resetURL, resetBody("On"))
	var all []string
	for {
		all = append(all, messageOf(next(t, "that the host is on", got)))
		if strings.HasSuffix(all[len(all)-1], "PoweredOn") {
			break
		}
	}
	if strings.Contains(strings.Join(all, " "), "PoweredOff") {
		t.Errorf("of the first two nothing is to be heard: %v", all)
	}
}

// TestPushRefused: events go nowhere but where they may, and each mistake is told.
func TestPushRefused(t *testing.T) {
	to, _, _ := listener(t)
	r := newRig(t, redfish.Config{Destinations: []string{to}}, "node-1")
	for body, want := range map[string]int{
		`{}`: http.StatusBadRequest,
		`{"Destination": "http://127.0.0.1:1/elsewhere"}`:                   http.StatusForbidden,
		fmt.Sprintf(`{"Destination": %q}`, to+"../secrets"):                 http.StatusForbidden,
		fmt.Sprintf(`{"Destination": %q, "Protocol": "SNMPv2c"}`, to):       http.StatusBadRequest,
		fmt.Sprintf(`{"Destination": %q, "HttpHeaders": "X-A: b"}`, to):     http.StatusBadRequest,
		fmt.Sprintf(`{"Destination": %q, "EventFormatType": "Metric"}`, to): http.StatusBadRequest,
	} {
		if got := r.do("POST", subscriptionsURL, body); got.status != want {
			t.Errorf("%s answers %d, want %d: %s", body, got.status, want, got.body)
		}
	}
	for i := range 17 {
		want := http.StatusCreated
		if i == 16 {
			want = http.StatusServiceUnavailable
		}
		if got := r.do("POST", subscriptionsURL, fmt.Sprintf(`{"Destination": %q}`, to)); got.status != want {
			t.Errorf("subscription %d answers %d, want %d", i+1, got.status, want)
		}
	}
	if got := newRig(t, redfish.Config{}, "node-1").do("POST", subscriptionsURL, fmt.Sprintf(`{"Destination": %q}`, to)); got.status != http.StatusNotFound {
		t.Errorf("where nobody may subscribe it answers %d", got.status)
	}
	if _, err := redfish.NewServer(redfish.Config{Destinations: []string{"127.0.0.1:80"}}); err == nil {
		t.Error("a destination that is no URL is taken")
	}
}
