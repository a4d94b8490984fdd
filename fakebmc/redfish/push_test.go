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
	created := r.do("POST", subscriptionsURL, fmt.Sprintf(`{"Destination": %q, "Context": "mine", "Protocol": "Redfish", "EventTypes": ["StatusChange", "Alert"], "HttpHeaders": [{"X-Secret": "token"}]}`, to+"node-1"))
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
	for body, want := range map[string]string{ // beside the destination
		`"EventTypes": ["Nonsense"]`: "PropertyValueNotInList", `"EventTypes": ["StatusChange", "nonsense"]`: "PropertyValueNotInList",
		`"RegistryPrefixes": ["Acme"]`: "PropertyValueNotInList", `"ResourceTypes": ["Toaster"]`: "PropertyValueNotInList",
		`"MessageIds": ["Base.1.0.Success"]`: "PropertyValueNotInList", `"DeliveryRetryPolicy": "SuspendRetries"`: "PropertyValueNotInList",
		`"DeliveryRetryPolicy": "Sometimes"`: "PropertyValueNotInList", `"OriginResources": [{"@odata.id": "/redfish/v1/Systems/nobody"}]`: "ResourceMissingAtURI",
		`"VerifyCertificate": "yes"`: "PropertyValueTypeError", `"Oem": {}`: "PropertyUnknown", `"ExcludeMessageIds": []`: "PropertyUnknown",
	} {
		if got := r.do("POST", subscriptionsURL, fmt.Sprintf(`{"Destination": %q, %s}`, to, body)); got.status != http.StatusBadRequest || got.message() != want {
			t.Errorf("%s answers %d %s, want %s", body, got.status, got.message(), want)
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

// TestPushSelects: a destination hears what it has selected, and that only.
func TestPushSelects(t *testing.T) {
	for selection, want := range map[string]string{
		"": "PoweringOff PoweredOff PoweringOn PoweredOn", `"EventTypes": ["StatusChange"]`: "PoweringOff PoweredOff PoweringOn PoweredOn",
		`"EventTypes": ["Alert"]`: "", `"RegistryPrefixes": ["ResourceEvent"], "ResourceTypes": ["ComputerSystem", "Chassis"]`: "PoweringOff PoweredOff PoweringOn PoweredOn",
		`"RegistryPrefixes": ["Base"]`: "", `"ResourceTypes": ["Chassis"]`: "",
		`"MessageIds": ["ResourceEvent.1.0.ResourcePoweredOff", "ResourceEvent.ResourcePoweredOn"]`: "PoweredOff PoweredOn",
		`"OriginResources": [{"@odata.id": "/redfish/v1/Systems/node-1"}]`:                          "PoweringOff PoweredOff PoweringOn PoweredOn",
		`"OriginResources": [{"@odata.id": "/redfish/v1/Chassis/node-1"}]`:                          "",
		`"OriginResources": [{"@odata.id": "/redfish/v1/Systems"}]`:                                 "",
		`"OriginResources": [{"@odata.id": "/redfish/v1/Systems"}], "SubordinateResources": true`:   "PoweringOff PoweredOff PoweringOn PoweredOn",
	} {
		to, got, _ := listener(t)
		r := newRig(t, redfish.Config{Destinations: []string{to}}, "node-1")
		subscribe := func(context, selection string) reply {
			body := fmt.Sprintf(`{"Destination": %q, "Context": %q`, to, context)
			if selection != "" {
				body += ", " + selection
			}
			return r.do("POST", subscriptionsURL, body+"}")
		}
		if created := subscribe("mine", selection); created.status != http.StatusCreated {
			t.Fatalf("%s answers %d %s", selection, created.status, created.body)
		}
		subscribe("all", "")
		r.do("POST", resetURL, resetBody("ForceOff"))
		r.until("Off")
		r.do("POST", resetURL, resetBody("On"))
		heard := map[string][]string{}
		for len(heard["all"]) < 4 || len(heard["mine"]) < len(strings.Fields(want)) {
			event := next(t, "event", got)
			context := event["Context"].(string)
			heard[context] = append(heard[context], strings.TrimPrefix(messageOf(event), "ResourceEvent.1.4.Resource"))
		}
		if mine := strings.Join(heard["mine"], " "); mine != want {
			t.Errorf("%s: it hears %q, want %q", selection, mine, want)
		}
	}
}

// TestPushRetries: what isn't taken ends the subscription or is sent again for ever, as its policy
// says; and a BMC that forgets forgets the subscriptions.
func TestPushRetries(t *testing.T) {
	to, got, refuses := listener(t)
	r := newRig(t, redfish.Config{Destinations: []string{to}}, "node-1")
	refuses.Store(4)
	subscribe := func(policy string) string {
		created := r.do("POST", subscriptionsURL, fmt.Sprintf(`{"Destination": %q, "DeliveryRetryPolicy": %q}`, to, policy))
		if shown := created.json(t)["DeliveryRetryPolicy"]; shown != policy {
			t.Errorf("it reads back %v", shown)
		}
		return created.header.Get("Location")
	}
	terminates := subscribe("TerminateAfterRetries")
	r.do("POST", resetURL, resetBody("ForceOff"))
	eventually(t, said("the subscription is there still"), func() bool {
		r.forget()
		return r.do("GET", terminates, "").status == http.StatusNotFound
	})
	refuses.Store(4)
	forever := subscribe("RetryForever")
	r.do("POST", resetURL, resetBody("On"))
	next(t, "an event after four refusals", got)
	if there := r.do("GET", forever, ""); there.status != http.StatusOK {
		t.Errorf("it answers %d", there.status)
	}
	r.rule(`{"effect": {"restart": {"downtime": "1ms", "forget": true}}}`)
	eventually(t, said("a subscription outlives what forgets"), func() bool {
		r.forget()
		answer, err := r.try(t.Context(), "GET", forever, "")
		return err == nil && answer.status == http.StatusNotFound
	})
}
