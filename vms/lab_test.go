//go:build cgo && libvirt_dlopen

package vms

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencelab/fencelab/vms/guest/evidence"
	"github.com/fencelab/fencelab/vms/keeper"
	"github.com/fencelab/fencelab/vms/network"
)

const (
	testAssets    = "../.cache/lab"
	ownerVariable = "VMS_TEST_OWNER"
	// patience bounds every wait for an event; a busy machine emulates slowly.
	patience = 90 * time.Second
)

func TestMain(m *testing.M) {
	keeper.Main()
	if os.Getenv(ownerVariable) != "" {
		own()
	}
	os.Exit(m.Run())
}

// requireLab skips where no VM can run, and fails where the machine was promised to run them.
func requireLab(t *testing.T) {
	t.Helper()
	for _, f := range Preflight(t.Context(), testAssets, "") {
		if f.OK || !f.Needed {
			continue
		}
		if os.Getenv("FENCELAB_REQUIRE_LAB") == "1" {
			t.Fatalf("%s: %s", f.Subject, f.Detail)
		}
		t.Skipf("%s: %s", f.Subject, f.Detail)
	}
}

// testLab is a Lab and the events that it has reported so far.
type testLab struct {
	*Lab
	t       *testing.T
	history []Event
}

func openLab(t *testing.T, silence time.Duration) *testLab {
	t.Helper()
	requireLab(t)
	l, err := Open(t.Context(), Options{Assets: testAssets, Evidence: t.TempDir(), Silence: silence, BootSilence: patience})
	if err != nil {
		t.Fatal(err)
	}
	tl := &testLab{Lab: l, t: t}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			for _, e := range tl.history {
				t.Log(e)
			}
			consoles, _ := filepath.Glob(filepath.Join(l.options.Evidence, "*.console"))
			for _, path := range consoles {
				text, _ := os.ReadFile(path)
				t.Logf("%s:\n%s", path, text)
			}
		}
	})
	return tl
}

func (l *testLab) host(c HostConfig) *Domain {
	l.t.Helper()
	d, err := l.NewDomain(c)
	if err != nil {
		l.t.Fatal(err)
	}
	return d
}

// await reads on until an event of this kind about this process.
func (l *testLab) await(kind Kind, process string) Event {
	l.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case e, ok := <-l.Events():
			if !ok {
				l.t.Fatalf("the stream ended before %s %s", kind, process)
			}
			if n := len(l.history); n > 0 && e.At < l.history[n-1].At {
				l.t.Errorf("%v comes after %v", e, l.history[n-1])
			}
			l.history = append(l.history, e)
			if e.Kind == kind && e.Process == process && !e.Late {
				return e
			}
		case <-timeout:
			l.t.Fatalf("no %s %s in %v", kind, process, patience)
		}
	}
}

