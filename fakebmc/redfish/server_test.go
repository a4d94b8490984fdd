package redfish_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stmcginnis/gofish"
	standard "github.com/stmcginnis/gofish/redfish"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
	"github.com/fencelab/fencelab/fakebmc/wall"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// rig is a server with hosts, and a plain HTTP client of it.
type rig struct {
	t      *testing.T
	url    string
	server *redfish.Server
	client *http.Client
	clk    *systemtest.Clock // of the sessions
	hosts  []*memory.Host
	bmcs   []*fakebmc.BMC
	group  *redfish.Group // of several
	user   [2]string
	seen   chan fakebmc.Record
}

// newRig serves hosts, which are on and change their state at once, on one listener.
func newRig(t *testing.T, cfg redfish.Config, hosts ...string) *rig {
	t.Helper()
	r := &rig{t: t, clk: &systemtest.Clock{}, user: [2]string{cfg.Username, cfg.Password}, seen: make(chan fakebmc.Record, 1000)}
	for _, name := range hosts {
		wall := wall.Clock()
		h := memory.New(wall, memory.Timing{}, true)
		r.hosts = append(r.hosts, h)
		r.bmcs = append(r.bmcs, fakebmc.New(name, h, wall, fakebmc.OnRequest(func(rec fakebmc.Record) { r.seen <- rec })))
	}
	cfg.Clock = r.clk
	server, err := redfish.NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.server = server
	if r.group, r.url, err = listen(server, "127.0.0.1:0", r.bmcs...); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	if cfg.Certificate != nil {
		roots := x509.NewCertPool()
		roots.AddCert(cfg.Certificate.Leaf)
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	r.client = &http.Client{Transport: transport, Timeout: patience}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// listen serves one BMC alone, and others in a group.
func listen(s *redfish.Server, addr string, bmcs ...*fakebmc.BMC) (g *redfish.Group, url string, err error) {
	if len(bmcs) == 1 {
		url, err = s.Listen(addr, bmcs[0])
	} else if g, err = redfish.NewGroup(bmcs...); err == nil {
		url, err = s.ListenGroup(addr, g)
	}
	return g, url, err
}

func (r *rig) rule(text string) {
	r.t.Helper()
	for _, b := range r.bmcs {
		if err := b.AddRule(systemtest.Rules(r.t, text)[0]); err != nil {
			r.t.Fatal(err)
		}
	}
}

// forget drops the records that are unread, which hold up those that come.
func (r *rig) forget() {
	for len(r.seen) > 0 {
		<-r.seen
	}
}

type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r reply) json(t *testing.T) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(r.body, &m); err != nil {
		t.Fatalf("%v in %q", err, r.body)
	}
	return m
}

// message is the message id of an error body, without its registry.
func (r reply) message() string {
	var m struct {
		Error struct {
			Info []struct{ MessageId string } `json:"@Message.ExtendedInfo"`
		}
	}
	if json.Unmarshal(r.body, &m) != nil || len(m.Error.Info) != 1 {
		return ""
	}
	id := m.Error.Info[0].MessageId
	return id[strings.LastIndexByte(id, '.')+1:]
}

func (r *rig) try(ctx context.Context, method, path, body string, header ...string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.user[0] != "" {
		req.SetBasicAuth(r.user[0], r.user[1])
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
		if header[i+1] == "" {
			req.Header.Del(header[i])
		}
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, data}, err
}

func (r *rig) do(method, path, body string, header ...string) reply {
	r.t.Helper()
	got, err := r.try(r.t.Context(), method, path, body, header...)
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// walk shows every resource once, from the root along all links, each of which must be
// served.
func (r *rig) walk(see func(path string, got reply)) (visited map[string]bool) {
	r.t.Helper()
	visited = map[string]bool{}
	var visit func(path string)
	var follow func(v any)
	follow = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				if id, ok := x.(string); ok && k == "@odata.id" {
					visit(id)
				} else {
					follow(x)
				}
			}
		case []any:
			for _, x := range v {
				follow(x)
			}
		}
	}
	visit = func(path string) {
		if visited[path] {
			return
		}
		visited[path] = true
		got := r.do("GET", path, "")
		if got.status != 200 {
			r.t.Errorf("GET %s: %d", path, got.status)
			return
		}
		see(path, got)
		follow(got.json(r.t))
	}
	visit("/redfish/v1/")
	return visited
}

const (
	systemURL = "/redfish/v1/Systems/node-1"
	resetURL  = systemURL + "/Actions/ComputerSystem.Reset"
	loginURL  = "/redfish/v1/SessionService/Sessions"
)

func resetBody(t fakebmc.ResetType) string { return fmt.Sprintf(`{"ResetType": %q}`, t) }

var account = redfish.Config{Username: "admin", Password: "s3cret"}

