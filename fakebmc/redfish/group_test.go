package redfish_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/wall"
)

// served are the paths of a collection's members.
func (r *rig) served(path string) (paths []string) {
	r.t.Helper()
	for _, m := range r.do("GET", path, "").json(r.t)["Members"].([]any) {
		paths = append(paths, m.(map[string]any)["@odata.id"].(string))
	}
	return paths
}

// TestHostsComeAndGo: whoever listens for events learns that the hosts changed by
// the end of the stream.
func TestHostsComeAndGo(t *testing.T) {
	r := newRig(t, redfish.Config{}, "node-1", "node-2")
	next, leave := r.events()
	defer leave()
	const systems = "/redfish/v1/Systems"
	late := fakebmc.New("node-3", memory.New(wall.Clock(), memory.Timing{}, true), wall.Clock())
	if err := r.group.Add(late, late); err == nil {
		t.Error("two bmcs of one host were added")
	}
	if got := r.served(systems); len(got) != 2 {
		t.Errorf("after a refused Add there are %v", got)
	}
	if err := r.group.Add(late); err != nil {
		t.Fatal(err)
	}
	if e, err := next(); err == nil {
		t.Errorf("the stream goes on with %v", e)
	}
	if got, want := r.served(systems), []string{systems + "/node-1", systems + "/node-2", systems + "/node-3"}; !slices.Equal(got, want) {
		t.Errorf("there are %v, want %v", got, want)
	}
	if got := r.do("GET", systems+"/node-3", "").status; got != 200 {
		t.Errorf("the new host's system: %d", got)
	}
	if r.group.Remove("nobody") != nil {
		t.Error("nobody was there")
	}
	if gone := r.group.Remove("node-1"); gone != r.bmcs[0] {
		t.Errorf("removed %v", gone)
	}
	for _, path := range []string{systems + "/node-1", "/redfish/v1/Managers/node-1", "/redfish/v1/Chassis/node-1"} {
		if got := r.do("GET", path, "").status; got != 404 {
			t.Errorf("%s of a host that is gone: %d", path, got)
		}
	}
	if p, err := r.hosts[0].PowerState(); err != nil || p != fakebmc.On {
		t.Errorf("the host that is gone is %s, %v", p, err)
	}
}

// TestHostsByUUID: the resources are named by UUID, and the name leads there.
func TestHostsByUUID(t *testing.T) {
	const uuid = "0b0c4f0e-55f5-4a52-9e3a-3c7f1a3c7d5e"
	host := memory.New(wall.Clock(), memory.Timing{}, true)
	server, err := redfish.NewServer(account)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	url, err := server.Listen(":0", fakebmc.New("a host", host, wall.Clock(), fakebmc.UUID(uuid)))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, url: url, user: [2]string{account.Username, account.Password}, client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	system := r.do("GET", "/redfish/v1/Systems/"+uuid, "").json(t)
	if system["Id"] != uuid || system["UUID"] != uuid || system["Name"] != "a host" {
		t.Errorf("the system is %v", system)
	}
	for _, rest := range []string{"", "/Actions/ComputerSystem.Reset"} {
		got := r.do("POST", "/redfish/v1/Systems/a%20host"+rest, resetBody("ForceOff"))
		if want := "/redfish/v1/Systems/" + uuid + rest; got.status != http.StatusTemporaryRedirect || got.header.Get("Location") != want {
			t.Errorf("the name led to %d %q, want 307 %q", got.status, got.header.Get("Location"), want)
		}
	}
	if p, _ := host.PowerState(); p != fakebmc.On {
		t.Errorf("what was sent on was executed, too: the host is %s", p)
	}
	r.client.CheckRedirect = nil
	if got := r.do("POST", "/redfish/v1/Systems/a%20host/Actions/ComputerSystem.Reset", resetBody("ForceOff")); got.status != 204 {
		t.Errorf("a client that follows: %d %s", got.status, got.body)
	}
	r.user = [2]string{}
	if got := r.do("GET", "/redfish/v1/Systems/a%20host", ""); got.status != 401 {
		t.Errorf("without a password the name leads to %d", got.status)
	}
}