func (l *testLab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

const heartbeat = Kind(evidence.Heartbeat)

func TestPowerAndBoots(t *testing.T) {
	l := openLab(t, 10*time.Second)
	ctx := t.Context()
	d := l.host(HostConfig{Name: "worker-1"})
	if s := d.State(); s != StateOff {
		t.Errorf("a new host is %s", s)
	}
	l.must(d.On(ctx))
	on := l.await(PoweredOn, "")
	first := l.await(Kind(evidence.Boot), "")
	t.Logf("power on to boot: %v", first.At-on.At)
	var last Event
	for range 10 {
		last = l.await(heartbeat, "")
	}
	// The watchdog's margin and the Lease's renewals mean what they say only if the guest's seconds
	// are ours.
	if ratio := float64(last.Uptime-first.Uptime) / float64(last.At-first.At); ratio < 0.5 || ratio > 2 {
		t.Errorf("the guest's clock runs at %.2f of its true rate", ratio)
	}

	l.must(d.Restart(ctx))
	if e := l.await(Reset, ""); e.Boot != first.Boot || e.Detail != resetRequested {
		t.Errorf("reset of boot %s is %v", first.Boot, e)
	}
	second := l.await(Kind(evidence.Boot), "")
	if second.Boot == first.Boot {
		t.Errorf("boot %s outlives a reset", first.Boot)
	}

	l.must(d.Pause(ctx))
	if e := l.await(Paused, ""); e.Boot != second.Boot || d.State() != StatePaused {
		t.Errorf("state %s after %v", d.State(), e)
	}
	l.must(d.Resume(ctx))
	l.await(Resumed, "")
	l.await(heartbeat, "")

	asked := l.Now()
	l.must(d.ForceOff(ctx))
	off := l.await(PoweredOff, "")
	t.Logf("force off: %v", off.At-asked)
	if off.Boot != second.Boot || off.Detail != "destroyed" || d.State() != StateOff {
		t.Errorf("state %s after %v", d.State(), off)
	}
	l.must(d.ForceOff(ctx))
	if err := d.Restart(ctx); err == nil {
		t.Error("a host that is off was reset")
	}
	if err := d.Tell(ctx, evidence.Hang); err == nil {
		t.Error("a host that is off was told something")
	}

	l.must(d.On(ctx))
	third := l.await(Kind(evidence.Boot), "")
	l.await(heartbeat, "")
	l.must(d.Tell(ctx, evidence.IgnoreShutdown))
	l.must(d.Shutdown())
	if e := l.await(Kind(evidence.ShutdownIgnored), ""); e.Boot != third.Boot {
		t.Errorf("%v in boot %s", e, third.Boot)
	}
	l.must(d.Restart(ctx)) // ends the effect of the boot's commands
	l.await(Kind(evidence.Boot), "")
	l.await(heartbeat, "")
	l.must(d.Shutdown())
	asking := l.await(Kind(evidence.ShuttingDown), "")
	l.await(Kind(evidence.Done), "")
	off = l.await(PoweredOff, "")
	t.Logf("graceful shutdown: %v", off.At-asking.At)
	if off.Detail != "shutdown" {
		t.Errorf("a guest that switched itself off: %v", off)
	}

	l.must(d.On(ctx))
	boot := l.await(Kind(evidence.Boot), "")
	qemu, err := os.ReadFile(filepath.Join(l.hypervisor.pids, d.spec.name+".pid"))
	l.must(err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(qemu)))
	l.must(err)
	l.must(syscall.Kill(pid, syscall.SIGKILL))
	if off := l.await(PoweredOff, ""); off.Boot != boot.Boot || off.Detail != "failed" || d.State() != StateOff {
		t.Errorf("QEMU of boot %s was killed: %v", boot.Boot, off)
	}

	for _, e := range l.history {
		if e.Kind == EvidenceLost || e.Kind == Kind(evidence.Trouble) || e.Late {
			t.Errorf("unexpected: %v", e)
		}
	}
}

// Another client of the hypervisor may switch a domain off and at once on again. Each step is
// reported, in order, and once the domain has settled its state is the one that the client was
// given.
func TestSomebodyElseChangesThePower(t *testing.T) {
	l := openLab(t, patience)
	ctx := t.Context()
	d := l.host(HostConfig{Name: "worker-1"})
	settled := func(want State) {
		t.Helper()
		if l.must(d.Settle(ctx, 0)); d.State() != want {
			t.Errorf("it is %s, want %s", d.State(), want)
		}
	}
	l.must(d.libvirt.Create())
	settled(StateOn)
	l.await(PoweredOn, "")
	for range 2 {
		boot := l.await(Kind(evidence.Boot), "")
		l.must(d.libvirt.Destroy())
		l.must(d.libvirt.Create())
		settled(StateOn)
		if off := l.await(PoweredOff, ""); off.Boot != boot.Boot {
			t.Errorf("the end of boot %s is %v", boot.Boot, off)
		}
		l.await(PoweredOn, "")
	}
	l.await(Kind(evidence.Boot), "")
	l.must(d.libvirt.Destroy())
	settled(StateOff)
	l.await(PoweredOff, "")
	l.must(d.On(ctx))
	boot := l.await(Kind(evidence.Boot), "")
	done := d.Restarting()
	l.must(d.libvirt.Reset(0))
	if e := l.await(Reset, ""); e.Boot != boot.Boot || e.Detail != resetRequested {
		t.Errorf("reset of boot %s is %v", boot.Boot, e)
	}
	done()
	l.await(Kind(evidence.Boot), "")
}

func TestWatchdogFiresWhenNotFed(t *testing.T) {
	for name, device := range map[string]bool{"softdog": false, "i6300esb": true} {
		t.Run(name, func(t *testing.T) { testWatchdog(t, device) })
	}
}

