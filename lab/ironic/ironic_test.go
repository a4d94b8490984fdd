package ironic_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
	"github.com/fencelab/fencelab/fakebmc/wall"
	"github.com/fencelab/fencelab/lab/ironic"
	"github.com/fencelab/fencelab/vms/keeper"
)

func TestMain(m *testing.M) {
	keeper.Main()
	os.Exit(m.Run())
}

const (
	// apiVersion is the highest of 21.4.
	apiVersion = "1.82"
	systemPath = "/redfish/v1/Systems/node-1"
	// patience only ends what hangs: every wait is for an event or a state, and takes seconds. It
	// is shorter than Ironic's default time-outs, so that an option which doesn't reach Ironic
	// shows.
	patience = 50 * time.Second
)

var account = redfish.Config{Username: "admin", Password: "s3cret"}

// launch skips, or fails with FENCELAB_REQUIRE_CLIENTS set, without Ironic.
func launch(t *testing.T, o ironic.Options) *ironic.Ironic {
	t.Helper()
	for _, f := range ironic.Preflight(t.Context(), o.Bin) {
		switch {
		case f.Remedy == "":
			t.Logf("%s: %s", f.Name, f.State)
		case os.Getenv("FENCELAB_REQUIRE_CLIENTS") != "":
			t.Fatalf("%s: %s; %s", f.Name, f.State, f.Remedy)
		default:
			t.Skipf("%s: %s; %s", f.Name, f.State, f.Remedy)
		}
	}
	began := time.Now()
	i, err := ironic.Launch(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("launched in %v", time.Since(began).Round(10*time.Millisecond))
	t.Cleanup(func() {
		if err := i.Stop(); err != nil {
			t.Error(err)
		}
	})
	return i
}

// rig is a host in memory, its BMC on a listener of its own, and what Ironic calls its node.
type rig struct {
	t    *testing.T
	api  string // of Ironic
	node string // UUID
	host *memory.Host
	bmc  *fakebmc.BMC
	url  string // of the BMC

	edges chan fakebmc.PowerState // of the host itself
	mu    sync.Mutex
	log   []fakebmc.Record
}

// newRig serves a host that is on, in its first boot.
func newRig(t *testing.T, i *ironic.Ironic, rules ...fakebmc.Rule) *rig {
	t.Helper()
	return newRigOf(t, i, nil, rules...)
}

// newRigOf does so with a BMC that has the shape of a mockup, if there is one.
func newRigOf(t *testing.T, i *ironic.Ironic, shape *redfish.Mockup, rules ...fakebmc.Rule) *rig {
	t.Helper()
	cfg := account
	var options []fakebmc.Option
	if shape != nil {
		cfg.Mockup = shape
		options = append(options, shape.Locate())
	}
	wall := wall.Clock()
	r := &rig{t: t, api: i.URL(), edges: make(chan fakebmc.PowerState, 1000)}
	r.host = memory.New(wall, memory.Timing{On: 200 * time.Millisecond, Off: 100 * time.Millisecond, Shutdown: 300 * time.Millisecond}, true)
	t.Cleanup(r.host.Watch(func(p fakebmc.PowerState) { r.edges <- p }))
	r.bmc = fakebmc.New("node-1", r.host, wall, append(options, fakebmc.OnRequest(r.record))...)
	r.misbehave(rules...)
	server, err := redfish.NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	if r.url, err = server.Listen("127.0.0.1:0", r.bmc); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) misbehave(rules ...fakebmc.Rule) {
	r.t.Helper()
	for _, rule := range rules {
		if err := r.bmc.AddRule(rule); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) record(rec fakebmc.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, rec)
}

func (r *rig) records() []fakebmc.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.log)
}

// resets are the reset types that the BMC was asked for, in order; "!" marks what it did not
// execute.
func (r *rig) resets() string {
	var all []string
	for _, rec := range r.records() {
		if rec.Request.ResetType == "" {
			continue
		}
		asked := string(rec.Request.ResetType)
		if rec.Executed == fakebmc.Never {
			asked += "!"
		}
		all = append(all, asked)
	}
	return strings.Join(all, " ")
}