// severed tells that the connection was reset, whichever side of the socket
// noticed it first.
func severed(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func TestGoldenResources(t *testing.T) {
	one := newRig(t, account, "node-1")
	many := newRig(t, account, "node-1", "node-2")
	login := `{"UserName": "admin", "Password": "s3cret"}`
	if got := one.do("POST", loginURL, login); got.status != 201 {
		t.Fatalf("login: %d %s", got.status, got.body)
	}
	for _, c := range []struct {
		file   string
		rig    *rig
		method string
		path   string
		body   string
		status int
	}{
		{"versions", one, "GET", "/redfish", "", 200},
		{"root", one, "GET", "/redfish/v1/", "", 200},
		{"root", one, "GET", "/redfish/v1", "", 200},
		{"systems", one, "GET", "/redfish/v1/Systems", "", 200},
		{"systems", one, "GET", "/redfish/v1/Systems/", "", 200},
		{"systems-many", many, "GET", "/redfish/v1/Systems", "", 200},
		{"system", one, "GET", systemURL, "", 200},
		{"system", many, "GET", systemURL, "", 200},
		{"managers", one, "GET", "/redfish/v1/Managers", "", 200},
		{"manager", one, "GET", "/redfish/v1/Managers/node-1", "", 200},
		{"chassis-collection", one, "GET", "/redfish/v1/Chassis", "", 200},
		{"chassis", one, "GET", "/redfish/v1/Chassis/node-1", "", 200},
		{"processors", one, "GET", systemURL + "/Processors", "", 200},
		{"processor", one, "GET", systemURL + "/Processors/1", "", 200},
		{"memory", one, "GET", systemURL + "/Memory/2", "", 200},
		{"ethernet-interface", one, "GET", systemURL + "/EthernetInterfaces/1", "", 200},
		{"storage", one, "GET", systemURL + "/Storage/1", "", 200},
		{"drive", one, "GET", systemURL + "/Storage/1/Drives/1", "", 200},
		{"bios", one, "GET", systemURL + "/Bios", "", 200},
		{"secure-boot", one, "GET", systemURL + "/SecureBoot", "", 200},
		{"session-service", one, "GET", "/redfish/v1/SessionService", "", 200},
		{"sessions", one, "GET", loginURL, "", 200},
		{"session", one, "GET", loginURL + "/1", "", 200},
		{"session-created", one, "POST", loginURL, login, 201},
		{"error-reset-type", one, "POST", resetURL, resetBody("Suspend"), 400},
		{"virtual-media-collection", one, "GET", "/redfish/v1/Managers/node-1/VirtualMedia", "", 200},
		{"virtual-media", one, "GET", "/redfish/v1/Managers/node-1/VirtualMedia/Cd", "", 200},
		{"task-service", one, "GET", "/redfish/v1/TaskService", "", 200},
		{"account-service", one, "GET", "/redfish/v1/AccountService", "", 200},
		{"account", one, "GET", "/redfish/v1/AccountService/Accounts/1", "", 200},
		{"role", one, "GET", "/redfish/v1/AccountService/Roles/Administrator", "", 200},
		{"event-service", one, "GET", "/redfish/v1/EventService", "", 200},
		{"registries", one, "GET", "/redfish/v1/Registries", "", 200},
		{"tasks", one, "GET", "/redfish/v1/TaskService/Tasks", "", 200},
		{"accounts", one, "GET", "/redfish/v1/AccountService/Accounts", "", 200},
		{"roles", one, "GET", "/redfish/v1/AccountService/Roles", "", 200},
		{"registry-base", one, "GET", "/redfish/v1/Registries/Base", "", 200},
		{"odata", one, "GET", "/redfish/v1/odata", "", 200},
		{"error-missing", one, "GET", "/redfish/v1/Nothing", "", 404},
	} {
		t.Run(c.file, func(t *testing.T) {
			got := c.rig.do(c.method, c.path, c.body)
			if got.status != c.status {
				t.Fatalf("status %d, want %d: %s", got.status, c.status, got.body)
			}
			var indented bytes.Buffer
			if err := json.Indent(&indented, got.body, "", "  "); err != nil {
				t.Fatal(err)
			}
			golden(t, c.file+".json", indented.Bytes())
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (-update rewrites it):\n%s", file, got)
	}
}

// TestLinksLeadSomewhere walks the tree from the root; every link must be served
// and carry its own @odata.id.
func TestLinksLeadSomewhere(t *testing.T) {
	r := newRig(t, account, "node-1", "node-2")
	visited := r.walk(func(path string, got reply) {
		if id := got.json(t)["@odata.id"]; id != path {
			t.Errorf("%s says its id is %v", path, id)
		}
		if head := r.do("HEAD", path, ""); head.status != 200 || len(head.body) != 0 || head.header.Get("ETag") != got.header.Get("ETag") {
			t.Errorf("HEAD %s: %d, ETag %s for %s, %d bytes", path, head.status, head.header.Get("ETag"), got.header.Get("ETag"), len(head.body))
		}
	})
	// The root, 4 services, 8 collections, an account, 3 roles, 2 registries; for each of 2 hosts 5
	// resources, 13 of its inventory and 3 of its log.
	if len(visited) != 29+2*16 {
		t.Errorf("visited %d resources: %v", len(visited), visited)
	}
}

func TestGofish(t *testing.T) {
	cert, err := redfish.SelfSigned("127.0.0.1", "localhost")
	if err != nil {
		t.Fatal(err)
	}
	secure := account
	secure.Certificate = cert
	for _, c := range []struct {
		name  string
		cfg   redfish.Config
		basic bool
	}{
		{"open http", redfish.Config{}, false},
		{"http session", account, false},
		{"http basic", account, true},
		{"https session", secure, false},
		{"https basic", secure, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.cfg, "node-1")
			cfg := gofish.ClientConfig{
				Endpoint: r.url, Username: c.cfg.Username, Password: c.cfg.Password,
				BasicAuth: c.basic, HTTPClient: r.client,
			}
			client, err := gofish.ConnectContext(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			systems, err := client.Service.Systems()
			if err != nil || len(systems) != 1 {
				t.Fatalf("systems %v, %v", systems, err)
			}
			system := systems[0]
			if want := []standard.ResetType{"On", "ForceOn", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "Nmi", "PowerCycle", "FullPowerCycle", "PushPowerButton"}; !slices.Equal(system.SupportedResetTypes, want) {
				t.Errorf("reset types %v, want %v", system.SupportedResetTypes, want)
			}
			for _, step := range []struct {
				reset standard.ResetType
				final standard.PowerState
				boots int
			}{
				{"ForceOff", "Off", 1}, {"On", "On", 2}, {"ForceRestart", "On", 3}, {"GracefulShutdown", "Off", 3}, {"On", "On", 4},
			} {
				if err := system.Reset(step.reset); err != nil {
					t.Fatalf("%s: %v", step.reset, err)
				}
				eventually(t, func() string {
					return fmt.Sprintf("%s has led to %s, want %s", step.reset, system.PowerState, step.final)
				}, func() bool {
					if system, err = standard.GetComputerSystem(client, systemURL); err != nil {
						t.Fatal(err)
					}
					return system.PowerState == step.final
				})
				if got := r.hosts[0].Boots(); got != step.boots {
					t.Errorf("after %s: %d boots, want %d", step.reset, got, step.boots)
				}
			}
			managers, err := system.ManagedBy()
			if err != nil || len(managers) != 1 || managers[0].ManagerType != standard.BMCManagerType {
				t.Errorf("managers %v, %v", managers, err)
			}
			boxes, err := client.Service.Chassis()
			if err != nil || len(boxes) != 1 || boxes[0].ChassisType != standard.RackMountChassisType {
				t.Errorf("chassis %v, %v", boxes, err)
			}
			service, err := client.Service.SessionService()
			if err != nil || service.SessionTimeout != 1800 {
				t.Errorf("session service %+v, %v", service, err)
			}
			inspected(t, system)
			open, err := client.Service.Sessions()
			if want := map[bool]int{true: 0, false: 1}[c.basic || c.cfg.Username == ""]; err != nil || len(open) != want {
				t.Errorf("%d sessions, want %d: %v", len(open), want, err)
			}
			client.Logout()
			if !c.basic && c.cfg.Username != "" {
				if _, err := standard.GetComputerSystem(client, systemURL); err == nil {
					t.Error("the system can be read after the logout")
				}
			}
		})
	}
}

// inspected compares what gofish finds in a system with what is in there.
func inspected(t *testing.T, system *standard.ComputerSystem) {
	t.Helper()
	want, got := fakebmc.TypicalInventory(""), fakebmc.Inventory{BIOS: map[string]string{}}
	processors, err := system.Processors()
	for _, p := range processors {
		got.Processors = append(got.Processors, fakebmc.Processor{
			Model: p.Model, Architecture: map[standard.InstructionSet]string{standard.X8664InstructionSet: "x86_64"}[p.InstructionSet],
			Cores: int(p.TotalCores), Threads: int(p.TotalThreads),
		})
	}
	modules, moduleErr := system.Memory()
	for _, m := range modules {
		got.Modules = append(got.Modules, fakebmc.Module{MiB: int(m.CapacityMiB)})
	}
	nics, nicErr := system.EthernetInterfaces()
	for _, n := range nics {
		got.NICs = append(got.NICs, fakebmc.NIC{MAC: n.MACAddress, Up: n.LinkStatus == standard.LinkUpLinkStatus})
	}
	slices.SortFunc(got.NICs, func(a, b fakebmc.NIC) int { return strings.Compare(a.MAC, b.MAC) }) // gofish gets all at once
	storage, storageErr := system.Storage()
	for _, s := range storage {
		drives, err := s.Drives()
		storageErr = errors.Join(storageErr, err)
		for _, d := range drives {
			got.Drives = append(got.Drives, fakebmc.Drive{Name: "sda", Bytes: int64(d.CapacityBytes), Rotates: d.MediaType == standard.HDDMediaType})
		}
	}
	bios, biosErr := system.Bios()
	if bios != nil {
		for name := range bios.Attributes {
			got.BIOS[name] = bios.Attributes.String(name)
		}
	}
	boot, bootErr := system.SecureBoot()
	if boot != nil {
		got.SecureBoot = boot.SecureBootEnable
	}
	if err := errors.Join(err, moduleErr, nicErr, storageErr, biosErr, bootErr); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("it finds %+v, %v, want %+v", got, err, want)
	}
}

// TestEffectsOnTheWire shows what an HTTP client sees of each effect.
func TestEffectsOnTheWire(t *testing.T) {
	read := func(r *rig) (reply, error) { return r.try(r.t.Context(), "GET", systemURL, "") }
	off := func(r *rig) (reply, error) {
		return r.try(r.t.Context(), "POST", resetURL, resetBody(fakebmc.ResetForceOff))
	}
	state := func(want any) func(*rig, reply, error) {
		return func(r *rig, got reply, err error) {
			if err != nil || got.status != 200 || got.json(r.t)["PowerState"] != want {
				r.t.Errorf("%v, %d %s; want %v", err, got.status, got.body, want)
			}
		}
	}
	reset := func(r *rig, got reply, err error) {
		if !severed(err) {
			r.t.Errorf("%d, %v; want a connection reset", got.status, err)
		}
	}
	hostIs := func(want fakebmc.PowerState, then func(*rig, reply, error)) func(*rig, reply, error) {
		return func(r *rig, got reply, err error) {
			then(r, got, err)
			if p, _ := r.hosts[0].PowerState(); p == fakebmc.On && want != p {
				r.t.Errorf("the host is %s, want %s", p, want)
				return
			}
			r.until(want) // an instant host is off soon
		}
	}
	accepted := func(r *rig, got reply, err error) {
		if err != nil || got.status != 204 || len(got.body) != 0 {
			r.t.Errorf("%v, %d %s; want 204", err, got.status, got.body)
		}
	}
	for _, c := range []struct {
		name string
		rule string
		ask  func(*rig) (reply, error)
		want func(*rig, reply, error)
	}{
		{"delay", `{"effect": {"delay": "30ms"}}`, read, func(r *rig, got reply, err error) {
			state("On")(r, got, err)
			rec := next(r.t, "record", r.seen)
			if rec.Answered-rec.Received < 30*time.Millisecond || rec.Executed-rec.Received < 30*time.Millisecond {
				r.t.Errorf("answered %v and executed %v after it was received", rec.Answered-rec.Received, rec.Executed-rec.Received)
			}
		}},
		{"hang until the client leaves", `{"effect": {"hang": true}}`, func(r *rig) (reply, error) {
			ctx, leave := context.WithCancel(r.t.Context())
			go func() { <-r.seen; leave() }()
			return r.try(ctx, "GET", systemURL, "")
		}, func(r *rig, _ reply, err error) {
			if !errors.Is(err, context.Canceled) {
				r.t.Errorf("%v, want a cancelled request", err)
			}
		}},
		{"hang to the limit", `{"effect": {"hang": true}}`, read, reset},
		{"ignore", `{"effect": {"ignore": true}}`, off, hostIs("On", accepted)},
		{"stuck", `{"effect": {"stuck": {"report": "PoweringOff"}}}`, func(r *rig) (reply, error) {
			accepted(r, r.do("POST", resetURL, resetBody(fakebmc.ResetGracefulShutdown)), nil)
			return read(r)
		}, hostIs("On", state("PoweringOff"))},
		{"lag", `{"effect": {"lag": "1h"}}`, func(r *rig) (reply, error) {
			accepted(r, r.do("POST", resetURL, resetBody(fakebmc.ResetForceOff)), nil)
			return read(r)
		}, hostIs("Off", state("On"))},
		{"report a wrong state", `{"effect": {"report": "Off"}}`, read, hostIs("On", state("Off"))},
		{"report null", `{"effect": {"report": "null"}}`, read, state(nil)},
		{"report an invented state", `{"effect": {"report": "ForceOffInProgress"}}`, read, state("ForceOffInProgress")},
		{"unreachable", `{"effect": {"unreachable": true}}`, func(r *rig) (reply, error) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
			if err != nil {
				return reply{}, err
			}
			defer conn.Close()
			_, err = conn.Read(make([]byte, 1)) // not even a request is waited for
			return reply{}, err
		}, reset},
		{"unreachable for one request", `{"when": {"method": "POST"}, "effect": {"unreachable": true}}`, off, hostIs("On", reset)},
		{"unreachable after execution", `{"when": {"method": "POST"}, "effect": {"unreachable": true, "stage": "executed"}}`, off, hostIs("Off", reset)},
		{"refuse", `{"effect": {"refuse": {"status": 503, "id": "Base.1.8.ServiceTemporarilyUnavailable", "retry": "29500ms"}}}`, off,
			hostIs("On", func(r *rig, got reply, err error) {
				if err != nil || got.status != 503 || got.message() != "ServiceTemporarilyUnavailable" ||
					got.header.Get("Retry-After") != "30" || !bytes.Contains(got.body, []byte("Retry in 30 seconds")) {
					r.t.Errorf("%v, %d %v %s", err, got.status, got.header, got.body)
				}
			})},
		{"refuse in a vendor's words", `{"effect": {"refuse": {"status": 400, "id": "iLO.2.14.InvalidOperationForSystemState", "text": "Power is off"}}}`, off,
			hostIs("On", func(r *rig, got reply, err error) {
				if err != nil || got.status != 400 || got.message() != "InvalidOperationForSystemState" || !bytes.Contains(got.body, []byte("Power is off")) {
					r.t.Errorf("%v, %d %s", err, got.status, got.body)
				}
			})},
		{"refuse the login", `{"when": {"method": "POST", "path": "` + loginURL + `"}, "effect": {"refuse": {"status": 503, "id": "RAC0218"}}}`, func(r *rig) (reply, error) {
			return r.try(r.t.Context(), "POST", loginURL, `{"UserName": "", "Password": ""}`)
		}, func(r *rig, got reply, err error) {
			if err != nil || got.status != 503 || got.message() != "RAC0218" || got.header.Get("X-Auth-Token") != "" {
				r.t.Errorf("%v, %d %v %s", err, got.status, got.header, got.body)
			}
			if n := r.do("GET", loginURL, "").json(r.t)["Members@odata.count"]; n != 0. {
				r.t.Errorf("%v sessions", n)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := redfish.Config{}
			if c.name == "hang to the limit" {
				cfg.HoldLimit = 20 * time.Millisecond
			}
			r := newRig(t, cfg, "node-1")
			r.rule(c.rule)
			got, err := c.ask(r)
			c.want(r, got, err)
		})
	}
}

// TestTLSConnectionsAreReset: a TLS client sees a reset too, before and after its handshake.
func TestTLSConnectionsAreReset(t *testing.T) {
	cert, err := redfish.SelfSigned("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []string{`{"effect": {"unreachable": true}}`, `{"when": {"method": "GET"}, "effect": {"unreachable": true}}`} {
		r := newRig(t, redfish.Config{Certificate: cert}, "node-1")
		if got := r.do("GET", systemURL, ""); got.status != 200 {
			t.Fatalf("without a rule: %d", got.status)
		}
		r.rule(rule)
		if got, err := r.try(t.Context(), "GET", systemURL, ""); !severed(err) {
			t.Errorf("%s: %d, %v; want a connection reset", rule, got.status, err)
		}
	}
}

// TestHostsBehindOneListener: one host's faults leave the others and the shared resources alone.
func TestHostsBehindOneListener(t *testing.T) {
	var shared []fakebmc.Record
	var mu sync.Mutex
	r := newRig(t, redfish.Config{OnRequest: func(rec fakebmc.Record) {
		mu.Lock()
		defer mu.Unlock()
		shared = append(shared, rec)
	}}, "node-1", "node-2")
	r.rule(`{"when": {"host": "node-1"}, "effect": {"unreachable": true}}`)
	if got, err := r.try(t.Context(), "GET", systemURL, ""); !severed(err) {
		t.Errorf("node-1: %d, %v; want a connection reset", got.status, err)
	}
	for _, path := range []string{"/redfish/v1/Systems", "/redfish/v1/Systems/node-2", "/redfish/v1/"} {
		if got := r.do("GET", path, ""); got.status != 200 {
			t.Errorf("GET %s: %d", path, got.status)
		}
	}
	if got := r.do("POST", "/redfish/v1/Systems/node-2/Actions/ComputerSystem.Reset", resetBody("ForceOff")); got.status != 204 {
		t.Errorf("reset of node-2: %d", got.status)
	}
	if n1, _ := r.hosts[0].PowerState(); n1 != fakebmc.On {
		t.Errorf("node-1 is %s", n1)
	}
	if n2, _ := r.hosts[1].PowerState(); n2 == fakebmc.On {
		t.Errorf("node-2 is %s", n2)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(shared) != 2 || shared[0].Request.Path != "/redfish/v1/Systems" || shared[1].Request.Path != "/redfish/v1" {
		t.Errorf("records of the shared resources: %+v", shared)
	}
}

func TestProtocol(t *testing.T) {
	r := newRig(t, account, "node-1")
	long := `{"ResetType": "` + strings.Repeat("x", 65<<10) + `"}`
	for _, c := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		message                  string
	}{
		{"fake method", "FENCE", systemURL, "", nil, 501, "OperationNotAllowed"},
		{"method not allowed", "DELETE", systemURL, "", nil, 405, "OperationNotAllowed"},
		{"post to a resource", "POST", systemURL, "{}", nil, 405, "OperationNotAllowed"},
		{"get of an action", "GET", resetURL, "", nil, 405, "OperationNotAllowed"},
		{"unknown path", "GET", "/redfish/v1/Fabrics", "", nil, 404, "ResourceMissingAtURI"},
		{"unknown host", "GET", "/redfish/v1/Systems/node-9", "", nil, 404, "ResourceMissingAtURI"},
		{"unknown action", "POST", systemURL + "/Actions/ComputerSystem.Explode", "{}", nil, 404, "ResourceMissingAtURI"},
		{"reset of a manager", "POST", "/redfish/v1/Managers/node-1/Actions/ComputerSystem.Reset", resetBody("ForceOff"), nil, 404, "ResourceMissingAtURI"},
		{"prefix only", "GET", "/redfish/v1/SystemsX", "", nil, 404, "ResourceMissingAtURI"},
		{"bare slash", "GET", "/", "", nil, 404, "ResourceMissingAtURI"},
		{"OData-Version 4.0", "GET", systemURL, "", []string{"OData-Version", "4.0"}, 200, ""},
		{"other OData-Version", "GET", systemURL, "", []string{"OData-Version", "3.0"}, 412, "HeaderInvalid"},
		{"an OData query", "GET", systemURL + "?$select=PowerState", "", nil, 501, "QueryNotSupported"},
		{"another query", "GET", systemURL + "?x=1", "", nil, 200, ""},
		{"form data", "POST", resetURL, resetBody("ForceOff"), []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "HeaderInvalid"},
		{"no content type", "POST", resetURL, resetBody("ForceOff"), []string{"Content-Type", ""}, 415, "HeaderInvalid"},
		{"malformed", "POST", resetURL, `{"ResetType": `, nil, 400, "MalformedJSON"},
		{"two values", "POST", resetURL, `{"ResetType": "ForceOff"}{}`, nil, 400, "MalformedJSON"},
		{"unknown parameter", "POST", resetURL, `{"ResetType": "ForceOff", "Now": true}`, nil, 400, "UnrecognizedRequestBody"},
		{"wrong type", "POST", resetURL, `{"ResetType": 1}`, nil, 400, "UnrecognizedRequestBody"},
		{"a parameter in lower case", "POST", resetURL, `{"resettype": "ForceOff"}`, nil, 400, "UnrecognizedRequestBody"},
		{"a parameter in upper case", "POST", resetURL, `{"RESETTYPE": "ForceOff"}`, nil, 400, "UnrecognizedRequestBody"},
		{"a parameter with a long s", "POST", resetURL, `{"ResetType": "On", "reſetType": "ForceOff"}`, nil, 400, "UnrecognizedRequestBody"},
		{"a parameter twice", "POST", resetURL, `{"ResetType": "On", "ResetType": "ForceOff"}`, nil, 400, "UnrecognizedRequestBody"},
		{"a null parameter", "POST", resetURL, `{"ResetType": null}`, nil, 400, "UnrecognizedRequestBody"},
		{"a null body", "POST", resetURL, `null`, nil, 400, "UnrecognizedRequestBody"},
		{"a restart of the manager in lower case", "POST", managerURL + "/Actions/Manager.Reset", `{"resettype": "ForceRestart"}`, nil, 400, "UnrecognizedRequestBody"},
		{"a login in lower case", "POST", loginURL, `{"username": "admin", "password": "s3cret"}`, nil, 400, "UnrecognizedRequestBody"},
		{"an image in lower case", "POST", mediaURL + "/Actions/VirtualMedia.InsertMedia", `{"image": "http://127.0.0.1/x"}`, nil, 400, "PropertyUnknown"},
		{"no reset type", "POST", resetURL, `{}`, nil, 400, "ActionParameterMissing"},
		{"no body", "POST", resetURL, ``, []string{"Content-Type", "application/json"}, 400, "MalformedJSON"},
		{"lower case", "POST", resetURL, resetBody("forceoff"), nil, 400, "ActionParameterValueNotInList"},
		{"not advertised", "POST", resetURL, resetBody("Suspend"), nil, 400, "ActionParameterValueNotInList"},
		{"too long", "POST", resetURL, long, nil, 413, "UnrecognizedRequestBody"},
		{"login without name", "POST", loginURL, `{"Password": "x"}`, nil, 400, "PropertyMissing"},
		{"login without password", "POST", loginURL, `{"UserName": "x"}`, nil, 400, "PropertyMissing"},
		{"no such session", "DELETE", loginURL + "/77", "", nil, 404, "ResourceMissingAtURI"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := r.do(c.method, c.path, c.body, c.header...)
			if got.status != c.status || got.message() != c.message {
				t.Errorf("%d %s, want %d %s", got.status, got.message(), c.status, c.message)
			}
			if h := got.header; h.Get("OData-Version") != "4.0" || h.Get("Cache-Control") != "no-cache" ||
				h.Get("Content-Type") != "application/json; charset=utf-8" {
				t.Errorf("headers %v", h)
			}
			if got.status == 405 && got.header.Get("Allow") == "" {
				t.Error("405 without Allow")
			}
		})
	}
	if p, _ := r.hosts[0].PowerState(); p != fakebmc.On || r.hosts[0].Boots() != 1 {
		t.Errorf("the host is %s after refused requests only", p)
	}

	// More of a header than net/http allows is refused before any handler.
	if got := r.do("GET", systemURL, "", "X-Long", strings.Repeat("x", 64<<10)); got.status != 431 {
		t.Errorf("a header of 64 KiB: %d, want 431", got.status)
	}
}

