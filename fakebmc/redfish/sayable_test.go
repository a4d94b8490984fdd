package redfish_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/redfish"
)

const (
	insertURL = mediaURL + "/Actions/VirtualMedia.InsertMedia"
	bmcURL    = "/redfish/v1/Managers/node-1/Actions/Manager.Reset"
	imageBody = `{"Image": "http://127.0.0.1:1/x.iso"}`
)

// TestMediaAndManagerMisbehave: an image and a reset of the BMC are ignored, lost, followed by a
// reset of the host and answered with a task, as resets of the host are.
func TestMediaAndManagerMisbehave(t *testing.T) {
	image := func(r *rig) string { in, _ := r.hosts[0].Media(); return in }
	up := func(r *rig) bool { return r.bmcs[0].State().Internal.Up }
	for _, c := range []struct {
		name, rule, url, body string
		status                int
		done                  bool // what was asked for
		off                   bool // the host, later
	}{
		{"an image", "", insertURL, imageBody, 204, true, false},
		{"ignored", `{"effect": {"ignore": true}}`, insertURL, imageBody, 204, false, false},
		{"lost", `{"effect": {"lose": ["Image"]}}`, insertURL, imageBody, 204, false, false},
		{"a part of it lost", `{"effect": {"lose": ["WriteProtected"]}}`, insertURL, imageBody, 204, true, false},
		{"ignored, and wrong", `{"effect": {"ignore": true}}`, insertURL, `{}`, 400, false, false},
		{"ignored, and not allowed", `{"effect": {"ignore": true}}`, insertURL, `{"Image": "http://127.0.0.1:9/x.iso"}`, 403, false, false},
		{"followed by a reset", `{"when": {"path": "/redfish/v1/Managers/*/*/*/*/*"}, "effect": {"auto": {"reset": "ForceOff", "after": "1ms"}}}`, insertURL, imageBody, 204, true, true},
		{"by a task", `{"effect": {"task": {}}}`, insertURL, imageBody, 202, true, false},
		{"a BMC that ignores it", `{"effect": {"ignore": true}}`, bmcURL, resetBody("ForceRestart"), 204, false, false},
		{"a BMC that loses it", `{"effect": {"lose": ["ResetType"]}}`, bmcURL, resetBody("ForceRestart"), 204, false, false},
		{"a BMC that switches off", `{"effect": {"auto": {"reset": "ForceOff", "after": "1ms"}}}`, bmcURL, resetBody("ForceRestart"), 204, true, false},
		{"a BMC with a task", `{"effect": {"task": {}}}`, bmcURL, resetBody("ForceRestart"), 202, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, redfish.Config{Media: []string{"http://127.0.0.1:1/"}}, "node-1")
			if c.rule != "" {
				r.rule(c.rule)
			}
			got := r.do("POST", c.url, c.body)
			done := image(r) != ""
			if c.url == bmcURL {
				done = !up(r)
			}
			if got.status != c.status || done != c.done {
				t.Errorf("it answers %d %s, and is done: %t", got.status, got.body, done)
			}
			rec := next(t, "record", r.seen)
			if (rec.Executed != fakebmc.Never) != c.done {
				t.Errorf("it is recorded as executed at %v", rec.Executed)
			}
			if c.off {
				r.until("Off")
			}
			if c.status != http.StatusAccepted || c.url == bmcURL {
				return
			}
			monitor, task := got.header.Get("Location"), got.json(t)
			if name := task["Name"]; name != "media" {
				t.Errorf("the task is called %v", name)
			}
			if got := r.do("GET", monitor, ""); got.status != http.StatusNoContent {
				t.Errorf("its monitor answers %d", got.status)
			}
		})
	}
}

// TestTaskOfManager: a reset of the BMC is over when it is up again, and so says its task.
func TestTaskOfManager(t *testing.T) {
	r := quickRig(t)
	r.rule(`{"effect": {"task": {}}}`)
	monitor := r.do("POST", bmcURL, resetBody("ForceRestart")).header.Get("Location")
	eventually(t, said("the task isn't done"), func() bool {
		r.forget()
		got, err := r.try(t.Context(), "GET", monitor, "")
		return err == nil && got.status == http.StatusNoContent
	})
}

// quickRig has a host whose BMC restarts at once.
func quickRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, redfish.Config{}, "node-1")
	fakebmc.RestartTime(1)(r.bmcs[0])
	return r
}

