//go:build cgo && libvirt_dlopen

package vms

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// TestTracker feeds one observation a line, "seconds what", to a tracker that allows 2 s of
// silence, and 10 s at boot. It expects events written as "seconds kind boot [process]"; heartbeats
// and the plain echo of observations are left out.
func TestTracker(t *testing.T) {
	for _, c := range []struct{ name, observed, want string }{
		{
			"a life", `
			0 powered-on
			1 line A boot
			2 line A heartbeat 1
			3 line A heartbeat 2
			4 line A done
			5 powered-off
			99 tick`, `
			0 powered-on -
			1 boot A
			4 done A
			5 powered-off A`,
		},
		{
			"silence while it boots", `
			0 powered-on
			10 tick
			11 tick
			12 tick
			13 line A boot`, `
			0 powered-on -
			11 evidence-lost -
			13 evidence-regained A
			13 boot A`,
		},
		{
			"silence, and an end of the boot that settles it", `
			0 powered-on
			1 line A boot
			3 tick
			4 tick
			5 tick
			6 powered-off`, `
			0 powered-on -
			1 boot A
			4 evidence-lost A
			6 powered-off A
			6 evidence-regained A`,
		},
		{
			"a paused machine is silent by right", `
			0 powered-on
			1 line A boot
			2 paused
			50 tick
			51 resumed
			52 tick
			54 tick`, `
			0 powered-on -
			1 boot A
			2 paused A
			51 resumed A
			54 evidence-lost A`,
		},
		{
			"changes that are none", `
			0 resumed
			1 powered-on
			2 resumed
			3 paused
			4 paused`, `
			1 powered-on -
			3 paused -`,
		},
		{
			"a reset begins another boot, and late lines of the first are no life", `
			0 powered-on
			1 line A boot
			2 line A heartbeat 1
			3 reset guest
			5 line A workload-stopped db
			6 line B boot
			7 line B heartbeat 1
			8 line A workload-started db`, `
			0 powered-on -
			1 boot A
			3 reset A
			5 workload-stopped A db late
			6 boot B
			8 workload-started A db late`,
		},
		{
			"a requested reset before the first line", `
			0 powered-on
			1 reset requested
			3 line A boot`, `
			0 powered-on -
			1 reset -
			3 boot A`,
		},
		{
			"a boot from nowhere is a reset that nobody told of yet", `
			0 powered-on
			1 line A boot
			2 line B boot`, `
			0 powered-on -
			1 boot A
			2 reset A
			2 boot B`,
		},
		{
			"a reset that is told late, and another one", `
			0 powered-on
			1 line A boot
			4 tick
			9 line B boot
			10 reset watchdog
			11 line B heartbeat 1
			12 line A workload-stopped db
			13 reset guest
			14 line C boot`, `
			0 powered-on -
			1 boot A
			4 evidence-lost A
			9 reset A
			9 evidence-regained A
			9 boot B
			12 workload-stopped A db late
			13 reset B
			14 boot C`,
		},
		{
			"a reset that is told late, after a pause", `
			0 powered-on
			1 line A boot
			2 line B boot
			3 paused
			4 resumed
			5 reset guest
			6 line B heartbeat 1`, `
			0 powered-on -
			1 boot A
			2 reset A
			2 boot B
			3 paused B
			4 resumed B`,
		},
		{
			"a reset that is never told, since the power went", `
			0 powered-on
			1 line A boot
			2 line B boot
			3 powered-off
			4 powered-on
			5 line C boot
			6 reset guest`, `
			0 powered-on -
			1 boot A
			2 reset A
			2 boot B
			3 powered-off B
			4 powered-on -
			5 boot C
			6 reset C`,
		},
		{
			"missing heartbeats, by process", `
			0 powered-on
			1 line A boot
			1 line A heartbeat 1
			1 line A heartbeat 1 db
			2 line A heartbeat 2
			2 line A heartbeat 3 db
			3 line A heartbeat 4 db
			3 line A workload-started db
			4 line A heartbeat 1 db`, `
			0 powered-on -
			1 boot A
			2 evidence-lost A
			2 evidence-regained A
			3 workload-started A db`,
		},
		{
			"garbage", `
			0 powered-on
			1 line A boot
			1 garbage
			2 line A heartbeat 1`, `
			0 powered-on -
			1 boot A
			1 evidence-lost A
			2 evidence-regained A`,
		},
		{
			"a line that overtakes the start", `
			0 line A boot
			1 powered-on
			2 line A heartbeat 1
			3 powered-off
			4 line A done
			5 powered-on
			6 line B boot`, `
			0 powered-on -
			0 boot A
			3 powered-off A
			4 done A late
			5 powered-on -
			6 boot B`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tracker := newTracker("h", 2*time.Second, 10*time.Second)
			var got []string
			for _, line := range lines(c.observed) {
				for _, e := range observe(t, tracker, line) {
					if e.Kind == Kind(evidence.Heartbeat) {
						continue
					}
					boot := e.Boot
					if boot == "" {
						boot = "-"
					}
					text := strings.TrimSpace(fmt.Sprintf("%g %s %s %s", e.At.Seconds(), e.Kind, boot, e.Process))
					if e.Late {
						text += " late"
					}
					got = append(got, text)
				}
			}
			if want := lines(c.want); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

func lines(s string) (all []string) {
	for _, l := range strings.Split(strings.TrimSpace(s), "\n") {
		all = append(all, strings.TrimSpace(l))
	}
	return all
}

func observe(t *testing.T, tracker *tracker, text string) []Event {
	f := append(strings.Fields(text), "", "", "", "")
	var seconds int
	fmt.Sscan(f[0], &seconds)
	at := time.Duration(seconds) * time.Second
	switch f[1] {
	case "tick":
		return tracker.tick(at)
	case "garbage":
		return tracker.garbage(at, "{")
	case "line":
		l := evidence.Line{Boot: f[2], Kind: evidence.Kind(f[3])}
		if l.Kind == evidence.Heartbeat {
			fmt.Sscan(f[4], &l.Seq)
			l.Process = f[5]
		} else {
			l.Process = f[4]
		}
		return tracker.line(at, l, func() string { return resetGuest })
	case string(PoweredOn), string(PoweredOff), string(Reset), string(Paused), string(Resumed):
		return tracker.hypervisor(at, Kind(f[1]), f[2])
	}
	t.Fatalf("unknown observation %q", text)
	return nil
}

func TestQueueLosesNothing(t *testing.T) {
	const n = 10000
	q, out := newQueue[int](), make(chan int)
	go q.pump(out, nil)
	go func() {
		for i := range n {
			q.put(i)
		}
		q.close()
	}()
	next := 0
	for i := range out {
		if i != next {
			t.Fatalf("got %d, want %d", i, next)
		}
		next++
	}
	if next != n {
		t.Errorf("got %d of %d", next, n)
	}
}

// TestAnEndIsToldBeforeTheNextBeginning: a host that somebody else switches off and at once on
// again has been off: what the guest said before its end, and the end, come before the beginning.
func TestAnEndIsToldBeforeTheNextBeginning(t *testing.T) {
	l := &Lab{options: Options{Within: context.WithTimeout}, opened: time.Now(), queue: newQueue[Event](), hypervisor: &hypervisor{pids: t.TempDir()}}
	d := &Domain{lab: l, name: "worker-1", tracker: newTracker("worker-1", time.Minute, time.Minute)}
	port, other := net.Pipe()
	defer other.Close()
	for _, in := range []input{
		{kind: PoweredOn}, {connected: port}, {line: []byte(`{"kind":"boot","boot":"1"}`)},
		{kind: PoweredOff}, {kind: PoweredOn}, {line: []byte(`{"kind":"heartbeat","boot":"1","seq":1}`)}, {ended: true},
	} {
		d.handle(in)
	}
	events, _ := l.queue.take()
	var told []Kind
	for _, e := range events {
		told = append(told, e.Kind)
	}
	if want := []Kind{PoweredOn, Kind(evidence.Boot), Kind(evidence.Heartbeat), PoweredOff, PoweredOn}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

// TestOneRestartIsOneReset: the firmware resets a machine again, once or several times, before it
// goes on, and not all of that has to come after whoever asked for the reset knows of it.
func TestOneRestartIsOneReset(t *testing.T) {
	l := &Lab{options: Options{Within: context.WithTimeout}, opened: time.Now(), queue: newQueue[Event](), hypervisor: &hypervisor{pids: t.TempDir()}}
	d := &Domain{lab: l, name: "worker-1", tracker: newTracker("worker-1", time.Minute, time.Minute)}
	port, other := net.Pipe()
	defer other.Close()
	d.handle(input{kind: PoweredOn})
	d.handle(input{connected: port})
	for range 2 {
		d.restarting.Store(true)
		for range 3 {
			d.handle(input{kind: Reset})
		}
	}
	var told []string
	events, _ := l.queue.take()
	for _, e := range events {
		told = append(told, string(e.Kind)+" "+e.Detail)
	}
	if want := []string{"powered-on ", "reset requested", "reset requested"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
