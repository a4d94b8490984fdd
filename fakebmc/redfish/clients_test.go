package redfish_test

import (
	"crypto/tls"
	"encoding/pem"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
)

// The Python that has Debian's sushy; another one first in PATH hasn't.
const systemPython = "/usr/bin/python3"

func secured(t *testing.T) redfish.Config {
	t.Helper()
	cert, err := redfish.SelfSigned("127.0.0.1", "localhost")
	if err != nil {
		t.Fatal(err)
	}
	cfg := account
	cfg.Certificate = cert
	return cfg
}

// trust is a file with the certificate, if any, for clients that verify.
func trust(t *testing.T, cert *tls.Certificate) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bmc.pem")
	var data []byte
	if cert != nil {
		data = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSushy(t *testing.T) {
	systemtest.RequireClient(t, systemPython, "-c", "import sushy")
	for name, cfg := range map[string]redfish.Config{"http": account, "https": secured(t)} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, cfg, "node-1")
			sushy := exec.CommandContext(t.Context(), systemPython, "-W", "ignore", "testdata/sushy_session.py", r.url, systemURL, "admin", "s3cret")
			sushy.Env = append(os.Environ(), "REQUESTS_CA_BUNDLE="+trust(t, cfg.Certificate))
			out, err := sushy.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			golden(t, "sushy_session.txt", out)
			if n := r.hosts[0].Nmis(); n != 2 {
				t.Errorf("%d interrupts, want 2", n)
			}
		})
	}
}

// TestSushyMockups: the client of Ironic finds its way in every mockup.
func TestSushyMockups(t *testing.T) {
	systemtest.RequireClient(t, systemPython, "-c", "import sushy")
	for _, m := range mockups {
		t.Run(m.name, func(t *testing.T) {
			cfg := account
			cfg.Media = []string{"http://127.0.0.1:1/"}
			r := mockupRig(t, m.name, cfg)
			out, err := exec.CommandContext(t.Context(), systemPython, "-W", "ignore", "testdata/sushy_mockup.py", r.url, "admin", "s3cret", "http://127.0.0.1:1/boot.iso").CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range []string{v1 + m.system + " ", "ForceOff Off\nOn On\nForceRestart On\nprocessors 16\nboots from Pxe Once\n"} {
				if n := strings.Count(string(out), want); n != 2 {
					t.Errorf("with a session and without, %q stands there %d times:\n%s", want, n, out)
				}
			}
			if boots := r.hosts[0].Boots(); boots != 5 {
				t.Errorf("the host has booted %d times, want 5", boots)
			}
		})
	}
}

func TestFenceRedfish(t *testing.T) {
	systemtest.RequireClient(t, "fence_redfish", "--action", "metadata")
	r := newRig(t, secured(t), "node-1")
	u, err := url.Parse(r.url)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		action, want string
		fails        bool
		state        fakebmc.PowerState
		boots, nmis  int
	}{
		{"monitor", "", false, "On", 1, 0},
		{"status", "Status: ON", false, "On", 1, 0},
		{"off", "Success: Powered OFF", false, "Off", 1, 0},
		{"off", "Success: Already OFF", false, "Off", 1, 0},
		{"status", "Status: OFF", true, "Off", 1, 0}, // exit code 2 means off
		{"on", "Success: Powered ON", false, "On", 2, 0},
		{"reboot", "Success: Rebooted", false, "On", 3, 0},
		{"diag", "", false, "On", 3, 1},
	} {
		out, err := exec.CommandContext(t.Context(), "fence_redfish", "--ip", u.Hostname(), "--ipport", u.Port(), "--ssl-insecure",
			"--username", "admin", "--password", "s3cret", "--action", step.action).CombinedOutput()
		if (err != nil) != step.fails || !strings.Contains(string(out), step.want) {
			t.Errorf("%s: %v\n%s", step.action, err, out)
		}
		r.until(step.state)
		if b, n := r.hosts[0].Boots(), r.hosts[0].Nmis(); b != step.boots || n != step.nmis {
			t.Errorf("after %s: %d boots and %d interrupts, want %d and %d", step.action, b, n, step.boots, step.nmis)
		}
	}
	if _, err := exec.CommandContext(t.Context(), "fence_redfish", "--ip", u.Hostname(), "--ipport", u.Port(), "--ssl-insecure",
		"--username", "admin", "--password", "wrong", "--action", "off").CombinedOutput(); err == nil {
		t.Error("a wrong password powers off")
	}
	if p, _ := r.hosts[0].PowerState(); p != fakebmc.On {
		t.Errorf("the host is %s", p)
	}
}

// TestFenceRedfishMockups: the fence agent finds its way in every mockup, given the path of the
// system.
func TestFenceRedfishMockups(t *testing.T) {
	systemtest.RequireClient(t, "fence_redfish", "--action", "metadata")
	for _, m := range mockups {
		t.Run(m.name, func(t *testing.T) {
			r := mockupRig(t, m.name, secured(t))
			u, err := url.Parse(r.url)
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range []struct {
				action, want string
				state        fakebmc.PowerState
			}{{"off", "Success: Powered OFF", "Off"}, {"on", "Success: Powered ON", "On"}} {
				out, err := exec.CommandContext(t.Context(), "fence_redfish", "--ip", u.Hostname(), "--ipport", u.Port(), "--ssl-insecure",
					"--username", "admin", "--password", "s3cret", "--systems-uri", v1+m.system, "--action", step.action).CombinedOutput()
				if state := r.state(); err != nil || !strings.Contains(string(out), step.want) || state != step.state {
					t.Errorf("%s: %v, and the host is %s\n%s", step.action, err, state, out)
				}
			}
		})
	}
}