func testWatchdog(t *testing.T, device bool) {
	const margin = 3 * time.Second
	l := openLab(t, time.Second)
	d := l.host(HostConfig{Name: "worker-1", Watchdog: margin, WatchdogDevice: device})
	l.must(d.On(t.Context()))
	for _, command := range []evidence.Command{evidence.StopFeeding, evidence.Hang} {
		boot := l.await(Kind(evidence.Boot), "")
		l.await(heartbeat, "")
		l.must(d.Tell(t.Context(), command))
		told := l.await(Kind(evidence.Accepted), "")
		if command == evidence.Hang {
			if e := l.await(Halted, ""); e.Boot != boot.Boot || e.Detail != string(evidence.Hang) {
				t.Errorf("boot %s hangs, but %v", boot.Boot, e)
			}
		}
		reset := l.await(Reset, "")
		t.Logf("%s to reset, with a margin of %v: %v", command, margin, reset.At-told.At)
		if reset.Boot != boot.Boot || reset.Detail != ResetWatchdog {
			t.Errorf("the watchdog of boot %s fired: %v", boot.Boot, reset)
		}
	}
	l.await(Kind(evidence.Boot), "")
}

// TestPanic: a kernel that has panicked stays as it is, whatever feeds or would reset it, until
// the machine is reset from outside.
func TestPanic(t *testing.T) {
	const margin = 3 * time.Second
	l := openLab(t, time.Second)
	d := l.host(HostConfig{Name: "worker-1", Watchdog: margin})
	l.must(d.On(t.Context()))
	boot := l.await(Kind(evidence.Boot), "")
	l.await(heartbeat, "")
	l.must(d.Tell(t.Context(), evidence.Panic))
	if e := l.await(Halted, ""); e.Boot != boot.Boot || e.Detail != string(evidence.Panic) {
		t.Errorf("boot %s panics, but %v", boot.Boot, e)
	}
	time.Sleep(margin + 2*time.Second) // a softdog would have fired, and evidence would have been lost
	if d.State() != StateOn {
		t.Errorf("the machine is %s", d.State())
	}
	l.must(d.Restart(t.Context()))
	if e := l.await(Reset, ""); e.Boot != boot.Boot || e.Detail != resetRequested {
		t.Errorf("the end of boot %s is %v", boot.Boot, e)
	}
	l.await(Kind(evidence.Boot), "")
	l.await(heartbeat, "")
}

// TestPrograms: a program of somebody else's runs from boot to boot, can be killed and
// started again, and has the watchdog to itself.
func TestPrograms(t *testing.T) {
	const margin, name = 6 * time.Second, "feeder"
	l := openLab(t, 10*time.Second)
	executable := filepath.Join(t.TempDir(), name)
	build := exec.Command("go", "build", "-o", executable, "./testdata/feeder")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d := l.host(HostConfig{Name: "worker-1", Watchdog: margin, Executable: executable, Programs: []Program{
		{Program: evidence.Program{Name: name, FeedsWatchdog: true}, Config: []byte("1s")},
	}})
	started, stopped := Kind(evidence.ProgramStarted), Kind(evidence.ProgramStopped)
	tell := func(c evidence.Command) {
		t.Helper()
		l.must(d.Tell(t.Context(), c))
	}
	l.must(d.On(t.Context()))
	boot := l.await(Kind(evidence.Boot), "")
	l.await(started, name)
	time.Sleep(2 * margin) // in which it feeds
	tell(evidence.KillProgram.Of(name))
	l.await(stopped, name)
	tell(evidence.StartProgram.Of(name)) // in time
	if again := l.await(started, name); again.Boot != boot.Boot {
		t.Fatalf("the program of boot %s started again: %v", boot.Boot, again)
	}
	time.Sleep(2 * margin)
	tell(evidence.PauseProgram.Of(name))
	if reset := l.await(Reset, ""); reset.Boot != boot.Boot || reset.Detail != ResetWatchdog {
		t.Errorf("a program that stands still feeds nothing: %v", reset)
	}
	l.await(Kind(evidence.Boot), "")
	l.await(started, name)
	tell(evidence.StopFeeding)
	l.await(stopped, name)
	tell(evidence.StartProgram.Of(name)) // it is over for this boot
	if reset := l.await(Reset, ""); reset.Detail != ResetWatchdog {
		t.Errorf("nobody feeds: %v", reset)
	}
	l.await(started, name)
}

