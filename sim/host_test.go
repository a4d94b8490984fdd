package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/kube"
	"github.com/fencelab/fencelab/sim/model"
)

// newHost returns a host in a world of its own, on and booted, or off.
func testHost(t *testing.T, on bool, watchdog time.Duration) *host {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{notice: func(history.Event) {}}
	h := newHost(w, "h", model.Timings{Boot: 8 * time.Second, SoftOff: 3 * time.Second, HardOff: 300 * time.Millisecond, Watchdog: watchdog})
	h.kubelet = &kubelet{
		w: w, actor: actor{name: "h.kubelet"}, host: h, node: "h", api: &apiServer{w: w}, store: kube.NewStore(s.server, wallClock{w: w}.Now, nil), kinds: &s.kinds, lease: time.Second,
	}
	if on {
		h.Wake("")
	}
	return h
}

// TestHostIsASystem runs the contract of fakebmc.System on the simulated host.
func TestHostIsASystem(t *testing.T) {
	systemtest.Run(t, func(t *testing.T, on bool) systemtest.Fixture {
		h := testHost(t, on, 0)
		boots := 0
		look := func(e history.Event) bool {
			if e.Kind == history.BootStarted {
				boots++
			}
			return false
		}
		return systemtest.Fixture{
			System: h,
			Advance: func(d time.Duration) {
				if _, err := h.w.advance(h.w.now+d, look); err != nil {
					t.Fatal(err)
				}
			},
			Step: 50 * time.Millisecond, Limit: 5 * time.Second, Hold: 10 * time.Second,
			Serial: true,
			Boots: func() int {
				h.w.handOver(look)
				return boots
			},
		}
	})
}

