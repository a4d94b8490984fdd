// Package model is the model of a host: its power, the boot that runs on it, its guest and
// its watchdog. It has neither a time nor a thread of its own: the simulator gives it those of
// the simulated world, and the lab those of this machine. It is one model, so that a story
// means the same in both.
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

// World is what a host is in. It calls a host from one place at a time, and does what the
// host asks for later without calling it back at once.
type World interface {
	// Now is the time.
	Now() time.Duration
	// After has the host do something later. The verb says what.
	After(d time.Duration, class Class, verb string, do func()) Timer
	// Cancel takes back what has not been done; a nil Timer is fine.
	Cancel(Timer)
	// Emit records an event of the present moment.
	Emit(history.Event)
}

// Timer is what World.After returns, and World.Cancel knows.
type Timer any

// Class is a kind of what a host does later.
type Class string

// The classes.
const (
	Power    Class = "power"    // its power changes
	Boot     Class = "boot"     // it reaches the next stage of its boot
	Watchdog Class = "watchdog" // its watchdog fires
)

// Software is what runs in the boots of a host. It is told, and calls nothing back at once but
// StartWorkload and StopWorkload.
type Software interface {
	// Begins is the start of a boot.
	Begins()
	// Start is the boot's being complete: the kubelet and what else there is start.
	Start()
	// ShutDown has it end what it runs, as the operating system is about to stop.
	ShutDown()
	// Kill is the end of the boot: every process is gone.
	Kill()
	// Halts says that the processors are about to stand still, or to go on.
	Halts()
}

// Host is a machine. It is the only one that says what physically happened to it. It
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
	// boot is the incarnation that runs, or "" when nothing does.
	boot string
	// booted says that the boot is complete: its kubelet process has started.
	booted bool
	// workloads are the processes of exclusive workloads that run, in the order
	// in which they started.
	workloads []Workload
	// ignoresShutdown, paused, hung and panicked are the scenario's doing, and end with the boot.
	ignoresShutdown, paused, hung, panicked bool
	// guest is what a rule of a BMC makes of every boot while it is in force.
	guest fakebmc.Guest
	// halted says that the processors of this boot stand still.
	halted bool

	// transition is the power change or boot stage that is under way. Off power,
	// it is the second half of a power cycle.
	transition Timer
	// down is what the boot's last process leads to, while the boot is going down:
	// power off, or the next boot.
	down func()
	// draining says that the power is taken away: down is only a matter of time.
	draining bool
	// watchdog will reset the host; unfed says that it does so whatever comes.
	watchdog Timer
	unfed    bool
	// feeder is who feeds the watchdog, last at fed. Without one the operating system does.
	feeder string
	fed    time.Duration
	// stalled is what the paused guest will do as soon as it goes on.
	stalled  []func()
	watchers []func(fakebmc.PowerState)
	// told is the state that the watchers know.
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

// byScenario is the actor of what the scenario itself does to a host: a watchdog that
// no agent feeds bites only because the scenario stopped feeding it.
const byScenario = string(history.Engine)

const (
	// firmwareTenths is the share of a boot that passes before the kernel starts.
	firmwareTenths = 4
	// cycleInterval is how long a power cycle leaves the host off: IPMI asks for
	// a second at least.
	cycleInterval = time.Second
)

// Boot is the incarnation that runs, or "".
func (h *Host) Boot() string { return h.boot }

// Booted reports whether the boot is complete, Halted whether its processors stand still.
func (h *Host) Booted() bool { return h.booted }
func (h *Host) Halted() bool { return h.halted }

// WatchdogTime is how long the watchdog waits; 0 where there is none.
func (h *Host) WatchdogTime() time.Duration { return h.timings.Watchdog }

// Identify writes what state the host is in: no time, and nothing that counts.
func (h *Host) Identify(to io.Writer) {
	fmt.Fprintf(to, "host %s %t %s %t %t %t %t %t %t %t %v\n", h.name, h.on, h.boot, h.booted, h.down != nil, h.draining,
		h.watchdog != nil, h.unfed, h.ignoresShutdown, h.halted, h.guest)
	for _, w := range h.workloads {
		fmt.Fprintf(to, "workload %s\n", w.Name)
	}
}

// PowerState is the physical state. A host that is going down is on until its
// last process is gone.
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

// Watch tells every edge of the power state.
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

// Reset begins a power command of nobody in particular.
func (h *Host) Reset(t fakebmc.ResetType) error { return h.ResetFor("", t) }

// ResetFor begins a power command of a client. Whatever it leads to happens in
// the client's name.
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

// whileOn begins a reset that only a host that is on can have.
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
		// The kernel logs an interrupt that nothing accounts for, and goes on:
		// Linux panics only where it was told to, and the lab's guests were not.
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

// Wake is a host whose boot is complete at once: the story begins when it runs.
func (h *Host) Wake(by string) {
	h.PowerOn(by)
	h.w.Cancel(h.transition)
	h.complete()
}

// forceOff takes the power away, or keeps it away. The last process is gone when
// the supply has drained, which begins once however often it is asked for.
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