// expect compares what physically happened with what should have.
func (r *rig) expect(state fakebmc.PowerState, boots int, resets string) {
	r.t.Helper()
	if p, err := r.host.PowerState(); err != nil || p != state {
		r.t.Errorf("the host is %s (%v), want %s", p, err, state)
	}
	if n := r.host.Boots(); n != boots {
		r.t.Errorf("the host has booted %d times, want %d", n, boots)
	}
	if got := r.resets(); got != resets {
		r.t.Errorf("the BMC was asked for %q, want %q", got, resets)
	}
}

// expectUntouched is for a host that has been on all the time.
func (r *rig) expectUntouched() {
	r.t.Helper()
	select {
	case p := <-r.edges:
		r.t.Errorf("the host has become %s", p)
	default:
	}
}

// edge awaits the host's own change to a state.
func (r *rig) edge(to fakebmc.PowerState) {
	r.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case p := <-r.edges:
			if p == to {
				return
			}
		case <-timeout:
			r.t.Fatalf("the host has not become %s; the BMC was asked for %q; node: %v", to, r.resets(), r.read())
		}
	}
}

// node holds the fields of a host's node in Ironic.
type node struct {
	UUID        string
	Provision   string  `json:"provision_state"`
	Target      *string `json:"target_provision_state"`
	Power       *string `json:"power_state"`
	PowerTarget *string `json:"target_power_state"`
	LastError   *string `json:"last_error"`
	Reservation *string
}

func (n node) power() string     { return text(n.Power) }
func (n node) lastError() string { return text(n.LastError) }

func (n node) String() string {
	return fmt.Sprintf("provision %s (target %s), power %s (target %s), reserved by %s, last error %s",
		n.Provision, text(n.Target), n.power(), text(n.PowerTarget), text(n.Reservation), n.lastError())
}

func text(s *string) string {
	if s == nil {
		return "none"
	}
	return *s
}

// call sends a request to Ironic, again while the node is locked, as it is by the power
// synchronization too. Ironic itself waits for the lock for a few seconds before it gives up.
func (r *rig) call(method, path string, body, answer any) {
	r.t.Helper()
	sent, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; {
		request, err := http.NewRequestWithContext(r.t.Context(), method, r.api+path, bytes.NewReader(sent))
		if err != nil {
			r.t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("X-OpenStack-Ironic-API-Version", apiVersion)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			r.t.Fatal(err)
		}
		got, err := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode == http.StatusConflict && strings.Contains(string(got), "is locked by host") && time.Now().Before(deadline) {
			continue
		}
		if err != nil || response.StatusCode >= 300 {
			r.t.Fatalf("%s %s %s: %s: %s (%v)", method, path, sent, response.Status, got, err)
		}
		if answer != nil {
			if err := json.Unmarshal(got, answer); err != nil {
				r.t.Fatalf("%s %s: %v: %s", method, path, err, got)
			}
		}
		return
	}
}

func (r *rig) read() (n node) {
	r.t.Helper()
	r.call(http.MethodGet, "/v1/nodes/"+r.node, nil, &n)
	return n
}

// settle polls until Ironic has done what it was asked for: Ironic reports nothing by itself.
func (r *rig) settle(what string, done func(node) bool) node {
	r.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for timeout := time.After(patience); ; {
		n := r.read()
		if done(n) {
			return n
		}
		select {
		case <-tick.C:
		case <-timeout:
			r.t.Fatalf("%s: %v", what, n)
		}
	}
}

func (r *rig) create(password string) {
	r.t.Helper()
	var n node
	r.call(http.MethodPost, "/v1/nodes", map[string]any{
		"driver": "redfish", "inspect_interface": "redfish",
		"driver_info": map[string]any{
			"redfish_address": r.url, "redfish_system_id": r.bmc.SystemPath(), "redfish_username": account.Username,
			"redfish_password": password, "redfish_verify_ca": false,
		},
	}, &n)
	r.node = n.UUID
}

// provision asks for a change of the provision state, and returns the node after it.
func (r *rig) provision(verb string) node {
	r.t.Helper()
	r.call(http.MethodPut, "/v1/nodes/"+r.node+"/states/provision", map[string]string{"target": verb}, nil)
	return r.settle(verb, func(n node) bool {
		return n.Target == nil && n.Reservation == nil && !slices.Contains([]string{"verifying", "adopting", "inspecting"}, n.Provision)
	})
}

// power asks for a power state, and returns the node when Ironic has done with it.
func (r *rig) power(target string) node {
	r.t.Helper()
	r.call(http.MethodPut, "/v1/nodes/"+r.node+"/states/power", map[string]string{"target": target}, nil)
	return r.settle(target, func(n node) bool { return n.PowerTarget == nil && n.Reservation == nil })
}

