package sim

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// host is a simulated machine: its power, the boot that runs on it, and what
// runs in that boot. It is the only one that says what physically happened.
// It implements fakebmc.System.
type host struct {
	w       *world
	actor   actor
	name    string
	timings hostTimings
	kubelet *kubelet

	on     bool
	paused bool
	boots  int
	// boot is the incarnation that runs, or "" when nothing does.
	boot string
	// booted says that the boot is complete: its kubelet process has started.
	booted bool
	// workloads are the processes of exclusive workloads that run, in the order
	// in which they started.
	workloads []workload
	// ignoresShutdown is the guest's, and ends with its boot.
	ignoresShutdown bool

	// transition is the power change or boot stage that is under way.
	transition *step
	// goingDown says that the transition ends in power off.
	goingDown bool
	watchdog  *step
	// stalled is what the paused guest will do as soon as it goes on.
	stalled  []func()
	watchers []func(fakebmc.PowerState)
	// told is the state that the watchers know.
	told fakebmc.PowerState
}

type hostTimings struct {
	boot, softOff, hardOff, watchdog time.Duration
}

// firmware is the share of a boot that passes before the kernel starts, in
// tenths.
const firmware = 4

// PowerState is the physical state. A host that is going down is on until its
// last process is gone.
func (h *host) PowerState() (fakebmc.PowerState, error) {
	switch {
	case !h.on:
		return fakebmc.Off, nil
	case h.paused:
		return fakebmc.Paused, nil
	case h.goingDown:
		return fakebmc.PoweringOff, nil
	default:
		return fakebmc.On, nil
	}
}

// Watch tells every edge of the power state.
func (h *host) Watch(f func(fakebmc.PowerState)) (stop func()) {
	i := len(h.watchers)
	h.watchers = append(h.watchers, f)
	return func() { h.watchers[i] = nil }
}

func (h *host) tell() {
	state, _ := h.PowerState()
	if state == h.told {
		return
	}
	h.told = state
	for _, f := range h.watchers {
		if f != nil {
			f(state)
		}
	}
}

// Reset begins a power command.
func (h *host) Reset(t fakebmc.ResetType) error {
	switch t {
	case fakebmc.ResetOn:
		if h.on && h.goingDown {
			return fmt.Errorf("power on %s, which is powering off: %w", h.name, fakebmc.ErrConflict)
		}
		h.powerOn()
	case fakebmc.ResetForceOff:
		h.forceOff("forced off by its BMC")
	case fakebmc.ResetGracefulShutdown:
		h.shutDown()
	case fakebmc.ResetForceRestart:
		if !h.on || h.goingDown {
			return fmt.Errorf("restart %s, which is not on: %w", h.name, fakebmc.ErrConflict)
		}
		h.restart("restarted by its BMC")
	default:
		return fmt.Errorf("reset %s with %s: %w", h.name, t, fakebmc.ErrUnsupported)
	}
	return nil
}

// powerOn is the edge from off to on, if the host is off.
func (h *host) powerOn() {
	if h.on {
		return
	}
	h.on = true
	h.begin(history.PowerOn)
	h.tell()
}

// forceOff takes the power away. The last process is gone when the supply has
// drained.
func (h *host) forceOff(why string) {
	if !h.on {
		return
	}
	h.w.cancel(h.transition)
	h.goingDown = true
	h.transition = h.w.schedule(&h.actor, ClassPower, false, h.timings.hardOff, func(scenarios.StepFault) { h.powerOff(why) })
	h.tell()
}

// shutDown asks the operating system to stop. One that isn't up yet, hangs, or
// ignores the request goes on running; so nothing is under way then.
func (h *host) shutDown() {
	if !h.booted || h.paused || h.ignoresShutdown || h.goingDown {
		return
	}
	h.goingDown = true
	h.tell()
	h.kubelet.shutDown()
	h.transition = h.w.schedule(&h.actor, ClassPower, false, h.timings.softOff, func(scenarios.StepFault) {
		h.unlessPaused(func() { h.powerOff("shut down by its operating system") })
	})
}

