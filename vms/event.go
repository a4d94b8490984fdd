package vms

import (
	"fmt"
	"time"

	"github.com/fencelab/fencelab/vms/guest/evidence"
	"github.com/fencelab/fencelab/vms/network"
)

// Observer says who vouches for an [Event].
type Observer string

// The observers. None of them is inside the guest's network or behind its BMC.
const (
	// Hypervisor: libvirt's events about the QEMU process. It alone knows about power, see
	// [PoweredOff] and [Reset], but that a guest which speaks is not off.
	Hypervisor Observer = "hypervisor"
	// Guest: a process in the guest wrote a line to the evidence port. It alone knows which
	// processes run, and only while it is heard: after [EvidenceLost] nothing is known of them but
	// what the hypervisor says.
	Guest Observer = "guest"
	// Listener: our own end of the port, about the guest's silence; and our own acts on the
	// network.
	Listener Observer = "listener"
)

// Kind says what an [Event] reports. Events of the observer Guest have the kinds of package
// evidence.
type Kind string

// What the hypervisor reports.
const (
	// PoweredOn: the machine executes its firmware. The hypervisor's word of that can come after
	// the guest's first; then the guest is the observer.
	PoweredOn Kind = "powered-on"
	// PoweredOff: the QEMU process is gone, and all that the guest wrote before was read. It ends
	// the boot and every process in it. Detail is libvirt's reason: shutdown (the guest powered
	// itself off), destroyed, crashed or failed.
	PoweredOff Kind = "powered-off"
	// Reset: the machine was reset. It ends the boot and every process in it; the machine executes
	// its firmware again. The hypervisor's word of that can come seconds after the next boot's
	// first; then the guest is the observer. Detail is requested ([Domain.Restart]), watchdog (the
	// console shows that softdog fired, or the device said so), sysrq (or that a program had the
	// kernel reboot at once) or guest (a panic or reboot).
	Reset Kind = "reset"
	// Paused: no instruction is executed; the boot and its processes go on existing.
	Paused Kind = "paused"
	// Halted: the guest said that it ends all that it does, for the rest of the boot; Detail is
	// hang or panic. The kernel may go on, and processes still exist.
	Halted Kind = "halted"
	// Resumed ends Paused.
	Resumed Kind = "resumed"
)

// What the listener reports.
const (
	// EvidenceLost: the machine executes, but was silent for longer than [Options.Silence], or
	// lines are missing.
	EvidenceLost Kind = "evidence-lost"
	// EvidenceRegained: a lost guest is heard again, or the hypervisor has ended its boot.
	EvidenceRegained Kind = "evidence-regained"
	// LinkDown and LinkUp: a link of the network was cut or restored, by [Lab.Cut] and
	// [Lab.Restore].
	LinkDown Kind = "link-down"
	LinkUp   Kind = "link-up"
	// LinkPoor: a link of the network became poor, by [Lab.Impair]; Detail says how.
	LinkPoor Kind = "link-poor"
)

// Event is one physical fact about a host.
type Event struct {
	// At is when the fact was known here, by the monotonic clock, since the Lab was opened. For a
	// fact that the guest or the hypervisor reports it is an upper bound of when it happened, some
	// milliseconds late. Events are handed over in this order.
	At       time.Duration
	Host     string // HostConfig.Name
	Observer Observer
	Kind     Kind
	Boot     string // the boot incarnation that it belongs to, if known; for PoweredOff and Reset the one that ended
	Process  string // the workload's name; empty for init, the kubelet, and the host itself
	Seq      uint64 // of a heartbeat
	Detail   string
	Link     network.Link  // that was cut or restored; Host is one of its ends
	Uptime   time.Duration // of the guest by its own clock, in its own lines
	// Late: the line is from a boot that has ended: it was on its way. It is no sign of life.
	Late bool
}

// String is for logs.
func (e Event) String() string {
	if e.Link != (network.Link{}) {
		return fmt.Sprintf("%9.3fs %s %s %s", e.At.Seconds(), e.Observer, e.Kind, e.Link)
	}
	return fmt.Sprintf("%9.3fs %s %s %s process=%q seq=%d boot=%.8s late=%t %s", e.At.Seconds(), e.Host, e.Observer, e.Kind, e.Process, e.Seq, e.Boot, e.Late, e.Detail)
}

// The details of a [Reset].
const (
	resetRequested = "requested"
	resetGuest     = "guest"
	// ResetWatchdog: the console shows that softdog fired, or the hypervisor that the device did.
	ResetWatchdog = "watchdog"
	// ResetSysrq: the console shows that a program in the guest had the kernel reboot at once.
	ResetSysrq = "sysrq"
)

// State is a host's power state, spelled as Redfish does.
type State string

// The states. A guest that shuts down is On until it is off. A machine that is being started is
// PoweringOn, since who takes it for Off would act after it runs.
const (
	StateOn         State = "On"
	StateOff        State = "Off"
	StatePoweringOn State = "PoweringOn"
	StatePaused     State = "Paused"
)