// adopt enrolls the host as one that runs already, as an externally provisioned BareMetalHost is.
func (r *rig) adopt() {
	r.t.Helper()
	r.create(account.Password)
	if n := r.provision("manage"); n.Provision != "manageable" || n.power() != "power on" {
		r.t.Fatalf("after manage: %v", n)
	}
	if n := r.provision("adopt"); n.Provision != "active" || n.power() != "power on" {
		r.t.Fatalf("after adopt: %v", n)
	}
	r.expect(fakebmc.On, 1, "")
}

func (r *rig) want(n node, power string) {
	r.t.Helper()
	if n.power() != power || n.LastError != nil {
		r.t.Errorf("%v; want %s without an error", n, power)
	}
}

func TestIronic(t *testing.T) {
	// All of what follows is waiting, of Ironic's. Without the loop nothing but the requests below
	// changes a host's power.
	calm := launch(t, ironic.Options{SyncInterval: time.Hour, PowerTimeout: 4 * time.Second, SoftOffTimeout: 3 * time.Second})

	t.Run("a wrong password", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, calm)
		r.create("wrong")
		if n := r.provision("manage"); n.Provision != "enroll" || !strings.Contains(n.lastError(), "returned code 401") {
			t.Errorf("after manage: %v", n)
		}
		r.expect(fakebmc.On, 1, "")
	})

	t.Run("inspection", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, calm)
		r.create(account.Password)
		r.provision("manage")
		if n := r.provision("inspect"); n.Provision != "manageable" || n.LastError != nil {
			t.Fatalf("after inspect: %v", n)
		}
		var found struct{ Properties map[string]any }
		r.call(http.MethodGet, "/v1/nodes/"+r.node, nil, &found)
		var ports struct{ Ports []struct{ Address string } }
		r.call(http.MethodGet, "/v1/ports?node="+r.node, nil, &ports)
		inventory, err := r.host.Inventory()
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]any{
			"cpus": float64(inventory.Processors[0].Threads), "cpu_arch": "x86_64", "memory_mb": float64(inventory.MiB()),
			// Ironic leaves a GiB for partitions.
			"local_gb": float64(inventory.Drives[0].Bytes>>30 - 1),
		} {
			if got := found.Properties[name]; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		var addresses []string
		for _, p := range ports.Ports {
			addresses = append(addresses, p.Address)
		}
		slices.Sort(addresses)
		if want := []string{inventory.NICs[0].MAC, inventory.NICs[1].MAC}; !slices.Equal(addresses, want) {
			t.Errorf("the ports are %q, want %q", addresses, want)
		}
		r.expect(fakebmc.On, 1, "")
	})

	t.Run("power", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, calm)
		r.adopt()
		r.want(r.power("power off"), "power off")
		r.edge(fakebmc.Off)
		r.expect(fakebmc.Off, 1, "ForceOff")
		r.want(r.power("power on"), "power on")
		r.edge(fakebmc.On)
		r.expect(fakebmc.On, 2, "ForceOff On")
		r.want(r.power("soft power off"), "power off")
		r.edge(fakebmc.Off)
		r.expect(fakebmc.Off, 2, "ForceOff On GracefulShutdown")
		r.want(r.power("power on"), "power on")
		r.edge(fakebmc.On)
		r.expect(fakebmc.On, 3, "ForceOff On GracefulShutdown On")
	})

	// Vendors' trees differ in more than names: in slashes at the end, in where sessions are,
	// resets are listed, and a boot override is to be set.
	const testdata = "../../fakebmc/redfish/testdata/"
	trees, err := filepath.Glob(testdata + "mockups/*")
	shapes, shapesErr := filepath.Glob(testdata + "shapes/*.json")
	if trees = append(trees, shapes...); errors.Join(err, shapesErr) != nil || len(trees) < 14 {
		t.Fatalf("the mockups are %q, want fourteen at least: %v, %v", trees, err, shapesErr)
	}
	for _, dir := range trees {
		t.Run("power and boot device of the mockup "+filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			if filepath.Ext(dir) == ".json" {
				dir = systemtest.Shape(t, dir)
			}
			shape, err := redfish.LoadMockup(dir)
			if err != nil {
				t.Fatal(err)
			}
			r := newRigOf(t, calm, shape)
			r.adopt()
			r.call(http.MethodPut, "/v1/nodes/"+r.node+"/management/boot_device", map[string]any{"boot_device": "pxe", "persistent": false}, nil)
			if boot, err := r.host.Boot(); err != nil || boot.Target != fakebmc.BootPxe || boot.Enabled != fakebmc.BootOnce {
				t.Errorf("the host boots from %+v, %v", boot, err)
			}
			r.want(r.power("power off"), "power off")
			r.edge(fakebmc.Off)
			r.want(r.power("power on"), "power on")
			r.edge(fakebmc.On)
			r.want(r.power("soft power off"), "power off")
			r.edge(fakebmc.Off)
			r.expect(fakebmc.Off, 2, "ForceOff On GracefulShutdown")
		})
	}

	t.Run("rebooting is off and on", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, calm)
		r.adopt()
		r.want(r.power("rebooting"), "power on")
		r.edge(fakebmc.Off)
		r.edge(fakebmc.On)
		r.expect(fakebmc.On, 2, "ForceOff On")
	})

	t.Run("a guest that ignores the request", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, calm, fakebmc.Rule{Name: "deaf", Effect: fakebmc.Effect{Guest: &fakebmc.Guest{Ignore: true}}})
		r.adopt()
		if n := r.power("soft power off"); n.power() == "power off" || !strings.Contains(n.lastError(), "Failed to set node power state to power off") {
			t.Errorf("%v; want a failure", n)
		}
		r.expect(fakebmc.On, 1, "GracefulShutdown")
	})

	t.Run("a BMC that accepts and does nothing", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, calm, fakebmc.Rule{Name: "idle", When: fakebmc.Selector{Reset: []fakebmc.ResetType{fakebmc.ResetForceOff}}, Effect: fakebmc.Effect{Ignore: true}})
		r.adopt()
		if n := r.power("power off"); n.power() == "power off" || !strings.Contains(n.lastError(), "Failed to set node power state to power off") {
			t.Errorf("%v; want a failure", n)
		}
		r.expect(fakebmc.On, 1, "ForceOff!")
	})

	// Ironic 21.4 takes PoweringOff for off, so it says off of a host whose processes run: whoever
	// deletes a Node on its word, as the consumers of BareMetalHost.status.poweredOn do, deletes it
	// too early.
	t.Run("PoweringOff is off to Ironic", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, calm)
		r.adopt()
		// As the preset powering-off-while-running, for longer than the test.
		r.misbehave(fakebmc.Rule{
			Name:   "row-1",
			When:   fakebmc.Selector{Reset: []fakebmc.ResetType{fakebmc.ResetForceOff}},
			Effect: fakebmc.Effect{Transition: &fakebmc.Transition{For: fakebmc.Duration(time.Hour), Report: "PoweringOff"}},
		})
		r.want(r.power("power off"), "power off")
		r.expect(fakebmc.On, 1, "ForceOff!")
		r.expectUntouched()
		if last := r.lastRead(); last.Actual != fakebmc.On || last.Answer.PowerState != fakebmc.PoweringOff {
			t.Errorf("Ironic believed a read of %s while the host was %s; want PoweringOff and On", last.Answer.PowerState, last.Actual)
		}
	})

	// The same reading before the request: Ironic says off without having asked the BMC for
	// anything.
	t.Run("PoweringOff is nothing to switch off", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, calm)
		r.adopt()
		r.misbehave(fakebmc.Rule{Name: "row-1", Effect: fakebmc.Effect{Report: "PoweringOff"}})
		r.want(r.power("power off"), "power off")
		r.expect(fakebmc.On, 1, "")
		r.expectUntouched()
	})
}