// restart ends the boot and begins another without a power edge.
func (h *host) restart(why string) {
	h.end(why)
	h.begin("")
}

// powerOff is the edge from on to off.
func (h *host) powerOff(why string) {
	boot := h.boot
	h.end(why)
	h.on = false
	h.w.emit(history.Event{Kind: history.PowerOff, Host: h.name, Boot: boot})
	h.tell()
}

// begin starts a boot incarnation, after a power edge of the given kind if any.
func (h *host) begin(edge history.Kind) {
	h.boots++
	h.boot = fmt.Sprintf("%s#%d", h.name, h.boots)
	if edge != "" {
		h.w.emit(history.Event{Kind: edge, Host: h.name, Boot: h.boot})
	}
	h.w.emit(history.Event{Kind: history.BootStarted, Host: h.name, Boot: h.boot})
	kernel := h.timings.boot * firmware / 10
	h.transition = h.w.schedule(&h.actor, ClassBoot, false, kernel, func(scenarios.StepFault) {
		h.unlessPaused(func() {
			h.transition = h.w.schedule(&h.actor, ClassBoot, false, h.timings.boot-kernel, func(scenarios.StepFault) {
				h.unlessPaused(h.complete)
			})
		})
	})
}

// unlessPaused does what the guest does next, or keeps it until it is resumed.
func (h *host) unlessPaused(do func()) {
	if h.paused {
		h.stalled = append(h.stalled, do)
		return
	}
	do()
}

// complete is the start of the kubelet process.
func (h *host) complete() {
	h.transition = nil
	h.booted = true
	h.w.emit(history.Event{Kind: history.BootComplete, Host: h.name, Boot: h.boot})
	h.kubelet.start()
}

// end stops every process of the boot, and what was under way in it.
func (h *host) end(why string) {
	h.w.cancel(h.transition)
	h.w.cancel(h.watchdog)
	h.transition, h.watchdog = nil, nil
	h.kubelet.kill()
	h.goingDown, h.booted, h.paused, h.ignoresShutdown = false, false, false, false
	h.workloads, h.stalled = h.workloads[:0], nil
	h.w.emit(history.Event{Kind: history.BootEnded, Host: h.name, Boot: h.boot, Note: why})
	h.boot = ""
}

// pause stops the processors: what the guest would do meanwhile waits.
func (h *host) pause() {
	if h.on && !h.paused {
		h.paused = true
		h.w.emit(history.Event{Kind: history.HostPaused, Host: h.name, Boot: h.boot})
		h.tell()
	}
}

func (h *host) resume() {
	if h.paused {
		h.paused = false
		h.w.emit(history.Event{Kind: history.HostResumed, Host: h.name, Boot: h.boot})
		h.tell()
		stalled := h.stalled
		h.stalled = nil
		for _, do := range stalled {
			do()
		}
	}
}

// stopFeeding leaves the watchdog alone, which then resets the host.
func (h *host) stopFeeding() {
	if h.timings.watchdog == 0 || !h.booted || h.watchdog != nil {
		return
	}
	h.watchdog = h.w.schedule(&h.actor, ClassWatchdog, false, h.timings.watchdog, func(scenarios.StepFault) {
		h.watchdog = nil
		h.w.emit(history.Event{Kind: history.WatchdogFired, Host: h.name, Boot: h.boot})
		h.restart("reset by its watchdog")
	})
}

// workload is a process of an exclusive workload, named after its Pod.
type workload struct {
	name string
	pod  types.UID
}

func (h *host) startWorkload(p workload) {
	h.workloads = append(h.workloads, p)
	h.w.emit(history.Event{Kind: history.WorkloadStarted, Host: h.name, Boot: h.boot, Object: p.name, UID: string(p.pod)})
}

func (h *host) stopWorkload(p workload) {
	if i := slices.Index(h.workloads, p); i >= 0 {
		h.workloads = slices.Delete(h.workloads, i, i+1)
		h.w.emit(history.Event{Kind: history.WorkloadStopped, Host: h.name, Boot: h.boot, Object: p.name, UID: string(p.pod)})
	}
}