func TestETag(t *testing.T) {
	r := newRig(t, redfish.Config{}, "node-1")
	first := r.do("GET", systemURL, "")
	tag := first.header.Get("ETag")
	if tag == "" || first.json(t)["@odata.etag"] != tag {
		t.Errorf("ETag %q, @odata.etag %v", tag, first.json(t)["@odata.etag"])
	}
	if want := `<http://redfish.dmtf.org/schemas/v1/ComputerSystem.v1_20_0.json>; rel=describedby`; first.header.Get("Link") != want {
		t.Errorf("Link %q, want %q", first.header.Get("Link"), want)
	}
	if got := first.header.Get("Allow"); got != "GET, HEAD, PATCH" {
		t.Errorf("Allow %q", got)
	}
	if got := r.do("GET", systemURL, "", "If-None-Match", tag); got.status != 304 || len(got.body) != 0 {
		t.Errorf("unchanged: %d with %d bytes, want 304", got.status, len(got.body))
	}
	r.rule(`{"effect": {"report": "PoweringOff"}}`)
	if got := r.do("GET", systemURL, "", "If-None-Match", tag); got.status != 200 || got.header.Get("ETag") == tag {
		t.Errorf("changed: %d with ETag %s", got.status, got.header.Get("ETag"))
	}
}