// shutDown asks the operating system to stop. One that isn't up yet, hangs, or
// ignores the request goes on running; so nothing is under way then.
func (h *Host) shutDown(then func()) {
	if !h.booted || h.halted || h.ignoresShutdown || h.guest.Ignore || h.down != nil {
		return
	}
	h.down = then
	h.tell()
	h.software.ShutDown()
	takes := cmp.Or(time.Duration(h.guest.Slow), h.timings.SoftOff)
	h.transition = h.w.After(takes, Power, "shut down", func() {
		h.UnlessHalted(func() { h.down() }) // as it is by then: a forced power-off overtakes what was asked of the guest
	})
}

const shutDownByGuest = "shut down by its operating system"

// LosePower is the edge to off at once: nothing drains, and nobody is asked.
func (h *Host) LosePower(by string) {
	h.w.Cancel(h.transition)
	if h.on {
		h.powerOff(by, "lost its power")
	}
}

// LoseAC is what a rule makes of the host's mains.
func (h *Host) LoseAC() error {
	h.LosePower(fakebmc.ClientBMC)
	return nil
}

// restart ends the boot and begins another without a power edge.
func (h *Host) restart(by, why string) {
	h.end(by, why)
	h.begin("", "")
}

// Reboot has the operating system of a host that is up reboot at once.
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

// kernel is the rest of it.
func (h *Host) kernel() { h.stage(h.timings.Boot-h.timings.Boot*firmwareTenths/10, (*Host).complete) }

// stage is a part of a boot. One whose power goes does not go on.
func (h *Host) stage(takes time.Duration, then func(*Host)) {
	if h.down != nil {
		return
	}
	h.transition = h.w.After(takes, Boot, "boot", func() {
		h.UnlessHalted(func() { then(h) })
	})
}

// UnlessHalted does what the guest does next, or keeps it until it is resumed.
func (h *Host) UnlessHalted(do func()) {
	if h.halted {
		h.stalled = append(h.stalled, do)
		return
	}
	do()
}

// complete is the start of the kubelet process.
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

// end stops every process of the boot, and what was under way in it.
func (h *Host) end(by, why string) {
	h.w.Cancel(h.transition)
	h.w.Cancel(h.watchdog)
	h.transition, h.watchdog, h.unfed, h.down, h.draining = nil, nil, false, nil, false
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

// stands reports whether the kernel makes no progress, either.
func (h *Host) stands() bool { return h.paused || h.panicked || h.guest.Paused }

// SetGuest changes how this boot behaves, and all others until it is set anew. A
// shutdown that is under way takes what it would have taken.
func (h *Host) SetGuest(g fakebmc.Guest) error {
	h.guest = g
	h.halt()
	return nil
}

// halt stops the processors or lets them go on, as the scenario and the rules
// want it by now: what the guest would do meanwhile waits.
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

// IgnoreShutdown has the operating system of this boot ignore that it is asked to stop.
func (h *Host) IgnoreShutdown(ignore bool) { h.ignoresShutdown = ignore }

// StopFeeding leaves the watchdog alone, which then resets the host.
func (h *Host) StopFeeding() {
	if h.booted {
		h.unfed = true
		h.starve()
	}
}

// FedBy names who feeds the watchdog in the place of the operating system, from now on.
func (h *Host) FedBy(feeder string) {
	h.feeder = feeder
	h.arm()
}

// Feed lets the watchdog wait for its whole time again.
func (h *Host) Feed() { h.fed = h.w.Now() }

// starve lets the watchdog's time run: it is a device of its own, and bites also
// when the processors stand still.
func (h *Host) starve() {
	if h.timings.Watchdog == 0 || !h.booted || h.watchdog != nil {
		return
	}
	h.bite(h.timings.Watchdog)
}

// arm lets the watchdog's time run from the start of a boot whose agent is to feed it.
func (h *Host) arm() {
	if h.feeder != "" {
		h.fed = h.w.Now()
		h.starve()
	}
}

// Resets is what a watchdog does to its host.
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

// fire is the end of the watchdog's time, unless it was fed meanwhile.
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
	if h.draining { // it ends the boot, however long the supply goes on, and takes no power-off back
		h.w.Cancel(h.transition)
		h.down()
		return
	}
	h.restart(by, "reset by its watchdog")
}

// Workload is a process of an exclusive workload, named after its Pod.
type Workload struct{ Name, Pod string }

// Workloads are the processes that run, in the order in which they started.
func (h *Host) Workloads() []Workload { return slices.Clone(h.workloads) }

// StartWorkload begins a process in the boot that runs.
func (h *Host) StartWorkload(p Workload) {
	h.workloads = append(h.workloads, p)
	h.w.Emit(history.Event{Kind: history.WorkloadStarted, Host: h.name, Boot: h.boot, Object: p.Name, UID: p.Pod})
}

// StopWorkload ends it, if it runs.
func (h *Host) StopWorkload(p Workload) {
	if i := slices.Index(h.workloads, p); i >= 0 {
		h.workloads = slices.Delete(h.workloads, i, i+1)
		h.w.Emit(history.Event{Kind: history.WorkloadStopped, Host: h.name, Boot: h.boot, Object: p.Name, UID: p.Pod})
	}
}