// apiServer implements the part of an API server that the guest's kubelet uses. It keeps what is
// written to it.
type apiServer struct {
	*httptest.Server
	seen chan string // "METHOD path", without bound as far as a test goes

	mu       sync.Mutex
	requests int
	bodies   map[string]map[string]any // the last body by "METHOD path"
	node     bool
	lease    int // its version, 0 if there is none
	pods     []map[string]any
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{seen: make(chan string, 100000), bodies: map[string]map[string]any{}}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // a guest that is reset leaves handshakes unfinished
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	key := r.Method + " " + r.URL.Path
	body := map[string]any{}
	text, _ := io.ReadAll(r.Body)
	json.Unmarshal(text, &body)
	s.bodies[key] = body
	fail := func(code int) { http.Error(w, http.StatusText(code), code) }
	answer := func(v any) { json.NewEncoder(w).Encode(v) }
	meta := func(uid string) map[string]any { return map[string]any{"metadata": map[string]any{"uid": uid}} }
	switch {
	case r.Header.Get("Authorization") != "Bearer secret":
		fail(http.StatusUnauthorized)
	case key == "POST /api/v1/nodes" && s.node:
		fail(http.StatusConflict)
	case key == "POST /api/v1/nodes":
		s.node = true
		answer(meta("node-uid"))
	case key == "GET /api/v1/nodes/worker-1" && s.node:
		answer(meta("node-uid"))
	case strings.HasPrefix(key, "PATCH /api/v1/nodes/worker-1") && s.node:
		answer(meta("node-uid"))
	case strings.HasPrefix(key, "POST ") && strings.HasSuffix(key, "/leases") && s.lease == 0, strings.HasSuffix(key, "/leases/worker-1") && s.lease > 0:
		if r.Method != http.MethodGet {
			if s.lease > 0 && version(body) != strconv.Itoa(s.lease) {
				fail(http.StatusConflict)
				break
			}
			s.lease++
		}
		answer(map[string]any{"metadata": map[string]any{"uid": "lease-uid", "resourceVersion": strconv.Itoa(s.lease)}})
	case key == "GET /api/v1/pods" && r.URL.RawQuery == "fieldSelector="+url.QueryEscape("spec.nodeName=worker-1"):
		answer(map[string]any{"items": s.pods})
	case key == "DELETE /api/v1/namespaces/default/pods/bank":
		s.pods = nil
		answer(map[string]any{})
	case strings.HasPrefix(key, "PATCH /api/v1/namespaces/default/pods/bank"):
		answer(map[string]any{})
	default:
		fail(http.StatusNotFound)
	}
	s.seen <- key
}

// version is that of an object in a request.
func version(body map[string]any) string {
	metadata, _ := body["metadata"].(map[string]any)
	v, _ := metadata["resourceVersion"].(string)
	return v
}

func (s *apiServer) await(t *testing.T, key string) map[string]any {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case got := <-s.seen:
			if got == key {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.bodies[key]
			}
		case <-timeout:
			t.Fatalf("no request %s in %v", key, patience)
		}
	}
}

func (s *apiServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func (s *apiServer) setPods(pods ...map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = pods
}

func bankPod(uid string) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": "bank", "namespace": "default", "uid": uid},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "bank", "image": "none"}}},
	}
}