func TestAuthentication(t *testing.T) {
	r := newRig(t, account, "node-1")
	basic := func(user, password string) []string {
		req := &http.Request{Header: http.Header{}}
		req.SetBasicAuth(user, password)
		return []string{"Authorization", req.Header.Get("Authorization")}
	}
	token := r.do("POST", loginURL, `{"UserName": "admin", "Password": "s3cret"}`).header.Get("X-Auth-Token")
	for _, c := range []struct {
		name   string
		header []string
		ok     bool
	}{
		{"none", []string{"Authorization", ""}, false},
		{"right", nil, true},
		{"wrong password", basic("admin", "s3cre"), false},
		{"wrong user", basic("root", "s3cret"), false},
		{"empty", basic("", ""), false},
		{"other scheme", []string{"Authorization", "Bearer s3cret"}, false},
		{"token", []string{"Authorization", "", "X-Auth-Token", token}, true},
		{"wrong token", []string{"Authorization", "", "X-Auth-Token", token + "x"}, false},
		{"wrong token, right password", []string{"X-Auth-Token", "x"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, x := range []struct {
				method, path, body string
				status             int
			}{
				{"GET", "/redfish/v1/Systems", "", 200}, {"GET", systemURL, "", 200}, {"HEAD", systemURL, "", 200},
				{"GET", loginURL, "", 200}, {"GET", "/redfish/v1/Managers/node-1", "", 200}, {"GET", "/redfish/v1/Fabrics", "", 404},
				{"POST", resetURL, resetBody("On"), 204}, {"DELETE", loginURL + "/9", "", 404},
			} {
				want := x.status
				if !c.ok {
					want = 401
				}
				r.clk.Advance(10 * s) // a wrong password before doesn't count any more
				got := r.do(x.method, x.path, x.body, c.header...)
				if got.status != want {
					t.Errorf("%s %s: %d, want %d", x.method, x.path, got.status, want)
				}
				if got.status == 401 && !strings.HasPrefix(got.header.Get("WWW-Authenticate"), "Basic ") {
					t.Errorf("%s %s: 401 without WWW-Authenticate", x.method, x.path)
				}
			}
			for _, path := range []string{"/redfish", "/redfish/v1", "/redfish/v1/"} {
				if got := r.do("GET", path, "", c.header...); got.status != 200 {
					t.Errorf("GET %s: %d, want 200 for anybody", path, got.status)
				}
			}
			r.clk.Advance(10 * s)
			if !c.ok {
				r.do("POST", resetURL, resetBody("ForceOff"), c.header...)
				if p, _ := r.hosts[0].PowerState(); p != fakebmc.On {
					t.Fatalf("the host is %s", p)
				}
			}
		})
	}
	// An unauthenticated reset must not even use up a rule about resets.
	r.rule(`{"when": {"reset": ["ForceOff"], "count": 1}, "effect": {"ignore": true}}`)
	r.do("POST", resetURL, resetBody("ForceOff"), "Authorization", "")
	if got := r.do("POST", resetURL, resetBody("ForceOff")); got.status != 204 {
		t.Errorf("%d", got.status)
	}
	if p, _ := r.hosts[0].PowerState(); p != fakebmc.On {
		t.Error("the rule was used up by a request without authentication")
	}
}

