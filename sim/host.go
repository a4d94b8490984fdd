package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios/history"
)

// host is a simulated machine: its power, the boot that runs on it, and what
// runs in that boot. It is the only one that says what physically happened.
// It implements fakebmc.System, and Watcher, Resetter, GuestSystem and Mains.
type host struct {
	w       *world
	actor   actor
	name    string
	at      string // its end of every link
	timings hostTimings
	kubelet *kubelet

	on    bool
	boots int
	// boot is the incarnation that runs, or "" when nothing does.
	boot string
	// booted says that the boot is complete: its kubelet process has started.
	booted bool
	// workloads are the processes of exclusive workloads that run, in the order
	// in which they started.
	workloads []workload
	// ignoresShutdown and paused are the scenario's doing, and end with the boot.
	ignoresShutdown, paused bool
	// guest is what a rule of a BMC makes of every boot while it is in force.
	guest fakebmc.Guest
	// halted says that the processors of this boot stand still.
	halted bool

	// transition is the power change or boot stage that is under way. Off power,
	// it is the second half of a power cycle.
	transition *step
	// down is what the boot's last process leads to, while the boot is going down:
	// power off, or the next boot.
	down func()
	// draining says that the power is taken away: down is only a matter of time.
	draining bool
	// watchdog will reset the host; unfed says that it does so whatever comes.
	watchdog *step
	unfed    bool
	// agents are the processes of controllers that run on every host, and feeder the one
	// of them that feeds the watchdog, last at fed. Without one the operating system does.
	agents []*process
	feeder *process
	fed    time.Duration
	// softdog says that the watchdog is the kernel's own, which stands still with it.
	softdog bool
	// clock is the one by which the host measures how long something takes, and kept what
	// its agents keep for as long as the boot lasts.
	clock drifting
	kept  map[string][]byte // by program
	// stalled is what the paused guest will do as soon as it goes on.
	stalled  []func()
	watchers []func(fakebmc.PowerState)
	// told is the state that the watchers know.
	told fakebmc.PowerState
}