// tracker turns what was observed about one host into events. It is pure: its caller owns the
// clock.
type tracker struct {
	host        string
	silence     time.Duration // allowed once a boot was heard
	bootSilence time.Duration // allowed from the start of the machine to its first line

	state State
	early bool // the guest was heard before the hypervisor reported the start, which is to come
	// the guest's next boot was heard before the hypervisor reported the reset, which is to come
	reset bool
	boot  string            // empty until the current boot was heard
	ended map[string]bool   // boots
	seq   map[string]uint64 // last heartbeat by process
	heard time.Duration     // last sign of life, or the start of the wait for it
	lost  bool
	// halted is when the guest has halted; 0: it hasn't.
	halted time.Duration
}

func newTracker(host string, silence, bootSilence time.Duration) *tracker {
	return &tracker{host: host, silence: silence, bootSilence: bootSilence, state: StateOff, ended: map[string]bool{}}
}

func (t *tracker) event(at time.Duration, by Observer, kind Kind, detail string) Event {
	return Event{At: at, Host: t.host, Observer: by, Kind: kind, Boot: t.boot, Detail: detail}
}

// hypervisor observes a change of the machine. libvirt also reports changes that are none, such as
// a resumption as part of the start.
func (t *tracker) hypervisor(at time.Duration, kind Kind, detail string) []Event {
	if kind == Resumed && t.state != StatePaused || kind == Paused && t.state != StateOn {
		return nil
	}
	early := t.early
	told := t.reset
	t.early, t.reset = false, t.reset && (kind == Paused || kind == Resumed)
	if early && kind == PoweredOn || told && kind == Reset {
		return nil // that is known
	}
	events := []Event{t.event(at, Hypervisor, kind, detail)}
	t.heard = at
	switch kind {
	case PoweredOn, Resumed:
		t.state = StateOn
	case Paused:
		t.state = StatePaused
	case PoweredOff:
		t.state = StateOff
		return append(events, t.end(at)...)
	case Reset:
		return append(events, t.end(at)...)
	}
	return events
}

// end forgets the boot: the hypervisor's word settles what the lost evidence left open.
func (t *tracker) end(at time.Duration) []Event {
	var events []Event
	if t.lost {
		t.lost = false
		events = append(events, t.event(at, Listener, EvidenceRegained, "the boot has ended"))
	}
	if t.boot != "" {
		t.ended[t.boot] = true
	}
	t.boot, t.seq, t.halted = "", nil, 0
	return events
}

// line observes what the guest wrote. The reason of a reset is asked for when the line is the first
// that is known of one: a machine runs one kernel, so that another boot's word proves the end of
// the one before.
func (t *tracker) line(at time.Duration, l evidence.Line, reason func() string) []Event {
	e := Event{At: at, Host: t.host, Observer: Guest, Kind: Kind(l.Kind), Boot: l.Boot, Process: l.Process, Seq: l.Seq, Detail: l.Detail, Uptime: l.Uptime}
	if t.ended[l.Boot] {
		e.Late = true
		return []Event{e}
	}
	var events []Event
	if t.state == StateOff {
		// libvirt reports a start when all of it is done, and the guest may have booted by then.
		events = append(events, t.event(at, Guest, PoweredOn, "its guest is heard"))
		t.state, t.early = StateOn, true
	}
	if t.boot != "" && t.boot != l.Boot {
		events = append(events, t.event(at, Guest, Reset, reason()))
		events = append(events, t.end(at)...)
		t.reset = true
	}
	if t.boot == "" {
		t.boot, t.seq = l.Boot, map[string]uint64{}
	}
	t.heard = at
	if l.Kind == evidence.WorkloadStarted {
		delete(t.seq, l.Process) // a new process of that name counts anew
	}
	if l.Kind == evidence.Heartbeat {
		if want := t.seq[l.Process] + 1; l.Seq != want {
			events = append(events, t.lose(at, fmt.Sprintf("heartbeat %d of process %q came where %d was due", l.Seq, l.Process, want))...)
		}
		t.seq[l.Process] = l.Seq
	}
	if t.lost {
		t.lost = false
		events = append(events, t.event(at, Listener, EvidenceRegained, ""))
	}
	if events = append(events, e); l.Kind == evidence.Accepted && (l.Detail == string(evidence.Hang) || l.Detail == string(evidence.Panic)) {
		t.halted = at
		return append(events, t.event(at, Guest, Halted, l.Detail))
	}
	if t.halted > 0 && at-t.halted > haltTime {
		events = append(events, t.lose(at, "heard, although it has halted")...)
	}
	return events
}

// haltTime limits how long a guest may still be heard after it has announced its halt.
const haltTime = time.Second

// garbage observes a line that can't be read.
func (t *tracker) garbage(at time.Duration, text string) []Event {
	return t.lose(at, fmt.Sprintf("unreadable line %.100q", text))
}

// tick observes that time passes.
func (t *tracker) tick(at time.Duration) []Event {
	bound := t.silence
	if t.boot == "" {
		bound = t.bootSilence
	}
	if t.state != StateOn || t.halted > 0 || at-t.heard <= bound {
		return nil
	}
	return t.lose(at, fmt.Sprintf("silent for more than %v", bound))
}

func (t *tracker) lose(at time.Duration, why string) []Event {
	if t.lost {
		return nil
	}
	t.lost = true
	return []Event{t.event(at, Listener, EvidenceLost, why)}
}