func isRead(rec fakebmc.Record) bool {
	return rec.Request.Method == http.MethodGet && rec.Request.Path == systemPath
}

// lastRead is the last read of the power state that the BMC has answered.
func (r *rig) lastRead() fakebmc.Record {
	r.t.Helper()
	all := r.records()
	for _, rec := range slices.Backward(all) {
		if isRead(rec) {
			return rec
		}
	}
	r.t.Fatalf("no read of the power state among %d requests", len(all))
	return fakebmc.Record{}
}

// Ironic enforces the power state in its database: fencing past Ironic does not last, except in
// maintenance.
func TestPowerSync(t *testing.T) {
	i := launch(t, ironic.Options{SyncInterval: 2 * time.Second})
	fenced, spared := newRig(t, i), newRig(t, i)
	fenced.adopt()
	spared.adopt()
	spared.call(http.MethodPut, "/v1/nodes/"+spared.node+"/maintenance", map[string]string{"reason": "fenced by somebody else"}, nil)
	switchOff := func(r *rig) {
		if err := r.host.Reset(fakebmc.ResetForceOff); err != nil {
			t.Fatal(err)
		}
		r.edge(fakebmc.Off)
	}
	switchOff(spared)
	// Twice, so that a whole round of the loop has seen the spared host off.
	for _, asked := range []string{"On", "On On"} {
		before := len(fenced.records())
		switchOff(fenced)
		off := time.Now()
		fenced.edge(fakebmc.On)
		t.Logf("switched on again %v after it was off", time.Since(off).Round(10*time.Millisecond))
		fenced.expect(fakebmc.On, 1+len(strings.Fields(asked)), asked)
		if n := fenced.readsOff(before); n == 0 || n > 2*readsPerRound {
			t.Errorf("Ironic has read the state of the host that is off %d times before it acted; want a round or two", n)
		}
		fenced.want(fenced.settle("power sync", func(n node) bool { return n.Reservation == nil && n.PowerTarget == nil }), "power on")
	}
	spared.expect(fakebmc.Off, 1, "")
}

