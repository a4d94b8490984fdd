//go:build cgo && libvirt_dlopen

package process

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelab/fencelab/ci/libvirtd"
	"github.com/fencelab/fencelab/fakebmc/fleet"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
	"github.com/fencelab/fencelab/lab/ironic"
	"github.com/fencelab/fencelab/test/clone"
)

const bmcUser, bmcPassword = "admin", "s3cret"

// service is fencelab bmc as a process.
type service struct {
	t       *testing.T
	process *exec.Cmd
	lines   *bufio.Scanner // what it prints
	url     string
	temp    string // where it keeps what it fetches
	trust   string // file with its certificate
}

// serveBMCs runs the command over HTTPS, which fence_redfish insists on.
func serveBMCs(t *testing.T, args ...string) *service {
	t.Helper()
	dir := t.TempDir()
	s := &service{t: t, temp: filepath.Join(dir, "tmp"), trust: filepath.Join(dir, "bmc.pem")}
	cert, err := redfish.SelfSigned("127.0.0.1", "localhost")
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	keyFile := filepath.Join(dir, "bmc.key")
	for _, err := range []error{
		os.Mkdir(s.temp, 0o755),
		os.WriteFile(s.trust, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o644),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600),
		// The test binary is the command under this name: see TestMain.
		os.Symlink(testBinary(t), filepath.Join(dir, clone.Command)),
		// The hypervisor opens the images as another user.
		os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s.process = exec.Command(filepath.Join(dir, clone.Command), append([]string{"bmc", "--listen", "127.0.0.1:0",
		"--username", bmcUser, "--tls-certificate", s.trust, "--tls-key", keyFile}, args...)...)
	s.process.Env = append(os.Environ(), fleet.PasswordVariable+"="+bmcPassword, "TMPDIR="+s.temp)
	s.process.Stderr = os.Stderr
	out, err := s.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.process.Process.Kill() // unless the test ended it
		_ = s.process.Wait()
	})
	s.lines = bufio.NewScanner(out)
	return s
}

func testBinary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// wants reads the next line and returns its fields.
func (s *service) wants(first string) []string {
	s.t.Helper()
	if !s.lines.Scan() {
		s.t.Fatalf("the command ended, %v; want a line %q", s.lines.Err(), first)
	}
	f := strings.Fields(s.lines.Text())
	if len(f) == 0 || f[0] != first {
		s.t.Fatalf("the command says %q; want %q", s.lines.Text(), first)
	}
	return f
}

// wantEmpty: nothing that it fetched is left, as soon as its keeper has seen its end.
func (s *service) wantEmpty() {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; <-time.After(20 * time.Millisecond) {
		left, err := os.ReadDir(s.temp)
		if err == nil && len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("it left %v, %v", left, err)
		}
	}
}

