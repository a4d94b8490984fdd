package ipmi

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
	"github.com/fencelab/fencelab/fakebmc/wall"
)

type rig struct {
	host   *memory.Host
	bmc    *fakebmc.BMC
	server *Server
	port   string
}

// newRig serves an in-memory host that is on and changes its state at once.
func newRig(t *testing.T, rules ...fakebmc.Rule) *rig {
	t.Helper()
	clk := wall.Clock()
	r := &rig{host: memory.New(clk, memory.Timing{}, true)}
	r.bmc = fakebmc.New("node-1", r.host, clk)
	for _, rule := range rules {
		if err := r.bmc.AddRule(rule); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if r.server, err = Listen(":0", r.bmc, Config{Username: "admin", Password: "s3cret"}); err != nil {
		t.Fatal(err)
	}
	if _, r.port, err = net.SplitHostPort(r.server.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.server.Close(); err != nil {
			t.Error(err)
		}
		r.bmc.Close()
	})
	return r
}

func (r *rig) run(t *testing.T, command string, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), command, args...).CombinedOutput()
	return string(out), err
}

func TestIpmitool(t *testing.T) {
	tool := systemtest.RequireClient(t, "ipmitool")
	for _, suite := range []string{"", "3", "17"} {
		t.Run("suite "+suite, func(t *testing.T) {
			r := newRig(t)
			for _, step := range []struct {
				command, want string
				fails         bool
				boots, nmis   int
			}{
				{"power status", "Chassis Power is on", false, 1, 0},
				{"chassis status", "System Power         : on", false, 1, 0},
				{"chassis status", "Power Restore Policy : previous", false, 1, 0},
				{"chassis policy always-on", "Set chassis power restore policy to always-on", false, 1, 0},
				{"chassis status", "Power Restore Policy : always-on", false, 1, 0},
				{"power off", "Chassis Power Control: Down/Off", false, 1, 0},
				{"power status", "Chassis Power is off", false, 1, 0},
				{"power reset", "Command not supported in present state", true, 1, 0},
				{"power on", "Chassis Power Control: Up/On", false, 2, 0},
				{"power reset", "Chassis Power Control: Reset", false, 3, 0},
				{"power diag", "Chassis Power Control: Diag", false, 3, 1},
				{"power cycle", "Chassis Power Control: Cycle", false, 4, 1},
				{"power soft", "Chassis Power Control: Soft", false, 4, 1},
				{"power status", "Chassis Power is off", false, 4, 1},
				{"chassis bootdev pxe options=efiboot", "Set Boot Device to pxe", false, 4, 1},
				{"chassis bootparam get 5", "Boot Device Selector : Force PXE", false, 4, 1},
				{"chassis bootparam get 5", "Options apply to only next boot", false, 4, 1},
				{"chassis bootparam get 5", "BIOS EFI boot", false, 4, 1},
				{"chassis bootdev floppy", "Set Chassis Boot Parameter 5 failed", false, 4, 1},
				{"power on", "Chassis Power Control: Up/On", false, 5, 1},
				{"chassis bootparam get 5", "Boot Flag Invalid", false, 5, 1},
				{"raw 0 8 3 8", "", false, 5, 1}, // as Ironic does, before each device
				{"chassis bootdev cdrom options=persistent", "Set Boot Device to cdrom", false, 5, 1},
				{"power cycle", "Chassis Power Control: Cycle", false, 6, 1},
				{"chassis bootparam get 5", "Options apply to all future boots", false, 6, 1},
				{"chassis bootdev none", "Set Boot Device to none", false, 6, 1},
				{"chassis bootparam get 5", "Boot Flag Invalid", false, 6, 1},
				{"power soft", "Chassis Power Control: Soft", false, 6, 1},
				{"mc info", "IPMI Version              : 2.0", false, 6, 1},
				{"mc selftest", "passed", false, 6, 1},
				{"mc watchdog get", "Watchdog Timer Action:  No action", false, 6, 1},
				{"mc watchdog reset", "uninitialized watchdog", true, 6, 1},
				{"raw 6 0x24 4 2 0 0 100 0", "", false, 6, 1}, // SMS/OS, power down, 10 s
				{"mc watchdog get", "Initial Countdown:      10", false, 6, 1},
				{"mc watchdog reset", "countdown restarted", false, 6, 1},
				{"mc watchdog get", "Started/Running", false, 6, 1},
				{"mc watchdog off", "Watchdog Timer Shutoff successful", false, 6, 1},
				{"mc watchdog get", "Stopped", false, 6, 1},
				{"mc guid", "System GUID", false, 6, 1},
				{"sel list", "Invalid command", true, 6, 1},
				{"mc reset cold", "Sent cold reset command to MC", false, 6, 1},
			} {
				args := []string{"-I", "lanplus", "-H", "127.0.0.1", "-p", r.port, "-U", "admin", "-P", "s3cret"}
				if suite != "" {
					args = append(args, "-C", suite)
				}
				got, err := r.run(t, tool, append(args, strings.Fields(step.command)...)...)
				if !strings.Contains(got, step.want) || (err != nil) != step.fails {
					t.Errorf("ipmitool %s: %v\n%s\nwant %q", step.command, err, got, step.want)
				}
				// The in-memory host goes through its states in no time, but on a clock.
				for p, _ := r.host.PowerState(); p == fakebmc.PoweringOn || p == fakebmc.PoweringOff; p, _ = r.host.PowerState() {
				}
				if b, n := r.host.Boots(), r.host.Nmis(); b != step.boots || n != step.nmis {
					t.Errorf("after %s: %d boots and %d interrupts, want %d and %d", step.command, b, n, step.boots, step.nmis)
				}
			}
		})
	}
}