// readsPerRound is how often the loop reads the state of a host that isn't as it should be: without
// and with the lock, and then the power action.
const readsPerRound = 5

// readsOff counts the reads of the power state while the host was off, among the requests after
// the first ones.
func (r *rig) readsOff(after int) (n int) {
	for _, rec := range r.records()[after:] {
		if isRead(rec) && rec.Actual == fakebmc.Off {
			n++
		}
	}
	return n
}

func TestLaunchRefusesOptions(t *testing.T) {
	_, err := ironic.Launch(t.Context(), ironic.Options{SyncInterval: 1500 * time.Millisecond, PowerTimeout: time.Second, SoftOffTimeout: -time.Second})
	for _, name := range []string{"SyncInterval is 1.5s", "PowerTimeout is 1s", "SoftOffTimeout is -1s"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v; want %q in it", err, name)
		}
	}
}

func TestLaunchTellsWhatFailed(t *testing.T) {
	for name, c := range map[string]struct{ dbsync, ironic, want string }{
		"schema":     {"echo no room; exit 1", "exit 0", "create ironic's database: exit status 1; its last lines:\nno room"},
		"early exit": {"exit 0", "echo Traceback; echo KeyError >&2; exit 3", "ironic ended by itself (exit status 3); its last lines:\nTraceback\nKeyError"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			_, err := ironic.Launch(t.Context(), ironic.Options{Bin: fakeBin(t, c.dbsync, c.ironic)})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
			if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
				t.Errorf("left in the temporary directory: %v (%v)", left, err)
			}
		})
	}
	if _, err := ironic.Launch(t.Context(), ironic.Options{Bin: t.TempDir()}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "install.sh") {
		t.Errorf("without Ironic: %v", err)
	}
}

func TestPreflight(t *testing.T) {
	bin := fakeBin(t, "echo 21.4.4", "echo 'cannot run'; exit 1")
	findings := ironic.Preflight(t.Context(), bin)
	if len(findings) != 2 {
		t.Fatalf("findings: %v", findings)
	}
	if f := findings[0]; f.State != "21.4.4 in "+filepath.Join(bin, "ironic-dbsync") || f.Remedy != "" {
		t.Errorf("a good one: %+v", f)
	}
	if f := findings[1]; !strings.Contains(f.State, "cannot run") || f.Remedy == "" {
		t.Errorf("a broken one: %+v", f)
	}
	for _, f := range ironic.Preflight(t.Context(), t.TempDir()) {
		if !strings.Contains(f.State, "no such file") || !strings.Contains(f.Remedy, "install.sh") {
			t.Errorf("in an empty directory: %+v", f)
		}
	}
}

// fakeBin is a directory with scripts in place of Ironic's executables.
func fakeBin(t *testing.T, dbsync, ironic string) string {
	t.Helper()
	bin := t.TempDir()
	for name, script := range map[string]string{"ironic-dbsync": dbsync, "ironic": ironic} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}