// TestBMCServesDomains puts the command in the place of sushy-emulator: domains of a real libvirtd,
// driven by clients that know nothing of it. The domains' guests and libvirt report what happened.
func TestBMCServesDomains(t *testing.T) {
	d := libvirtd.Start(t)
	host, other := d.Define("host"), d.Define("other")
	before := host.Definition()
	images := httptest.NewServer(http.FileServerFS(os.DirFS(filepath.Dir(d.Write("served/boot.iso", libvirtd.CD("cd"))))))
	defer images.Close()
	s := serveBMCs(t, "--libvirt", d.URI, "--media", images.URL+"/")
	s.wants("HOST")
	address, err := url.Parse(s.wants("host")[1])
	if err != nil {
		t.Fatal(err)
	}
	s.url = "https://" + address.Host
	s.wants("other")
	uuid, err := host.Domain().GetUUIDString()
	if err != nil {
		t.Fatal(err)
	}
	if want := "/redfish/v1/Systems/" + uuid; address.Path != want {
		t.Errorf("the host is served at %s, want %s", address.Path, want)
	}
	wantActive := func(m *libvirtd.Machine, want bool) {
		t.Helper()
		d.Until(fmt.Sprintf("active: %t", want), func() bool {
			active, err := m.Domain().IsActive()
			return err == nil && active == want
		})
	}
	var boots []string
	booted := func(from ...string) {
		t.Helper()
		boots = append(boots, from...)
		host.WantSaid(boots...)
	}

	t.Run("sushy", func(t *testing.T) {
		systemtest.RequireClient(t, "/usr/bin/python3", "-c", "import sushy")
		for _, path := range []string{address.Path, "/redfish/v1/Systems/host"} {
			sushy := exec.CommandContext(t.Context(), "/usr/bin/python3", "-W", "ignore", "test/process/testdata/sushy_domain.py",
				s.url, path, bmcUser, bmcPassword, images.URL+"/boot.iso", host.Serial())
			sushy.Env = append(os.Environ(), "REQUESTS_CA_BUNDLE="+s.trust)
			out, err := sushy.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			want := "Off, boots from None Pxe Cd Hdd in Legacy\nOn, inserted boot.iso, boots once from Cd\nOn, then from None\nOff, inserted nothing\n"
			if string(out) != want {
				t.Errorf("sushy saw\n%swant\n%s", out, want)
			}
			booted("disk", "cd", "disk")
			wantActive(host, false)
		}
	})
	t.Run("fence_redfish", func(t *testing.T) {
		systemtest.RequireClient(t, "fence_redfish", "--action", "metadata")
		for _, step := range []struct {
			action string
			on     bool
			boots  []string
		}{{"on", true, []string{"disk"}}, {"reboot", true, []string{"disk"}}, {"off", false, nil}} {
			out, err := exec.CommandContext(t.Context(), "fence_redfish", "--ip", address.Hostname(), "--ipport", address.Port(), "--ssl-insecure",
				"--username", bmcUser, "--password", bmcPassword, "--systems-uri", address.Path, "--action", step.action).CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", step.action, err, out)
			}
			booted(step.boots...)
			wantActive(host, step.on)
		}
	})
	t.Run("ironic", func(t *testing.T) {
		n := adoptByIronic(t, s, address.Path)
		// A host that is on when it is adopted; Ironic asked for nothing before.
		wantActive(host, false)
		n.power("power on")
		booted("disk")
		n.call(http.MethodPut, "/management/boot_device", map[string]any{"boot_device": "pxe", "persistent": false}, nil)
		n.power("rebooting")
		booted("disk") // after the network, which has nothing
		if text, err := host.Domain().GetXMLDesc(0); err != nil || !strings.Contains(text, "<boot order='1'/>") || strings.Contains(text, "<boot dev") {
			t.Errorf("the instance boots by itself, %v:\n%s", err, text)
		}
		n.power("soft power off")
		wantActive(host, false)
	})
	wantActive(other, false)
	if got := other.Said(); len(got) > 0 {
		t.Errorf("the other domain booted from %v", got)
	}

	third := d.Define("third")
	s.wants("third")
	if err := third.Domain().Undefine(); err != nil {
		t.Fatal(err)
	}
	s.wants("third")

	insert := func() {
		t.Helper()
		s.request(http.MethodPost, strings.Replace(address.Path, "Systems", "Managers", 1)+"/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia",
			map[string]string{"Image": images.URL + "/boot.iso"})
		s.request(http.MethodPost, address.Path+"/Actions/ComputerSystem.Reset", map[string]string{"ResetType": "On"})
		booted("disk")
	}
	insert()
	if err := s.process.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := s.process.Wait(); err != nil {
		t.Errorf("interrupted: %v", err)
	}
	s.wantEmpty()
	wantActive(host, true)
	if text, err := host.Domain().GetXMLDesc(0); err != nil || strings.Contains(text, s.temp) {
		t.Errorf("the instance that runs still has the image, %v", err)
	}
	host.ForceOff()

	s = serveBMCs(t, "--libvirt", d.URI, "--media", images.URL+"/", "--domain", "host")
	s.wants("HOST")
	if address, err = url.Parse(s.wants("host")[1]); err != nil {
		t.Fatal(err)
	}
	s.url = "https://" + address.Host
	insert()
	if err := s.process.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.wantEmpty()
	if after := host.Definition(); after != before {
		t.Errorf("the domain was changed to\n%s\nfrom\n%s", after, before)
	}
	host.ForceOff()
}