// TestHost checks the physical consequences of resets, of rules about the guest, and of a
// scenario's operations.
func TestHost(t *testing.T) {
	const ms = time.Millisecond
	type act struct {
		at time.Duration
		do func(*host) error
	}
	at := func(at time.Duration, do func(*host) error) act { return act{at, do} }
	reset := func(r fakebmc.ResetType) func(*host) error { return func(h *host) error { return h.Reset(r) } }
	refused := func(r fakebmc.ResetType) func(*host) error {
		return func(h *host) error {
			if err := h.Reset(r); !errors.Is(err, fakebmc.ErrConflict) {
				return fmt.Errorf("%s: %w; want ErrConflict", r, err)
			}
			return nil
		}
	}
	rule := func(g fakebmc.Guest) func(*host) error { return func(h *host) error { return h.SetGuest(g) } }
	op := func(do func(*host)) func(*host) error { return func(h *host) error { do(h); return nil } }
	pause, resume := op((*host).Pause), op((*host).Resume)
	hang, obey := rule(fakebmc.Guest{Paused: true}), rule(fakebmc.Guest{})

	for _, c := range []struct {
		name string
		off  bool // the host starts off
		acts []act
		want []string
	}{
		{name: "a power cycle leaves the host off for a second",
			acts: []act{at(0, reset(fakebmc.ResetPowerCycle))},
			want: []string{"300ms boot-ended h#1", "300ms power-off h#1", "1.3s power-on h#2", "1.3s boot-started h#2", "9.3s boot-complete h#2"}},
		{name: "a forced power-off overtakes the first half of a power cycle",
			acts: []act{at(0, reset(fakebmc.ResetPowerCycle)), at(100*ms, refused(fakebmc.ResetPowerCycle)), at(100*ms, reset(fakebmc.ResetForceOff))},
			want: []string{"300ms boot-ended h#1", "300ms power-off h#1"}},
		{name: "a forced power-off overtakes the second half of a power cycle",
			acts: []act{at(0, reset(fakebmc.ResetPowerCycle)), at(500*ms, reset(fakebmc.ResetForceOff))},
			want: []string{"300ms boot-ended h#1", "300ms power-off h#1"}},
		{name: "a loss of power overtakes the second half of a power cycle",
			acts: []act{at(0, reset(fakebmc.ResetPowerCycle)), at(500*ms, (*host).LoseAC)},
			want: []string{"300ms boot-ended h#1", "300ms power-off h#1"}},
		{name: "a power-on in the second half of a power cycle is not done twice",
			acts: []act{at(0, reset(fakebmc.ResetPowerCycle)), at(500*ms, reset(fakebmc.ResetPushPowerButton)), at(600*ms, reset(fakebmc.ResetForceOff))},
			want: []string{"300ms boot-ended h#1", "300ms power-off h#1", "500ms power-on h#2", "500ms boot-started h#2", "900ms boot-ended h#2", "900ms power-off h#2"}},
		{name: "a graceful restart has no power edge",
			acts: []act{at(0, reset(fakebmc.ResetGracefulRestart))},
			want: []string{"100ms workload-stopped h#1", "3s boot-ended h#1", "3s boot-started h#2", "11s boot-complete h#2"}},
		{name: "a forced power-off overtakes a graceful restart in which the guest hangs",
			acts: []act{at(0, reset(fakebmc.ResetGracefulRestart)), at(time.Second, pause), at(5*time.Second, reset(fakebmc.ResetForceOff)), at(5100*ms, resume)},
			want: []string{"100ms workload-stopped h#1", "1s host-paused h#1", "5.1s host-resumed h#1", "5.1s boot-ended h#1", "5.1s power-off h#1"}},
		{name: "a forced power-off stops a boot for good",
			off: true,
			acts: []act{at(0, reset(fakebmc.ResetOn)), at(time.Second, pause), at(10*time.Second, reset(fakebmc.ResetForceOff)), at(10100*ms, resume),
				at(10200*ms, reset(fakebmc.ResetForceOff))},
			want: []string{"0s power-on h#1", "0s boot-started h#1", "1s host-paused h#1", "10.1s host-resumed h#1", "10.3s boot-ended h#1", "10.3s power-off h#1"}},
		{name: "a boot that is forced off does not complete",
			off:  true,
			acts: []act{at(0, reset(fakebmc.ResetOn)), at(5*time.Second, pause), at(10*time.Second, reset(fakebmc.ResetForceOff)), at(10100*ms, resume)},
			want: []string{"0s power-on h#1", "0s boot-started h#1", "5s host-paused h#1", "10.1s host-resumed h#1", "10.3s boot-ended h#1", "10.3s power-off h#1"}},
		{name: "a forced power-off that is repeated is no later, and the one of the next boot takes its time",
			acts: []act{at(0, reset(fakebmc.ResetForceOff)), at(200*ms, reset(fakebmc.ResetForceOff)), at(time.Second, reset(fakebmc.ResetOn)),
				at(2*time.Second, reset(fakebmc.ResetForceOff))},
			want: []string{"300ms boot-ended h#1", "300ms power-off h#1", "1s power-on h#2", "1s boot-started h#2", "2.3s boot-ended h#2", "2.3s power-off h#2"}},
		{name: "a diagnostic interrupt ends nothing",
			acts: []act{at(0, reset(fakebmc.ResetNmi))}},
		{name: "the power button is the guest's",
			acts: []act{at(0, rule(fakebmc.Guest{Ignore: true})), at(0, reset(fakebmc.ResetPushPowerButton)), at(time.Second, obey), at(2*time.Second, reset(fakebmc.ResetPushPowerButton))},
			want: []string{"2.1s workload-stopped h#1", "5s boot-ended h#1", "5s power-off h#1"}},
		{name: "a loss of power drains nothing",
			acts: []act{at(time.Second, (*host).LoseAC), at(time.Second, (*host).LoseAC)},
			want: []string{"1s boot-ended h#1", "1s power-off h#1"}},
		{name: "a rule's guest outlives its boot, and a scenario's does not",
			acts: []act{at(0, op(func(h *host) { h.IgnoreShutdown(true) })), at(0, reset(fakebmc.ResetGracefulShutdown)),
				at(0, reset(fakebmc.ResetForceRestart)), at(9*time.Second, rule(fakebmc.Guest{Ignore: true})),
				at(10*time.Second, reset(fakebmc.ResetForceRestart)), at(19*time.Second, reset(fakebmc.ResetGracefulShutdown)),
				at(23*time.Second, obey), at(24*time.Second, reset(fakebmc.ResetGracefulShutdown))},
			want: []string{"0s boot-ended h#1", "0s boot-started h#2", "8s boot-complete h#2", "10s boot-ended h#2", "10s boot-started h#3", "18s boot-complete h#3",
				"27s boot-ended h#3", "27s power-off h#3"}},
		{name: "a slow guest stops its containers and then takes its time",
			acts: []act{at(0, rule(fakebmc.Guest{Slow: fakebmc.Duration(20 * time.Second)})), at(0, reset(fakebmc.ResetGracefulShutdown)), at(time.Second, obey)},
			want: []string{"100ms workload-stopped h#1", "20s boot-ended h#1", "20s power-off h#1"}},
		{name: "a rule's hang is there again in the next boot, and none of that boot passes in it",
			acts: []act{at(0, hang), at(time.Second, reset(fakebmc.ResetGracefulShutdown)), at(2*time.Second, reset(fakebmc.ResetForceOff)),
				at(3*time.Second, reset(fakebmc.ResetOn)), at(15*time.Second, obey)},
			want: []string{"0s host-paused h#1", "2.3s boot-ended h#1", "2.3s power-off h#1", "3s power-on h#2", "3s boot-started h#2", "3s host-paused h#2",
				"15s host-resumed h#2", "23s boot-complete h#2"}},
		{name: "a rule's hang is there again after a restart",
			acts: []act{at(0, hang), at(time.Second, reset(fakebmc.ResetForceRestart)), at(2*time.Second, obey)},
			want: []string{"0s host-paused h#1", "1s boot-ended h#1", "1s boot-started h#2", "1s host-paused h#2", "2s host-resumed h#2", "10s boot-complete h#2"}},
		{name: "the scenario's pause ends with the boot",
			acts: []act{at(0, pause), at(time.Second, reset(fakebmc.ResetForceRestart))},
			want: []string{"0s host-paused h#1", "1s boot-ended h#1", "1s boot-started h#2", "9s boot-complete h#2"}},
		{name: "two who stop the processors must both let go, the rule first",
			acts: []act{at(0, pause), at(time.Second, hang), at(2*time.Second, obey), at(3*time.Second, resume)},
			want: []string{"0s host-paused h#1", "3s host-resumed h#1"}},
		{name: "two who stop the processors must both let go, the scenario first",
			acts: []act{at(0, hang), at(time.Second, pause), at(2*time.Second, resume), at(3*time.Second, obey)},
			want: []string{"0s host-paused h#1", "3s host-resumed h#1"}},
		{name: "a hang of a host that is off is that of its next boot",
			off:  true,
			acts: []act{at(0, hang), at(time.Second, pause), at(2*time.Second, reset(fakebmc.ResetOn)), at(4*time.Second, obey)},
			want: []string{"2s power-on h#1", "2s boot-started h#1", "2s host-paused h#1", "4s host-resumed h#1", "12s boot-complete h#1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := testHost(t, !c.off, 0)
			if !c.off {
				h.kubelet.containers = []*container{{pod: "uid", key: client.ObjectKey{Name: "exclusive"}, running: true, stops: containerStop}}
				h.kubelet.stop() // there is no such Pod
				h.StartWorkload(model.Workload{Name: "exclusive", Pod: "uid"})
			}
			before, _ := h.PowerState()
			told := []fakebmc.PowerState{before}
			h.Watch(func(p fakebmc.PowerState) { told = append(told, p) })
			h.w.events = nil
			var got []string
			note := func(e history.Event) bool {
				if e.Kind.Layer() == history.World {
					got = append(got, fmt.Sprintf("%s %s %s", e.At, e.Kind, e.Boot))
				}
				return false
			}
			advance := func(until time.Duration) {
				t.Helper()
				if _, err := h.w.advance(until, note); err != nil {
					t.Fatal(err)
				}
			}
			for _, a := range c.acts {
				advance(a.at)
				if err := a.do(h); err != nil {
					t.Error(err)
				}
			}
			advance(time.Minute)
			if !slices.Equal(got, c.want) {
				t.Errorf("it came to\n  %q, want\n  %q", got, c.want)
			}
			if state, _ := h.PowerState(); told[len(told)-1] != state {
				t.Errorf("the host is %s, and its watchers were told %v", state, told[1:])
			}
		})
	}
}

