//go:build cgo && libvirt_dlopen

package hosts

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/vms"
	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// openVMs returns a lab of nothing but machines.
func openVMs(t *testing.T) (*virtualMachines, *vms.Lab) {
	if os.Getenv("FENCELAB_E2E") == "quick" || os.Getenv("FENCELAB_REQUIRE_LAB") == "" {
		t.Skip("it runs with make e2e")
	}
	l, err := vms.Open(t.Context(), vms.Options{Assets: DefaultAssets()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return &virtualMachines{ctx: context.Background(), asked: func(string, fakebmc.ResetType) string { return "" }, logf: t.Logf}, l
}

// TestDomainIsASystem holds a virtual machine against the contract of what a BMC
// controls.
func TestDomainIsASystem(t *testing.T) {
	t.Parallel()
	all, l := openVMs(t)
	began, booted := make(map[string]int), make(chan string, 1000)
	counted := make(chan func(), 1)
	go func() {
		for {
			select {
			case e, open := <-l.Events():
				switch {
				case !open:
					return
				case e.Kind == vms.PoweredOn, e.Kind == vms.Reset:
					began[e.Host]++
				case e.Kind == vms.Kind(evidence.Heartbeat) && e.Seq == 1 && e.Process == "":
					booted <- e.Host // it hears the power button
				}
			case look := <-counted:
				look()
			}
		}
	}()
	// Real time is waited for; the steps are of the tests' making.
	wait := func(d time.Duration) { <-time.After(d) }
	number := 0
	systemtest.Run(t, func(t *testing.T, on bool) systemtest.Fixture {
		number++
		name := "system-" + string(rune('a'+number/26)) + string(rune('a'+number%26))
		domain, err := l.NewDomain(vms.HostConfig{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := domain.ForceOff(context.Background()); err != nil {
				t.Error(err)
			}
		})
		if on {
			if err := domain.On(t.Context()); err != nil {
				t.Fatal(err)
			}
			for up := ""; up != name; {
				select {
				case up = <-booted:
				case <-time.After(time.Minute):
					t.Fatalf("%s did not boot", name)
				}
			}
		}
		return systemtest.Fixture{
			System: &virtual{all: all, domain: domain}, Advance: wait,
			Step: 20 * time.Millisecond, Limit: 20 * time.Second, Hold: 500 * time.Millisecond, Real: true,
			Boots: func() int {
				answer := make(chan int)
				go func() { counted <- func() { answer <- began[name] } }()
				return <-answer
			},
		}
	})
}

// TestGuestOutlivesItsBoot plays what rules can make of a guest, while it is off, on
// and paused.
func TestGuestOutlivesItsBoot(t *testing.T) {
	all, l := openVMs(t)
	domain, err := l.NewDomain(vms.HostConfig{Name: "worker-1"})
	if err != nil {
		t.Fatal(err)
	}
	s := &virtual{all: all, domain: domain}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	await := func(kind vms.Kind, detail string) vms.Event {
		t.Helper()
		for timeout := time.After(time.Minute); ; {
			select {
			case e := <-l.Events():
				s.notice(e)
				if e.Kind == kind && e.Detail == detail {
					return e
				}
			case <-timeout:
				t.Fatalf("no %s %s", kind, detail)
			}
		}
	}
	guest := func(k evidence.Kind) vms.Kind { return vms.Kind(k) }

	must(s.SetGuest(fakebmc.Guest{Ignore: true}))
	for _, boot := range []fakebmc.ResetType{fakebmc.ResetOn, fakebmc.ResetForceRestart} {
		must(s.Reset(boot))
		await(guest(evidence.Accepted), string(evidence.IgnoreShutdown))
		must(s.Reset(fakebmc.ResetGracefulShutdown))
		await(guest(evidence.ShutdownIgnored), "")
	}

	const slow = 2 * time.Second
	must(s.SetGuest(fakebmc.Guest{Slow: fakebmc.Duration(slow)}))
	must(s.Reset(fakebmc.ResetGracefulShutdown))
	began := await(guest(evidence.ShuttingDown), "")
	if done := await(guest(evidence.Done), ""); done.Uptime-began.Uptime < slow {
		t.Errorf("a shutdown took %v by the guest's clock, want %v", done.Uptime-began.Uptime, slow)
	}
	await(vms.PoweredOff, "shutdown")

	must(s.SetGuest(fakebmc.Guest{Paused: true}))
	for _, boot := range []fakebmc.ResetType{fakebmc.ResetOn, fakebmc.ResetForceRestart} {
		must(s.Reset(boot))
		await(guest(evidence.Boot), "")
		await(vms.Paused, "")
	}
	must(s.SetGuest(fakebmc.Guest{}))
	await(vms.Resumed, "")
	must(s.Reset(fakebmc.ResetGracefulShutdown))
	await(vms.PoweredOff, "shutdown")
}

// TestCulprits has a machine that takes its time to go on: whoever has it switched off
// meanwhile did not switch it on.
func TestCulprits(t *testing.T) {
	var c culprits
	c.blame("restore", true)
	c.blame("reboot", false)
	for _, want := range []struct {
		event vms.Event
		who   string
	}{
		{vms.Event{Kind: vms.Paused}, ""},
		{vms.Event{Kind: vms.PoweredOn}, "restore"},
		{vms.Event{Kind: vms.Reset, Detail: vms.ResetWatchdog}, string(history.Engine)},
		{vms.Event{Kind: vms.PoweredOff}, "reboot"},
		{vms.Event{Kind: vms.PoweredOff}, ""},
		{vms.Event{Kind: vms.Reset, Detail: vms.ResetSysrq}, ""},
	} {
		if who := c.blamed(want.event); who != want.who {
			t.Errorf("%s %s by %q, want %q", want.event.Kind, want.event.Detail, who, want.who)
		}
	}
	c.feeder = "worker-1.poisonpill"
	for _, detail := range []string{vms.ResetWatchdog, vms.ResetSysrq} {
		if who := c.blamed(vms.Event{Kind: vms.Reset, Detail: detail}); who != c.feeder {
			t.Errorf("%s with an agent by %q", detail, who)
		}
	}
}