// request fails unless it is accepted.
func (s *service) request(method, path string, body any) {
	s.t.Helper()
	certs := x509.NewCertPool()
	if data, err := os.ReadFile(s.trust); err != nil || !certs.AppendCertsFromPEM(data) {
		s.t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: certs}, DisableKeepAlives: true}}
	if status, got := send(s.t, &client, method, s.url+path, body, func(r *http.Request) { r.SetBasicAuth(bmcUser, bmcPassword) }); status >= 300 {
		s.t.Fatalf("%s %s: %d %s", method, path, status, got)
	}
}

func send(t *testing.T, client *http.Client, method, to string, body any, prepare func(*http.Request)) (status int, got []byte) {
	t.Helper()
	sent, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, to, bytes.NewReader(sent))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	prepare(req)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, got
}

// ironicNode is the name of a host's node in Ironic.
type ironicNode struct {
	t        *testing.T
	api, url string
}

// adoptByIronic enrolls a host with an Ironic of its own.
func adoptByIronic(t *testing.T, s *service, systemPath string) *ironicNode {
	t.Helper()
	for _, f := range ironic.Preflight(t.Context(), "") {
		switch {
		case f.Remedy == "":
		case os.Getenv("FENCELAB_REQUIRE_CLIENTS") != "":
			t.Fatalf("%s: %s; %s", f.Name, f.State, f.Remedy)
		default:
			t.Skipf("%s: %s; %s", f.Name, f.State, f.Remedy)
		}
	}
	i, err := ironic.Launch(t.Context(), ironic.Options{SyncInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Stop(); err != nil {
			t.Error(err)
		}
	})
	n := &ironicNode{t: t, api: i.URL() + "/v1/nodes"}
	var created struct{ UUID string }
	n.call(http.MethodPost, "", map[string]any{"driver": "redfish", "driver_info": map[string]any{
		"redfish_address": s.url, "redfish_system_id": systemPath, "redfish_username": bmcUser, "redfish_password": bmcPassword, "redfish_verify_ca": s.trust,
	}}, &created)
	n.url = "/" + created.UUID
	for _, verb := range []string{"manage", "adopt"} {
		n.call(http.MethodPut, "/states/provision", map[string]string{"target": verb}, nil)
		n.settle(verb)
	}
	return n
}

// call sends a request about the node, again while Ironic itself holds it.
func (n *ironicNode) call(method, path string, body, answer any) {
	n.t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		status, got := send(n.t, http.DefaultClient, method, n.api+n.url+path, body, func(r *http.Request) {
			r.Header.Set("X-OpenStack-Ironic-API-Version", "1.82")
		})
		if status == http.StatusConflict && time.Now().Before(end) {
			continue
		}
		if status >= 300 {
			n.t.Fatalf("%s %s: %d %s", method, path, status, got)
		}
		if answer != nil {
			if err := json.Unmarshal(got, answer); err != nil {
				n.t.Fatalf("%s %s: %v: %s", method, path, err, got)
			}
		}
		return
	}
}

// settle waits until Ironic has done what it was asked for.
func (n *ironicNode) settle(what string) {
	n.t.Helper()
	for end := time.Now().Add(time.Minute); ; <-time.After(50 * time.Millisecond) {
		var now struct {
			Reservation *string
			LastError   *string `json:"last_error"`
			Target      *string `json:"target_provision_state"`
			PowerTarget *string `json:"target_power_state"`
		}
		n.call(http.MethodGet, "", nil, &now)
		switch {
		case now.LastError != nil:
			n.t.Fatalf("%s: %s", what, *now.LastError)
		case now.Reservation == nil && now.Target == nil && now.PowerTarget == nil:
			return
		case time.Now().After(end):
			n.t.Fatalf("%s: not done: %+v", what, now)
		}
	}
}

func (n *ironicNode) power(target string) {
	n.t.Helper()
	n.call(http.MethodPut, "/states/power", map[string]string{"target": target}, nil)
	n.settle(target)
}