// TestWhoDidIt checks the actor of power edges and of the ends of boots.
func TestWhoDidIt(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*host) error
		want string
	}{
		{"a command", func(h *host) error { return h.ResetFor("reboot", fakebmc.ResetForceOff) }, "boot-ended reboot, power-off reboot"},
		{"a graceful shutdown", func(h *host) error { return h.ResetFor("reboot", fakebmc.ResetGracefulShutdown) }, "boot-ended reboot, power-off reboot"},
		{"a power cycle", func(h *host) error { return h.ResetFor("somebody", fakebmc.ResetPowerCycle) },
			"boot-ended somebody, power-off somebody, power-on somebody"},
		{"a restart", func(h *host) error { return h.ResetFor("somebody", fakebmc.ResetForceRestart) }, "boot-ended somebody"},
		{"the last of two commands", func(h *host) error {
			return errors.Join(h.ResetFor("first", fakebmc.ResetGracefulShutdown), h.ResetFor("second", fakebmc.ResetForceOff))
		}, "boot-ended second, power-off second"},
		{"a BMC that has no mains any more", (*host).LoseAC, "boot-ended bmc, power-off bmc"},
		{"a watchdog", func(h *host) error { h.stopFeeding(); return nil }, "boot-ended scenario"},
		{"the watchdog of a guest that hangs", func(h *host) error { h.Pause(); return nil }, "boot-ended scenario"},
		{"a watchdog that is fed again", func(h *host) error {
			h.Pause()
			_, err := h.w.advance(5*time.Second, func(history.Event) bool { return false })
			h.Resume()
			return err
		}, ""},
		{"a watchdog that nobody feeds, whatever the processors do", func(h *host) error { h.stopFeeding(); h.Pause(); h.Resume(); return nil }, "boot-ended scenario"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := testHost(t, true, 10*time.Second)
			h.w.events = nil
			if err := c.do(h); err != nil {
				t.Fatal(err)
			}
			var got []string
			if _, err := h.w.advance(time.Minute, func(e history.Event) bool {
				switch e.Kind {
				case history.PowerOn, history.PowerOff, history.BootEnded:
					got = append(got, string(e.Kind)+" "+e.Actor)
				}
				return false
			}); err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(got, ", "); text != c.want {
				t.Errorf("it was %s, want %s", text, c.want)
			}
		})
	}
}