func TestSessions(t *testing.T) {
	cfg := account
	cfg.MaxSessions, cfg.SessionTimeout = 2, time.Minute
	r := newRig(t, cfg, "node-1")
	login := func() reply { return r.do("POST", loginURL, `{"UserName": "admin", "Password": "s3cret"}`) }
	read := func(token string) int {
		return r.do("GET", systemURL, "", "Authorization", "", "X-Auth-Token", token).status
	}
	if got := r.do("POST", loginURL, `{"UserName": "admin", "Password": "guess"}`); got.status != 401 || got.header.Get("X-Auth-Token") != "" {
		t.Errorf("login with a wrong password: %d", got.status)
	}
	first, second := login(), login()
	if first.status != 201 || first.header.Get("Location") != loginURL+"/1" || first.json(t)["Password"] != nil {
		t.Fatalf("login: %d %v %s", first.status, first.header, first.body)
	}
	a, b := first.header.Get("X-Auth-Token"), second.header.Get("X-Auth-Token")
	if a == "" || a == b || bytes.Contains(first.body, []byte(a)) {
		t.Errorf("tokens %q and %q", a, b)
	}
	if got := login(); got.status != 503 || got.message() != "SessionLimitExceeded" {
		t.Errorf("a third session: %d %s", got.status, got.message())
	}
	r.clk.Advance(59 * s)
	if got := read(a); got != 200 { // and is used by this
		t.Errorf("after 59s: %d", got)
	}
	r.clk.Advance(1 * s)
	if x, y := read(a), read(b); x != 200 || y != 401 {
		t.Errorf("after 60s: the used session %d, the other one %d; want 200 and 401", x, y)
	}
	if got := login(); got.status != 201 {
		t.Errorf("login after one has expired: %d", got.status)
	}
	if got := r.do("DELETE", first.header.Get("Location"), "", "Authorization", "", "X-Auth-Token", a); got.status != 204 {
		t.Errorf("logout: %d", got.status)
	}
	if got := read(a); got != 401 {
		t.Errorf("after the logout: %d", got)
	}
}