func TestIpmitoolIsRefused(t *testing.T) {
	tool := systemtest.RequireClient(t, "ipmitool")
	for _, c := range []struct {
		name string
		args string
	}{
		{"wrong password", "-U admin -P secret"},
		{"wrong user", "-U root -P s3cret"},
		{"no password", "-U admin -P "},
		{"cipher suite 0", "-C 0 -U admin -P s3cret"},
		{"cipher suite 1, without encryption", "-C 1 -U admin -P s3cret"},
		{"ipmi 1.5", "-I lan -U admin -P s3cret"},
		{"privilege of a user", "-L USER -U admin -P s3cret"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			args := strings.Split("-N 1 -R 1 -I lanplus -H 127.0.0.1 -p "+r.port+" "+c.args, " ")
			if got, err := r.run(t, tool, append(args, "power", "off")...); err == nil {
				t.Errorf("done: %s", got)
			}
			if p, _ := r.host.PowerState(); p != fakebmc.On {
				t.Errorf("the host is %s", p)
			}
		})
	}
}

// TestIpmitoolInAFlood: a stranger on the same machine begins sessions as fast as he can.
func TestIpmitoolInAFlood(t *testing.T) {
	tool := systemtest.RequireClient(t, "ipmitool")
	r := newRig(t)
	open := wrapPlus(payloadOpenSession, append([]byte{0, 4, 0, 0, 1, 2, 3, 4}, 0, 0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 8, 4, 0, 0, 0, 2, 0, 0, 8, 1, 0, 0, 0))
	ctx, cancel := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	var begun atomic.Int64
	for range 8 {
		flood.Go(func() {
			conn, err := net.Dial("udp", r.server.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			for answer := make([]byte, maxPacket); ctx.Err() == nil; begun.Add(1) {
				_, _ = conn.Write(open)
				_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				_, _ = conn.Read(answer) // or it was lost
			}
		})
	}
	for range 6 {
		got, err := r.run(t, tool, "-I", "lanplus", "-H", "127.0.0.1", "-p", r.port, "-U", "admin", "-P", "s3cret", "power", "status")
		if err != nil || !strings.Contains(got, "Chassis Power is on") {
			t.Errorf("%v\n%s", err, got)
		}
	}
	cancel()
	flood.Wait()
	t.Logf("%d sessions begun", begun.Load())
}

func TestFenceIpmilan(t *testing.T) {
	tool := systemtest.RequireClient(t, "fence_ipmilan")
	systemtest.RequireClient(t, "ipmitool")
	for _, cipher := range []string{"3", "17"} {
		t.Run("cipher "+cipher, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			for _, step := range []struct {
				action, want string
				boots        int
			}{
				{"monitor", "", 1}, {"status", "Status: ON", 1}, {"off", "Success: Powered OFF", 1}, {"on", "Success: Powered ON", 2},
				{"reboot", "Success: Rebooted", 3}, {"diag", "", 3},
			} {
				got, err := r.run(t, tool, "--ip", "127.0.0.1", "--ipport", r.port, "--lanplus", "--cipher", cipher, "--username", "admin",
					"--password", "s3cret", "--action", step.action, "--power-wait", "0", "--delay", "0")
				if err != nil || !strings.Contains(got, step.want) {
					t.Errorf("%s: %v\n%s", step.action, err, got)
				}
				if b := r.host.Boots(); b != step.boots {
					t.Errorf("after %s: %d boots, want %d", step.action, b, step.boots)
				}
			}
		})
	}
}
