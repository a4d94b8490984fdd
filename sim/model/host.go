// Package model is the model of a host: its power, the boot that runs on it, its guest and its
// watchdog. It has no clock and no thread of its own: the simulator runs it on simulated time, and
// the lab on this machine's time. Both use the same model, so that a story means the same in both.
package model

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios/history"
)

// World is a host's environment. It calls a host from one place at a time. When the host schedules
// something, the world never calls back at once.
type World interface {
	// Now returns the time.
	Now() time.Duration
	// After has the host do something after d. The verb names that step.
	After(d time.Duration, class Class, verb string, do func()) Timer
	// Cancel withdraws a scheduled call; a nil Timer is fine.
	Cancel(Timer)
	// Emit records an event of the present moment.
	Emit(history.Event)
}

// Timer identifies a call scheduled by World.After, for World.Cancel.
type Timer any

// Class is a class of scheduled calls.
type Class string

// The classes.
const (
	Power    Class = "power"    // its power changes
	Boot     Class = "boot"     // it reaches the next stage of its boot
	Watchdog Class = "watchdog" // its watchdog fires
)

// Software is the software of a host's boots. Its methods notify it of events. During a
// notification it may call only StartWorkload and StopWorkload.
type Software interface {
	// Begins notifies it of the start of a boot.
	Begins()
	// Start notifies it that the boot is complete: the kubelet and the agents start.
	Start()
	// ShutDown asks it to end its processes, as the operating system is about to stop.
	ShutDown()
	// Kill notifies it of the end of the boot: every process is gone.
	Kill()
	// Halts notifies it that the processors are about to stand still, or to go on.
	Halts()
}

// Host is a machine, and the only source of events about what physically happened to it. It
// implements fakebmc.System, and Watcher, Resetter, GuestSystem and Mains.
//
// It has many fields because the power, the boot and the watchdog of a host change one another at
// every edge.
type Host struct {
	w        World
	software Software
	name     string
	timings  Timings

	on    bool
	boots int
	// boot is the incarnation that runs, or "" when none does.
	boot string
	// booted says that the boot is complete: its kubelet process has started.
	booted bool
	// workloads are the processes of exclusive workloads that run, in the order
	// in which they started.
	workloads []Workload
	// ignoresShutdown, paused, hung and panicked are set by the scenario, and end with the boot.
	ignoresShutdown, paused, hung, panicked bool
	// guest is the behavior that a rule of the BMC gives to each boot while the rule is in force.
	guest fakebmc.Guest
	// halted says that the processors of this boot stand still.
	halted bool

	// transition is the power change or boot stage under way. On a host that is off it is the
	// second half of a power cycle.
	transition Timer
	// down is the step after the boot's last process, while the boot is going down: power off, or
	// the next boot.
	down func()
	// draining says that the power has been cut: down is only a matter of time.
	draining bool
	// watchdog will reset the host. With unfed, nothing can prevent that any more.
	watchdog Timer
	unfed    bool
	// disarmed says that whoever fed it has closed it in order.
	disarmed bool
	// feeder is the agent that feeds the watchdog, last at fed. Without one the operating system
	// does.
	feeder string
	fed    time.Duration
	// stalled holds what the paused guest will do as soon as it goes on.
	stalled  []func()
	watchers []func(fakebmc.PowerState)
	// told is the state last reported to the watchers.
	told fakebmc.PowerState
}

// Timings are how long things take. Softdog says that the watchdog is the kernel's own, which
// stands still with it.
type Timings struct {
	Boot, SoftOff, HardOff, Watchdog time.Duration
	Softdog                          bool
}

// New returns a host that is off.
func New(w World, software Software, name string, t Timings) *Host {
	return &Host{w: w, software: software, name: name, timings: t, told: fakebmc.Off}
}

// byScenario is the actor in events that the scenario itself causes. A watchdog that no agent
// feeds fires only because the scenario stopped its feeding.
const byScenario = string(history.Engine)

const (
	// firmwareTenths is the share of a boot that passes before the kernel starts.
	firmwareTenths = 4
	// cycleInterval is how long a power cycle leaves the host off: IPMI asks for
	// a second at least.
	cycleInterval = time.Second
)

// Boot returns the incarnation that runs, or "".
func (h *Host) Boot() string { return h.boot }

// Booted reports whether the boot is complete; Halted reports whether its processors stand still.
func (h *Host) Booted() bool { return h.booted }
func (h *Host) Halted() bool { return h.halted }

// WatchdogTime returns the watchdog's timeout, or 0 without a watchdog.
func (h *Host) WatchdogTime() time.Duration { return h.timings.Watchdog }