func TestListenRefuses(t *testing.T) {
	clk := &systemtest.Clock{}
	bmc := func(host string) *fakebmc.BMC { return fakebmc.New(host, fixed{}, clk) }
	for _, c := range []struct {
		name, addr string
		bmcs       []*fakebmc.BMC
		want       string
	}{
		{"all addresses without a password", "0.0.0.0:0", []*fakebmc.BMC{bmc("a")}, "not loopback"},
		{"all addresses of IPv6 without a password", "[::]:0", []*fakebmc.BMC{bmc("a")}, "not loopback"},
		{"no port", "127.0.0.1", []*fakebmc.BMC{bmc("a")}, "port"},
		{"a slash", ":0", []*fakebmc.BMC{bmc("a/b")}, "path segment"},
		{"no name", ":0", []*fakebmc.BMC{bmc("")}, "path segment"},
		{"two of a name", ":0", []*fakebmc.BMC{bmc("a"), bmc("a")}, "two bmcs"},
		{"two of a UUID", ":0", []*fakebmc.BMC{bmc("a"), fakebmc.New("b", fixed{}, clk, fakebmc.UUID("a"))}, "same Id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, err := redfish.NewServer(redfish.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			if _, url, err := listen(server, c.addr, c.bmcs...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("served on %q, %v; want an error about %q", url, err, c.want)
			}
		})
	}
	for _, cfg := range []redfish.Config{
		{Username: "admin"}, {Password: "x"}, {Username: "a:b", Password: "x"}, {SessionTimeout: time.Second}, {SessionTimeout: 25 * time.Hour}, {MaxSessions: -1},
		{Media: []string{"/images"}}, {Media: []string{"http://user@127.0.0.1/"}}, {Media: []string{"file://host/images"}}, {Media: []string{"http:///images"}},
	} {
		if _, err := redfish.NewServer(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

// TestCloseLeavesNothing closes a server amid a hang, a delayed reset, an idle
// connection and a silent one.
func TestCloseLeavesNothing(t *testing.T) {
	r := newRig(t, redfish.Config{}, "node-1", "node-2")
	if err := r.bmcs[0].AddRule(systemtest.Rules(t, `{"effect": {"hang": true}}`)[0]); err != nil {
		t.Fatal(err)
	}
	if err := r.bmcs[1].AddRule(systemtest.Rules(t, `{"effect": {"delay": "1h"}}`)[0]); err != nil {
		t.Fatal(err)
	}
	silent, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	idle := &http.Client{Transport: &http.Transport{}}
	resp, err := idle.Get(r.url + "/redfish/v1/")
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	var clients sync.WaitGroup
	for _, path := range []string{resetURL, strings.Replace(resetURL, "node-1", "node-2", 1)} {
		clients.Go(func() {
			if got, err := r.try(context.Background(), "POST", path, resetBody("ForceOff")); err == nil {
				t.Errorf("%s was answered %d", path, got.status)
			}
		})
	}
	next(t, "record of the hang", r.seen)
	eventually(t, said("the delayed reset hasn't arrived"), func() bool { return len(r.bmcs[1].Pending()) > 0 })
	if err := r.server.Close(); err != nil {
		t.Error(err)
	}
	clients.Wait()
	idle.CloseIdleConnections()
	if _, err := r.server.Listen(":0", fakebmc.New("node-3", fixed{}, r.clk)); err == nil {
		t.Error("a closed server listens")
	}
	for _, h := range r.hosts {
		if p, _ := h.PowerState(); p != fakebmc.On {
			t.Errorf("a host is %s", p)
		}
	}
	// A goroutine that has said goodbye may still be on its last instructions.
	var left string
	eventually(t, func() string { return "this goroutine is left:\n" + left }, func() bool {
		left = running()
		return left == ""
	})
}

// running is the stack of a goroutine that is in the project's code or in net/http's
// server, if there is one but for the test's own.
func running() string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for g := range strings.SplitSeq(string(stacks), "\n\n") {
		if !strings.Contains(g, "testing.tRunner") && (strings.Contains(g, "fencelab/fakebmc") || strings.Contains(g, "net/http.(*conn).serve")) {
			return g
		}
	}
	return ""
}

// TestManyClients is for the race detector, over HTTP.
func TestManyClients(t *testing.T) {
	r := newRig(t, account, "node-1", "node-2", "node-3")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 20 {
				system := fmt.Sprintf("/redfish/v1/Systems/node-%d", (i+n)%3+1)
				if got, err := r.try(t.Context(), "GET", system, ""); err != nil || got.status != 200 {
					t.Errorf("%v, %d", err, got.status)
				}
				reset := []fakebmc.ResetType{"On", "ForceOff", "ForceRestart"}[n%3]
				got, err := r.try(t.Context(), "POST", system+"/Actions/ComputerSystem.Reset", resetBody(reset))
				if err != nil || got.status != 204 && got.status != 409 {
					t.Errorf("%s: %v, %d", reset, err, got.status)
				}
			}
		})
	}
	all.Wait()
}