type hostTimings struct {
	boot, softOff, hardOff, watchdog time.Duration
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

// PowerState is the physical state. A host that is going down is on until its
// last process is gone.
func (h *host) PowerState() (fakebmc.PowerState, error) {
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

// everyReset is every reset type there is.
var everyReset = []fakebmc.ResetType{
	fakebmc.ResetOn, fakebmc.ResetForceOff, fakebmc.ResetGracefulShutdown, fakebmc.ResetGracefulRestart,
	fakebmc.ResetForceRestart, fakebmc.ResetNmi, fakebmc.ResetPowerCycle, fakebmc.ResetPushPowerButton,
}

// Resets returns the reset types that Reset executes.
func (h *host) Resets() []fakebmc.ResetType { return everyReset }

// Reset begins a power command of nobody in particular.
func (h *host) Reset(t fakebmc.ResetType) error { return h.ResetFor("", t) }

// ResetFor begins a power command of a client. Whatever it leads to happens in
// the client's name.
func (h *host) ResetFor(by string, t fakebmc.ResetType) error {
	switch t {
	case fakebmc.ResetOn:
		if h.down != nil {
			return fmt.Errorf("power on %s, which is powering off: %w", h.name, fakebmc.ErrConflict)
		}
		h.powerOn(by)
	case fakebmc.ResetForceOff:
		h.forceOff(func() { h.powerOff(by, "forced off by its BMC") })
	case fakebmc.ResetGracefulShutdown:
		h.shutDown(func() { h.powerOff(by, shutDownByGuest) })
	case fakebmc.ResetPushPowerButton:
		if h.on {
			h.shutDown(func() { h.powerOff(by, shutDownByGuest) })
		} else {
			h.powerOn(by)
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
func (h *host) whileOn(by string, t fakebmc.ResetType) {
	switch t {
	case fakebmc.ResetGracefulRestart:
		h.shutDown(func() { h.restart(by, "restarted by its operating system") })
	case fakebmc.ResetForceRestart:
		h.restart(by, "restarted by its BMC")
	case fakebmc.ResetPowerCycle:
		h.forceOff(func() {
			h.powerOff(by, "power cycled by its BMC")
			h.transition = h.w.schedule(&h.actor, ClassPower, h.deed("power on"), cycleInterval, func(trouble) { h.powerOn(by) })
		})
	case fakebmc.ResetNmi:
		// The kernel logs an interrupt that nothing accounts for, and goes on:
		// Linux panics only where it was told to, and the lab's guests were not.
	}
}

// powerOn is the edge from off to on, if the host is off.
func (h *host) powerOn(by string) {
	if h.on {
		return
	}
	h.w.cancel(h.transition)
	h.on = true
	h.begin(history.PowerOn, by)
}

// forceOff takes the power away, or keeps it away. The last process is gone when
// the supply has drained, which begins once however often it is asked for.
func (h *host) forceOff(then func()) {
	if h.draining {
		h.down = then
		return
	}
	h.w.cancel(h.transition)
	if !h.on {
		return
	}
	h.down, h.draining = then, true
	h.transition = h.w.schedule(&h.actor, ClassPower, h.deed("force off"), h.timings.hardOff, func(trouble) { h.down() })
	h.tell()
}

// shutDown asks the operating system to stop. One that isn't up yet, hangs, or
// ignores the request goes on running; so nothing is under way then.
func (h *host) shutDown(then func()) {
	if !h.booted || h.halted || h.ignoresShutdown || h.guest.Ignore || h.down != nil {
		return
	}
	h.down = then
	h.tell()
	h.kubelet.shutDown()
	takes := cmp.Or(time.Duration(h.guest.Slow), h.timings.softOff)
	h.transition = h.w.schedule(&h.actor, ClassPower, h.deed("shut down"), takes, func(trouble) {
		h.unlessHalted(func() { h.down() }) // as it is by then: a forced power-off overtakes what was asked of the guest
	})
}

const shutDownByGuest = "shut down by its operating system"

// losePower is the edge to off at once: nothing drains, and nobody is asked.
func (h *host) losePower(by string) {
	h.w.cancel(h.transition)
	if h.on {
		h.powerOff(by, "lost its power")
	}
}

// LoseAC is what a rule makes of the host's mains.
func (h *host) LoseAC() error {
	h.losePower(fakebmc.ClientBMC)
	return nil
}

// restart ends the boot and begins another without a power edge.
func (h *host) restart(by, why string) {
	h.end(by, why)
	h.begin("", "")
}

// powerOff is the edge from on to off.
func (h *host) powerOff(by, why string) {
	boot := h.boot
	h.end(by, why)
	h.on = false
	h.w.emit(history.Event{Kind: history.PowerOff, Host: h.name, Boot: boot, Actor: by})
	h.tell()
}

// begin starts a boot incarnation, after a power edge of the given kind if any.
func (h *host) begin(edge history.Kind, by string) {
	h.boots++
	h.boot = fmt.Sprintf("%s#%d", h.name, h.boots)
	h.clock.start(h.w.now)
	if edge != "" {
		h.w.emit(history.Event{Kind: edge, Host: h.name, Boot: h.boot, Actor: by})
	}
	h.w.emit(history.Event{Kind: history.BootStarted, Host: h.name, Boot: h.boot})
	h.halt()
	h.tell()
	h.unlessHalted(h.firmware)
}

// firmware is the first stage of a boot, before the kernel starts.
func (h *host) firmware() { h.stage(h.timings.boot*firmwareTenths/10, (*host).kernel) }

// kernel is the rest of it.
func (h *host) kernel() { h.stage(h.timings.boot-h.timings.boot*firmwareTenths/10, (*host).complete) }

// stage is a part of a boot. One whose power goes does not go on.
func (h *host) stage(takes time.Duration, then func(*host)) {
	if h.down != nil {
		return
	}
	h.transition = h.w.schedule(&h.actor, ClassBoot, h.deed("boot"), takes, func(trouble) {
		h.unlessHalted(func() { then(h) })
	})
}

// unlessHalted does what the guest does next, or keeps it until it is resumed.
func (h *host) unlessHalted(do func()) {
	if h.halted {
		h.stalled = append(h.stalled, do)
		return
	}
	do()
}

// complete is the start of the kubelet process.
func (h *host) complete() {
	if h.down != nil {
		return
	}
	h.transition = nil
	h.booted = true
	h.w.emit(history.Event{Kind: history.BootComplete, Host: h.name, Boot: h.boot})
	h.kubelet.start()
	for _, agent := range h.agents {
		agent.restart(startLatency)
	}
	h.arm()
}

// end stops every process of the boot, and what was under way in it.
func (h *host) end(by, why string) {
	h.w.cancel(h.transition)
	h.w.cancel(h.watchdog)
	h.transition, h.watchdog, h.unfed, h.down, h.draining = nil, nil, false, nil, false
	h.kubelet.kill()
	for _, agent := range h.agents {
		agent.dieWithBoot()
	}
	h.booted, h.halted, h.paused, h.ignoresShutdown = false, false, false, false
	h.workloads, h.stalled, h.kept = h.workloads[:0], nil, nil
	h.w.emit(history.Event{Kind: history.BootEnded, Host: h.name, Boot: h.boot, Actor: by, Note: why})
	h.boot = ""
}

// pause stops the processors of this boot.
func (h *host) pause() {
	h.paused = h.on
	h.halt()
}

// resume ends pause.
func (h *host) resume() {
	h.paused = false
	h.halt()
}

// SetGuest changes how this boot behaves, and all others until it is set anew. A
// shutdown that is under way takes what it would have taken.
func (h *host) SetGuest(g fakebmc.Guest) error {
	h.guest = g
	h.halt()
	return nil
}

// halt stops the processors or lets them go on, as the scenario and the rules
// want it by now: what the guest would do meanwhile waits.
func (h *host) halt() {
	halted := h.on && (h.paused || h.guest.Paused)
	if halted == h.halted {
		return
	}
	h.kubelet.rouse()
	h.halted = halted
	kind := history.HostResumed
	if halted {
		kind = history.HostPaused
	}
	h.w.emit(history.Event{Kind: kind, Host: h.name, Boot: h.boot})
	h.tell()
	if halted {
		h.starve()
		return
	}
	if !h.unfed && h.feeder == nil {
		h.w.cancel(h.watchdog)
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

// stopFeeding leaves the watchdog alone, which then resets the host.
func (h *host) stopFeeding() {
	if h.booted {
		h.unfed = true
		if h.feeder != nil {
			h.feeder.end() // until the next boot
		}
		h.starve()
	}
}

// starve lets the watchdog's time run: it is a device of its own, and bites also
// when the processors stand still.
func (h *host) starve() {
	if h.timings.watchdog == 0 || !h.booted || h.watchdog != nil {
		return
	}
	h.bite(h.timings.watchdog)
}

// arm lets the watchdog's time run from the start of a boot whose agent is to feed it.
func (h *host) arm() {
	if h.feeder != nil {
		h.fed = h.w.now
		h.starve()
	}
}

// resets is what a watchdog does to its host.
const resets = "reset"

// bite resets the host after a time, unless an agent has fed the watchdog meanwhile.
func (h *host) bite(after time.Duration) {
	h.watchdog = h.w.schedule(&h.actor, ClassWatchdog, h.deed(resets), after, func(trouble) {
		h.watchdog = nil
		if h.softdog && h.halted { // it fires before anything else goes on
			h.stalled = slices.Insert(h.stalled, 0, h.fire)
			return
		}
		h.fire()
	})
}

// fire is the end of the watchdog's time, unless it was fed meanwhile.
func (h *host) fire() {
	by := byScenario
	if h.feeder != nil && !h.unfed {
		if rest := h.fed + h.timings.watchdog - h.w.now; rest > 0 {
			h.bite(rest)
			return
		}
		if !h.halted {
			by = h.feeder.actor.name
		}
	}
	h.w.emit(history.Event{Kind: history.WatchdogFired, Host: h.name, Boot: h.boot, Actor: by})
	h.restart(by, "reset by its watchdog")
}

// deed is what happens to the host.
func (h *host) deed(verb string) deed { return deed{verb: verb, on: Object{"Host", h.name}} }

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