// Identify writes the state of the host, without times and counters.
func (h *Host) Identify(to io.Writer) {
	fmt.Fprintf(to, "host %s %t %s %t %t %t %t %t %t %t %t %v\n", h.name, h.on, h.boot, h.booted, h.down != nil, h.draining,
		h.watchdog != nil, h.unfed, h.disarmed, h.ignoresShutdown, h.halted, h.guest)
	for _, w := range h.workloads {
		fmt.Fprintf(to, "workload %s\n", w.Name)
	}
}

// PowerState returns the physical state. A host that is going down is on until its last process is
// gone.
func (h *Host) PowerState() (fakebmc.PowerState, error) {
	switch {
	case !h.on:
		return fakebmc.Off, nil
	case h.halted:
		return fakebmc.Paused, nil
	case h.down != nil:
		return fakebmc.PoweringOff, nil
	default:
		return fakebmc.On, nil
	}
}

// Watch calls f at every edge of the power state.
func (h *Host) Watch(f func(fakebmc.PowerState)) (stop func()) {
	i := len(h.watchers)
	h.watchers = append(h.watchers, f)
	return func() { h.watchers[i] = nil }
}

func (h *Host) tell() {
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

// everyReset is every reset type there is.
var everyReset = []fakebmc.ResetType{
	fakebmc.ResetOn, fakebmc.ResetForceOff, fakebmc.ResetGracefulShutdown, fakebmc.ResetGracefulRestart,
	fakebmc.ResetForceRestart, fakebmc.ResetNmi, fakebmc.ResetPowerCycle, fakebmc.ResetPushPowerButton,
}

// Resets returns the reset types that Reset executes.
func (h *Host) Resets() []fakebmc.ResetType { return everyReset }

// Reset begins a power command that has no client.
func (h *Host) Reset(t fakebmc.ResetType) error { return h.ResetFor("", t) }

// ResetFor begins a power command of a client. The events that follow from it name the client.
func (h *Host) ResetFor(by string, t fakebmc.ResetType) error {
	switch t {
	case fakebmc.ResetOn:
		if h.down != nil {
			return fmt.Errorf("power on %s, which is powering off: %w", h.name, fakebmc.ErrConflict)
		}
		h.PowerOn(by)
	case fakebmc.ResetForceOff:
		h.forceOff(func() { h.powerOff(by, "forced off by its BMC") })
	case fakebmc.ResetGracefulShutdown:
		h.shutDown(func() { h.powerOff(by, shutDownByGuest) })
	case fakebmc.ResetPushPowerButton:
		if h.on {
			h.shutDown(func() { h.powerOff(by, shutDownByGuest) })
		} else {
			h.PowerOn(by)
		}
	case fakebmc.ResetGracefulRestart, fakebmc.ResetForceRestart, fakebmc.ResetPowerCycle, fakebmc.ResetNmi:
		if !h.on || h.down != nil {
			return fmt.Errorf("%s of %s, which is not on: %w", t, h.name, fakebmc.ErrConflict)
		}
		h.whileOn(by, t)
	default:
		return fmt.Errorf("reset %s with %s: %w", h.name, t, fakebmc.ErrUnsupported)
	}
	return nil
}

// whileOn begins a reset that requires a host that is on.
func (h *Host) whileOn(by string, t fakebmc.ResetType) {
	switch t {
	case fakebmc.ResetGracefulRestart:
		h.shutDown(func() { h.restart(by, "restarted by its operating system") })
	case fakebmc.ResetForceRestart:
		h.restart(by, "restarted by its BMC")
	case fakebmc.ResetPowerCycle:
		h.forceOff(func() {
			h.powerOff(by, "power cycled by its BMC")
			h.transition = h.w.After(cycleInterval, Power, "power on", func() { h.PowerOn(by) })
		})
	case fakebmc.ResetNmi:
		// The kernel logs an interrupt without a known cause, and goes on: Linux panics only if it
		// is configured to, and the lab's guests are not.
	}
}

// PowerOn is the edge from off to on, if the host is off.
func (h *Host) PowerOn(by string) {
	if h.on {
		return
	}
	h.w.Cancel(h.transition)
	h.on = true
	h.begin(history.PowerOn, by)
}

// Wake turns a host on whose boot is complete at once, for the beginning of a story.
func (h *Host) Wake(by string) {
	h.PowerOn(by)
	h.w.Cancel(h.transition)
	h.complete()
}

// forceOff cuts the power, or keeps it off. The last process is gone when the supply has drained.
// Draining begins once, however many requests there are.
func (h *Host) forceOff(then func()) {
	if h.draining {
		h.down = then
		return
	}
	h.w.Cancel(h.transition)
	if !h.on {
		return
	}
	h.down, h.draining = then, true
	h.transition = h.w.After(h.timings.HardOff, Power, "force off", func() { h.down() })
	h.tell()
}

// shutDown asks the operating system to stop. A system that isn't up yet, hangs, or ignores the
// request goes on running, and no transition begins.
func (h *Host) shutDown(then func()) {
	if !h.booted || h.halted || h.ignoresShutdown || h.guest.Ignore || h.down != nil {
		return
	}
	h.down = then
	h.tell()
	h.software.ShutDown()
	takes := cmp.Or(time.Duration(h.guest.Slow), h.timings.SoftOff)
	h.transition = h.w.After(takes, Power, "shut down", func() {
		// It calls the latest down: a forced power-off overtakes the request to the guest.
		h.UnlessHalted(func() { h.down() })
	})
}

const shutDownByGuest = "shut down by its operating system"

// LosePower is the edge to off at once: nothing drains, and no software is asked.
func (h *Host) LosePower(by string) {
	h.w.Cancel(h.transition)
	if h.on {
		h.powerOff(by, "lost its power")
	}
}

// LoseAC cuts the host's mains, by a rule of its BMC.
func (h *Host) LoseAC() error {
	h.LosePower(fakebmc.ClientBMC)
	return nil
}

// restart ends the boot and begins another without a power edge.
func (h *Host) restart(by, why string) {
	h.end(by, why)
	h.begin("", "")
}

// Reboot makes the operating system of a host that is up reboot at once.
func (h *Host) Reboot(by, why string) {
	if h.booted && h.down == nil {
		h.restart(by, why)
	}
}

// powerOff is the edge from on to off.
func (h *Host) powerOff(by, why string) {
	boot := h.boot
	h.end(by, why)
	h.on = false
	h.w.Emit(history.Event{Kind: history.PowerOff, Host: h.name, Boot: boot, Actor: by})
	h.tell()
}

// begin starts a boot incarnation, after a power edge of the given kind if any.
func (h *Host) begin(edge history.Kind, by string) {
	h.boots++
	h.boot = fmt.Sprintf("%s#%d", h.name, h.boots)
	h.software.Begins()
	if edge != "" {
		h.w.Emit(history.Event{Kind: edge, Host: h.name, Boot: h.boot, Actor: by})
	}
	h.w.Emit(history.Event{Kind: history.BootStarted, Host: h.name, Boot: h.boot})
	h.halt()
	h.tell()
	h.UnlessHalted(h.firmware)
}

// firmware is the first stage of a boot, before the kernel starts.
func (h *Host) firmware() { h.stage(h.timings.Boot*firmwareTenths/10, (*Host).kernel) }

// kernel is the rest of the boot.
func (h *Host) kernel() { h.stage(h.timings.Boot-h.timings.Boot*firmwareTenths/10, (*Host).complete) }

// stage runs one part of a boot. A boot that is going down does not go on.
func (h *Host) stage(takes time.Duration, then func(*Host)) {
	if h.down != nil {
		return
	}
	h.transition = h.w.After(takes, Boot, "boot", func() {
		h.UnlessHalted(func() { then(h) })
	})
}

// UnlessHalted runs the guest's next action, or keeps it until the guest goes on.
func (h *Host) UnlessHalted(do func()) {
	if h.halted {
		h.stalled = append(h.stalled, do)
		return
	}
	do()
}

// complete ends the boot stages and starts the software.
func (h *Host) complete() {
	if h.down != nil {
		return
	}
	h.transition = nil
	h.booted = true
	h.w.Emit(history.Event{Kind: history.BootComplete, Host: h.name, Boot: h.boot})
	h.software.Start()
	h.arm()
}

// end stops every process of the boot, and cancels what was under way in it.
func (h *Host) end(by, why string) {
	h.w.Cancel(h.transition)
	h.w.Cancel(h.watchdog)
	h.transition, h.watchdog, h.unfed, h.disarmed, h.down, h.draining = nil, nil, false, false, nil, false
	h.software.Kill()
	h.booted, h.halted, h.paused, h.hung, h.panicked, h.ignoresShutdown = false, false, false, false, false, false
	h.workloads, h.stalled = h.workloads[:0], nil
	h.w.Emit(history.Event{Kind: history.BootEnded, Host: h.name, Boot: h.boot, Actor: by, Note: why})
	h.boot = ""
}

// Pause stops the processors of this boot.
func (h *Host) Pause() {
	h.paused = h.on
	h.halt()
}

// Resume ends Pause.
func (h *Host) Resume() {
	h.paused = false
	h.halt()
}

// Hang stops all of user space for the rest of this boot.
func (h *Host) Hang() {
	h.hung = h.on
	h.halt()
}

// Panic ends the kernel of this boot.
func (h *Host) Panic() {
	h.panicked = h.on
	h.halt()
}

// stands reports whether even the kernel makes no progress.
func (h *Host) stands() bool { return h.paused || h.panicked || h.guest.Paused }

// SetGuest changes how this boot and all later ones behave, until it is set anew. The duration of
// a shutdown that is under way does not change.
func (h *Host) SetGuest(g fakebmc.Guest) error {
	h.guest = g
	h.halt()
	return nil
}

// halt stops the processors or lets them go on, as the scenario and the rules now demand. What the
// guest would do meanwhile waits.
func (h *Host) halt() {
	halted := h.on && (h.hung || h.stands())
	if halted == h.halted {
		return
	}
	h.software.Halts()
	h.halted = halted
	kind := history.HostResumed
	if halted {
		kind = history.HostPaused
	}
	h.w.Emit(history.Event{Kind: kind, Host: h.name, Boot: h.boot})
	h.tell()
	if halted {
		h.starve()
		return
	}
	if !h.unfed && h.feeder == "" {
		h.w.Cancel(h.watchdog)
		h.watchdog = nil
	}
	boot, stalled := h.boot, h.stalled
	h.stalled = nil
	for _, do := range stalled {
		if h.boot == boot {
			do()
		}
	}
}

// IgnoreShutdown makes the operating system of this boot ignore requests to stop.
func (h *Host) IgnoreShutdown(ignore bool) { h.ignoresShutdown = ignore }

// StopFeeding stops the feeding of the watchdog, which then resets the host.
func (h *Host) StopFeeding() {
	if h.booted {
		h.unfed = true
		h.starve()
	}
}

// FedBy names the agent that from now on feeds the watchdog instead of the operating system.
func (h *Host) FedBy(feeder string) {
	h.feeder = feeder
	h.arm()
}

// Feed restarts the watchdog's timeout. A device that was closed is opened for that.
func (h *Host) Feed() {
	h.fed, h.disarmed = h.w.Now(), false
	h.starve()
}

// Disarm ends the watchdog's wait until somebody feeds it again, or for the rest of the boot.
func (h *Host) Disarm() {
	if h.timings.Watchdog == 0 || h.unfed {
		return
	}
	h.w.Cancel(h.watchdog)
	h.watchdog, h.disarmed = nil, true
	h.w.Emit(history.Event{Kind: history.WatchdogDisarmed, Host: h.name, Boot: h.boot, Actor: h.feeder})
}

// starve starts the watchdog's timeout: the watchdog is a device of its own, and fires even when
// the processors stand still.
func (h *Host) starve() {
	if h.timings.Watchdog == 0 || !h.booted || h.watchdog != nil || h.disarmed {
		return
	}
	h.bite(h.timings.Watchdog)
}

// arm starts the watchdog's timeout at the start of a boot whose agent feeds it.
func (h *Host) arm() {
	if h.feeder != "" {
		h.fed = h.w.Now()
		h.starve()
	}
}

// Resets is the verb of a watchdog's step: it resets its host.
const Resets = "reset"

// bite resets the host after a time, unless an agent has fed the watchdog meanwhile.
func (h *Host) bite(after time.Duration) {
	h.watchdog = h.w.After(after, Watchdog, Resets, func() {
		h.watchdog = nil
		if h.timings.Softdog && h.stands() { // it fires before anything else goes on
			h.stalled = slices.Insert(h.stalled, 0, h.fire)
			return
		}
		h.fire()
	})
}

// fire resets the host if the watchdog was not fed meanwhile, and otherwise waits again.
func (h *Host) fire() {
	by := byScenario
	if h.feeder != "" && !h.unfed {
		if rest := h.fed + h.timings.Watchdog - h.w.Now(); rest > 0 {
			h.bite(rest)
			return
		}
		if !h.halted {
			by = h.feeder
		}
	}
	h.w.Emit(history.Event{Kind: history.WatchdogFired, Host: h.name, Boot: h.boot, Actor: by})
	// The watchdog ends the boot before the supply has drained, and the power-off still follows.
	if h.draining {
		h.w.Cancel(h.transition)
		h.down()
		return
	}
	h.restart(by, "reset by its watchdog")
}

// Workload is a process of an exclusive workload, named after its Pod.
type Workload struct{ Name, Pod string }

// Workloads returns the running processes, in the order in which they started.
func (h *Host) Workloads() []Workload { return slices.Clone(h.workloads) }

// StartWorkload begins a process in the boot that runs.
func (h *Host) StartWorkload(p Workload) {
	h.workloads = append(h.workloads, p)
	h.w.Emit(history.Event{Kind: history.WorkloadStarted, Host: h.name, Boot: h.boot, Object: p.Name, UID: p.Pod})
}

// StopWorkload ends a process, if it runs.
func (h *Host) StopWorkload(p Workload) {
	if i := slices.Index(h.workloads, p); i >= 0 {
		h.workloads = slices.Delete(h.workloads, i, i+1)
		h.w.Emit(history.Event{Kind: history.WorkloadStopped, Host: h.name, Boot: h.boot, Object: p.Name, UID: p.Pod})
	}
}