// FuzzHTTP sends bytes as a request: whatever they are, no power action happens
// without the password, and the service goes on.
func FuzzHTTP(f *testing.F) {
	f.Add("POST", resetURL, `{"ResetType": "ForceOff"}`, "Basic YWRtaW46YWRtaW4=", "token")
	f.Add("GET", "/redfish/v1/Systems/../Systems/node-1", "", "", "")
	f.Add("POST", loginURL, `{"UserName": "admin", "Password": null}`, "", "")
	f.Add("DELETE", loginURL+"/1", "[]", "Basic Og==", "")
	f.Add("PATCH", systemURL, `{"PowerRestorePolicy": "AlwaysOn", "Boot": {"BootSourceOverrideTarget": "Pxe"}}`, "", "")
	f.Add("POST", managerURL+"/Actions/Manager.Reset", resetBody("ForceRestart"), "", "")
	f.Add("POST", mediaURL+"/Actions/VirtualMedia.InsertMedia", `{"Image": "http://127.0.0.1/x"}`, "Basic", "x")
	f.Add("GET", "/redfish/v1/$metadata", "", "", "")
	f.Add("GET", "/redfish/v1/TaskService/TaskMonitors/node-1-1?$expand=.", "", "", "")
	clk := &systemtest.Clock{}
	host := memory.New(clk, memory.Timing{}, true)
	server, err := redfish.NewServer(account)
	if err != nil {
		f.Fatal(err)
	}
	defer server.Close()
	bmc := fakebmc.New("node-1", host, clk, fakebmc.RestartTime(time.Hour))
	url, err := server.Listen(":0", bmc)
	if err != nil {
		f.Fatal(err)
	}
	addr := strings.TrimPrefix(url, "http://")
	f.Fuzz(func(t *testing.T, method, path, body, authorization, token string) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: bmc\r\nConnection: close\r\nContent-Type: application/json\r\nAuthorization: %s\r\nX-Auth-Token: %s\r\nContent-Length: %d\r\n\r\n%s",
			method, path, authorization, token, len(body), body)
		conn.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, conn)
		clk.Advance(time.Minute)
		if p, _ := host.PowerState(); p != fakebmc.On || host.Boots() != 1 {
			t.Fatalf("the host is %s in boot %d", p, host.Boots())
		}
		if boot, _ := host.Boot(); boot.Enabled != "Disabled" || bmc.RestorePolicy() != fakebmc.LastState || !bmc.Reachable("") {
			t.Fatalf("boot %+v, policy %s, or the BMC restarted", boot, bmc.RestorePolicy())
		}
	})
}