func TestKubelet(t *testing.T) {
	l := openLab(t, 10*time.Second)
	ctx := t.Context()
	server := newAPIServer(t)
	address, err := l.Serve("api", network.Target{To: server.Listener.Addr().String()})
	l.must(err)
	d := l.host(HostConfig{Name: "worker-1", Kubelet: &evidence.Kubelet{
		Server:     "https://" + address[0].String(),
		ServerName: "127.0.0.1",
		CA:         string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
		Token:      "secret",
		Labels:     map[string]string{"rack": "r1"},
		Lease:      300 * time.Millisecond, Status: time.Second, Pods: 200 * time.Millisecond, Grace: 5 * time.Second,
	}})
	l.must(d.On(ctx))
	on := l.await(PoweredOn, "")
	started := l.await(Kind(evidence.KubeletStarted), "")
	t.Logf("power on to kubelet started: %v", started.At-on.At)
	node := server.await(t, "POST /api/v1/nodes")
	if got := fmt.Sprint(node["metadata"]); !strings.Contains(got, "name:worker-1") || !strings.Contains(got, "rack:r1") {
		t.Errorf("registered the Node %s", got)
	}
	status := fmt.Sprint(server.await(t, "PATCH /api/v1/nodes/worker-1/status")["status"])
	if !strings.Contains(status, "status:True type:Ready") || !strings.Contains(status, "bootID:"+started.Boot) || !strings.Contains(status, "systemUUID:"+d.UUID()) {
		t.Errorf("status of boot %s: %s", started.Boot, status)
	}
	t.Logf("power on to Ready: %v", l.Now()-on.At)
	const leasePath = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	if spec := fmt.Sprint(server.await(t, "POST "+leasePath)["spec"]); !strings.Contains(spec, "holderIdentity:worker-1") {
		t.Errorf("lease %s", spec)
	}
	server.await(t, "PUT "+leasePath+"/worker-1")

	server.setPods(bankPod("pod-1"))
	if e := l.await(Kind(evidence.WorkloadStarted), "bank"); e.Detail != "pod-1" || e.Boot != started.Boot {
		t.Errorf("workload of pod-1 in boot %s: %v", started.Boot, e)
	}
	l.await(heartbeat, "bank")
	if status := fmt.Sprint(server.await(t, "PATCH /api/v1/namespaces/default/pods/bank/status")["status"]); !strings.Contains(status, "phase:Running") {
		t.Errorf("status of the running Pod: %s", status)
	}

	// The guest is cut off and can't learn that its Pod is gone: the workload runs on, and we
	// still see it.
	l.Cut(d.Links()...)
	l.await(LinkDown, "")
	server.setPods()
	cut := server.count()
	for range 20 {
		l.await(heartbeat, "bank")
	}
	// The kubelet's two goroutines may each have had a request on its way when the links were cut.
	if n := server.count(); n > cut+2 {
		t.Errorf("%d requests passed a cut link", n-cut)
	}
	l.Restore(d.Links()...)
	l.await(LinkUp, "")
	l.await(Kind(evidence.WorkloadStopped), "bank")

	// A Pod that is deleted in an orderly way is stopped first and confirmed afterwards.
	server.setPods(bankPod("pod-2"))
	l.await(Kind(evidence.WorkloadStarted), "bank")
	deleted := bankPod("pod-2")
	deleted["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	server.setPods(deleted)
	l.await(Kind(evidence.WorkloadStopped), "bank")
	if body := fmt.Sprint(server.await(t, "DELETE /api/v1/namespaces/default/pods/bank")); !strings.Contains(body, "uid:pod-2") {
		t.Errorf("deletion without the precondition: %s", body)
	}

	// A kubelet that dies leaves its workload, which the next one takes over.
	server.setPods(bankPod("pod-3"))
	l.await(Kind(evidence.WorkloadStarted), "bank")
	l.must(d.Tell(ctx, evidence.StopKubelet))
	l.await(Kind(evidence.KubeletStopped), "")
	l.await(heartbeat, "bank")
	l.must(d.Tell(ctx, evidence.StartKubelet))
	l.await(Kind(evidence.KubeletAgain), "")
	// One that is to run again before it is gone comes back as well.
	for range 5 {
		l.must(d.Tell(ctx, evidence.StopKubelet))
		l.must(d.Tell(ctx, evidence.StartKubelet))
		l.await(Kind(evidence.KubeletAgain), "")
	}
	server.setPods()
	l.await(Kind(evidence.WorkloadStopped), "bank")

	// A graceful shutdown stops the workload before the power goes.
	server.setPods(bankPod("pod-4"))
	l.await(Kind(evidence.WorkloadStarted), "bank")
	l.must(d.Shutdown())
	l.await(Kind(evidence.ShuttingDown), "")
	l.await(Kind(evidence.WorkloadStopped), "bank")
	l.await(Kind(evidence.KubeletStopped), "")
	l.await(Kind(evidence.Done), "")
	l.await(PoweredOff, "")

	// The next boot takes the Node over and runs the Pod that is still bound to it.
	l.must(d.On(ctx))
	l.await(Kind(evidence.KubeletStarted), "")
	l.await(Kind(evidence.WorkloadStarted), "bank")
	server.await(t, "GET /api/v1/nodes/worker-1")
}

// The answers of guests prove both directions of what lies between them.
func TestGuestsExchangePackets(t *testing.T) {
	l := openLab(t, 10*time.Second)
	ctx := t.Context()
	one := l.host(HostConfig{Name: "worker-1", Peers: []string{"worker-2", "worker-3"}})
	two := l.host(HostConfig{Name: "worker-2", Peers: []string{"worker-1"}})
	// A guest whose heart beats has its network up.
	booted := func(d *Domain) {
		t.Helper()
		for e := l.await(Kind(evidence.Boot), ""); e.Host != d.Name(); e = l.await(Kind(evidence.Boot), "") {
		}
		for e := l.await(heartbeat, ""); e.Host != d.Name(); e = l.await(heartbeat, "") {
		}
	}
	for _, d := range []*Domain{one, two} {
		l.must(d.On(ctx))
		booted(d)
	}
	heard := func(d *Domain, kind evidence.Kind, by string) {
		t.Helper()
		if e := l.await(Kind(kind), ""); e.Host != d.Name() || e.Detail != by {
			t.Fatalf("%v, and not %s %s by %s", e, d.Name(), kind, by)
		}
	}
	ask := func(d *Domain, whom string) {
		t.Helper()
		l.must(d.Tell(ctx, evidence.Ask.Of(whom)))
	}
	exchange := func(from, to *Domain) {
		t.Helper()
		ask(from, to.Name())
		heard(to, evidence.Asked, from.Name())
		heard(from, evidence.Answered, to.Name())
	}
	exchange(one, two)
	exchange(two, one)

	// Only the questions of one are cut off: it never hears of two, and two never of it. What two
	// asks arrives.
	there, back := network.Link{From: "host/worker-1", To: "host/worker-2"}, network.Link{From: "host/worker-2", To: "host/worker-1"}
	l.Cut(there)
	if e := l.await(LinkDown, ""); e.Link != there || e.Host != "worker-1" {
		t.Errorf("cut: %v", e)
	}
	ask(one, "worker-2")
	ask(two, "worker-1")
	heard(one, evidence.Asked, "worker-2")
	l.Restore(there)
	if e := l.await(LinkUp, ""); e.Link != there {
		t.Errorf("restored: %v", e)
	}
	exchange(one, two)

	// Only the way back is cut: two hears one, which is not answered.
	l.Cut(back)
	ask(one, "worker-2")
	heard(two, evidence.Asked, "worker-1")
	l.Restore(back)

	// A boot finds the network as it was before it.
	l.must(two.Restart(ctx))
	booted(two)
	exchange(one, two)
	l.must(two.ForceOff(ctx))
	l.must(two.On(ctx))
	booted(two)
	exchange(one, two)

	ask(one, "worker-9")
	if e := l.await(Kind(evidence.Trouble), ""); !strings.Contains(e.Detail, "worker-9") {
		t.Errorf("asked nobody: %v", e)
	}
}

// own runs in the process that gets killed: it boots a guest, prints its directory and then waits.
func own() {
	ctx := context.Background()
	l, err := Open(ctx, Options{Assets: testAssets})
	if err == nil {
		var d *Domain
		if d, err = l.NewDomain(HostConfig{Name: "orphan"}); err == nil {
			err = d.On(ctx)
		}
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	for e := range l.Events() {
		if e.Kind == heartbeat {
			fmt.Println(l.hypervisor.dir)
		}
	}
}

func TestNothingOutlivesAKilledLab(t *testing.T) {
	requireLab(t)
	owner := exec.Command("/proc/self/exe")
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	// The keeper holds this pipe until it has cleaned.
	kept, keeps, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	owner.Stderr = keeps
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	keeps.Close()
	lines := bufio.NewScanner(out)
	lines.Scan()
	dir := lines.Text()
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		t.Fatalf("the owner said %q: %v", dir, err)
	}
	if found := processesIn(dir); len(found) != 1 {
		t.Fatalf("%d processes of the owner's lab: %q", len(found), found)
	}
	owner.Process.Signal(syscall.SIGKILL)
	owner.Wait()
	if text, err := io.ReadAll(kept); err != nil || len(text) > 0 {
		t.Errorf("the keeper said %q (%v)", text, err)
	}
	if found := processesIn(dir); len(found) > 0 {
		t.Errorf("still running: %q", found)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there (stat: %v)", dir, err)
	}
}

func processesIn(dir string) (found []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		if text, _ := os.ReadFile(path); strings.Contains(string(text), dir) {
			found = append(found, string(text))
		}
	}
	return found
}