// TestTaskFails: a task that ends in an exception says so, and so does its monitor.
func TestTaskFails(t *testing.T) {
	r := newRig(t, redfish.Config{}, "node-1")
	r.rule(`{"when": {"reset": ["ForceOff"]}, "effect": {"task": {"fails": {"status": 500, "id": "Acme.1.0.JobFailed", "text": "The job has failed."}}}}`)
	got := r.do("POST", resetURL, resetBody("ForceOff"))
	monitor := r.do("GET", got.header.Get("Location"), "")
	if got.status != http.StatusAccepted || monitor.status != http.StatusInternalServerError || !strings.Contains(string(monitor.body), "The job has failed.") {
		t.Errorf("it answers %d, and its monitor %d %s", got.status, monitor.status, monitor.body)
	}
	task := r.do("GET", "/redfish/v1/TaskService/Tasks/node-1-1", "").json(t)
	if task["TaskState"] != "Exception" || task["TaskStatus"] != "Critical" || !strings.Contains(mustJSON(t, task["Messages"]), "Acme.1.0.JobFailed") {
		t.Errorf("the task is %v", task)
	}
	for _, p := range readSchemas(t)["#Task.v1_7_0.Task"].check("task", task) {
		t.Error(p)
	}
}

// TestStatusByPhase: a system's status follows the phase of its host where rules say how.
func TestStatusByPhase(t *testing.T) {
	r := newRig(t, redfish.Config{}, "node-1")
	for phase, state := range map[string]string{"Off": "Disabled", "PoweringOn": "Starting"} {
		r.rule(`{"name": "` + phase + `", "when": {"path": "/redfish/v1/Systems/*", "phase": ["` + phase + `"]}, "effect": {"set": {"Status/State": "` + state + `"}}}`)
	}
	state := func() any { return inSystem(r.do("GET", systemURL, "").json(t), "Status", "State") }
	if got := state(); got != "Enabled" {
		t.Errorf("of a host that is on it is %v", got)
	}
	r.do("POST", resetURL, resetBody("ForceOff"))
	r.until("Off")
	if got := state(); got != "Disabled" {
		t.Errorf("of one that is off it is %v", got)
	}
}

// TestAnyPassword: whoever names somebody is let in; who names none is refused.
func TestAnyPassword(t *testing.T) {
	r := newRig(t, redfish.Config{AnyPassword: true}, "node-1")
	if got := r.do("GET", systemURL, ""); got.status != http.StatusUnauthorized {
		t.Errorf("without a name it answers %d", got.status)
	}
	r.user = [2]string{"calvin", "whatever"}
	if got := r.do("GET", systemURL, ""); got.status != http.StatusOK {
		t.Errorf("with one it answers %d", got.status)
	}
	login := r.do("POST", loginURL, `{"UserName": "root", "Password": "0penBmc"}`)
	if got := r.do("GET", systemURL, "", "Authorization", "", "X-Auth-Token", login.header.Get("X-Auth-Token")); got.status != http.StatusOK {
		t.Errorf("in a session it answers %d", got.status)
	}
	if got := r.do("GET", systemURL, "", "Authorization", "", "X-Auth-Token", "x"); got.status != http.StatusUnauthorized {
		t.Errorf("with a wrong token it answers %d", got.status)
	}
	if _, err := redfish.NewServer(redfish.Config{AnyPassword: true, Username: "a", Password: "b"}); err == nil {
		t.Error("an account beside it is taken")
	}
	server, err := redfish.NewServer(redfish.Config{AnyPassword: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if _, err := server.Listen("0.0.0.0:0", fakebmc.New("a", fixed{}, r.clk)); err == nil {
		t.Error("it is served beyond loopback")
	}
}

// TestWrongMedium: what isn't done with an image is refused.
func TestWrongMedium(t *testing.T) {
	r := newRig(t, redfish.Config{Media: []string{"http://127.0.0.1:1/"}}, "node-1")
	for _, property := range []string{"Inserted", "WriteProtected"} {
		if got := r.do("POST", insertURL, strings.Replace(imageBody, "}", `, "`+property+`": false}`, 1)); got.status != http.StatusBadRequest || got.message() != "ActionParameterValueNotInList" {
			t.Errorf("%s false answers %d %s", property, got.status, got.message())
		}
	}
}
