package controllers

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/reboot"
)

// TestSetupWithManager does so twice: a test runs one manager after another.
func TestSetupWithManager(t *testing.T) {
	for range 2 {
		mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{
			Scheme: api.NewScheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range registrations {
			s, err := Select(r.Name, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := SetupWithManager(mgr, s); (err != nil) != (r.Place == EveryHost) {
				t.Errorf("add %s to a manager in the cluster: %v", r.Name, err)
			}
		}
		broken := Selection{Registration: registrations[0], Overlay: []Rule{{Then: "Explode"}}}
		if err := SetupWithManager(mgr, broken); err == nil || !strings.Contains(err.Error(), "Explode") {
			t.Errorf("error %v", err)
		}
	}
}

func TestSelection(t *testing.T) {
	names := func(selected []Selection) string {
		var names []string
		for _, s := range selected {
			names = append(names, s.Name)
		}
		return strings.Join(names, " ")
	}
	all, err := Options{}.selection()
	if got := names(all); err != nil || got != "reboot remediation healthcheck" {
		t.Errorf("by default %s, %v", got, err)
	}
	some, err := Options{
		Controllers: []string{"workload", "reboot"},
		Settings:    map[string]json.RawMessage{"reboot": json.RawMessage(`{"softTimeout":"7s"}`)},
	}.selection()
	if got := names(some); err != nil || got != "workload reboot" {
		t.Errorf("%s, %v", got, err)
	}
	want := reboot.DefaultSettings()
	want.SoftTimeout.Duration = 7e9
	if got := *some[1].Settings.(*reboot.Settings); got != want {
		t.Errorf("settings %+v", got)
	}
	_, err = Options{
		Controllers: []string{"rebot", "reboot", "reboot"},
		Settings: map[string]json.RawMessage{
			"reboot": json.RawMessage(`{"softTimeOut":1}`), "workload": nil,
		},
	}.selection()
	for _, want := range []string{"did you mean reboot?", "chosen twice", "settings of the controller reboot", "workload, which isn't chosen"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v\nwant %q", err, want)
		}
	}
}

func TestWarningsFitAnEvent(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	teller(recorder, corev1.EventTypeWarning)(&corev1.Node{}, "Reason", strings.Repeat("ä", 2000))
	if event := <-recorder.Events; !strings.HasPrefix(event, "Warning Reason ä") || len(event) > 1024 {
		t.Errorf("an event of %d bytes: %.40s", len(event), event)
	}
}
