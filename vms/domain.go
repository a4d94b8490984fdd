//go:build cgo && libvirt_dlopen

package vms

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/fencelab/fencelab/vms/guest/evidence"
	"github.com/fencelab/fencelab/vms/network"
)

const (
	// tickInterval is how often silence is looked for.
	tickInterval = 100 * time.Millisecond
	// portEndTimeout bounds the wait for the end of a dead QEMU's connection, which the kernel
	// closes with the process; see Options.Within.
	portEndTimeout = 5 * time.Second
	// firmwareReset is less than a kernel needs from a reset to one of its own.
	firmwareReset = time.Second
	// settleInterval is how often it is looked whether an event has been recorded.
	settleInterval = 5 * time.Millisecond
	// actTimeout bounds the wait for the hypervisor's event about what was just done; see
	// Options.Within.
	actTimeout = 20 * time.Second
)

// Domain is one host. Its methods may be called from any goroutine; those that change the power
// return when the event that proves the change has been recorded, but for [Domain.Shutdown], which
// only asks the guest.
//
// It has many fields because it follows a machine through libvirt, its serial port and its console
// at a time.
type Domain struct {
	lab      *Lab
	name     string
	spec     spec
	libvirt  *libvirt.Domain
	listener net.Listener
	shares   net.Listener // of its storage; nil without one
	inputs   *queue[input]
	done     chan struct{} // closed when run returns

	power      sync.Mutex  // one change of power at a time
	restarting atomic.Bool // the next reset is ours

	// Guarded by lab.mu.
	tracker  *tracker
	waiters  []*waiter
	port     net.Conn      // nil while no QEMU runs
	starting bool          // On is at it
	changed  time.Duration // when its power did, by the lab's clock

	// Only run's goroutine uses these.
	stop        *input          // the hypervisor said that QEMU is gone, and lines may still be unread
	portEnds    context.Context // ends when they have been waited for long enough
	portEnded   context.CancelFunc
	after       []input   // what the hypervisor has said since then: somebody else may switch it on at once
	consoleMark int64     // the console's length when the boot began
	resetSeen   time.Time // time of the last reported reset that was not the firmware's
	fired       bool      // its watchdog, a device: the next reset is due to that
}

// fired is an input, and no event: the reset that it leads to is one.
const fired Kind = "watchdog-fired"

// input holds an event of the hypervisor, or one of the port, for a domain's goroutine.
type input struct {
	kind      Kind
	detail    string
	connected net.Conn
	line      []byte
	ended     bool // the port's connection
}

type waiter struct {
	match func(Event) bool
	seen  chan struct{}
}

func newDomain(l *Lab, name string, s spec, listener net.Listener) (*Domain, error) {
	text, err := domainXML(s)
	if err != nil {
		return nil, err
	}
	d := &Domain{
		lab: l, name: name, spec: s, listener: listener, inputs: newQueue[input](), done: make(chan struct{}),
		tracker: newTracker(name, l.options.Silence, l.options.BootSilence),
	}
	if d.libvirt, err = l.hypervisor.conn.DomainDefineXML(text); err != nil {
		return nil, fmt.Errorf("define host %s: %w", name, err)
	}
	l.hypervisor.mu.Lock()
	l.hypervisor.domains[s.uuid] = d
	l.hypervisor.mu.Unlock()
	go d.listen()
	go d.run()
	return d, nil
}

// Name is HostConfig.Name.
func (d *Domain) Name() string { return d.name }

// DefinedName is the domain's name in libvirt, where it has to be unique.
func (d *Domain) DefinedName() string { return d.spec.name }

// UUID is the machine's UUID, as its firmware and libvirt have it.
func (d *Domain) UUID() string { return d.spec.uuid }

// Console is the path of the serial console's log, from all boots.
func (d *Domain) Console() string { return d.spec.console }

// State is the host's power state as of the events recorded so far: it says Off only after
// PoweredOff was recorded, so that whoever acts upon it acts later in the history, too.
func (d *Domain) State() State {
	d.lab.mu.Lock()
	defer d.lab.mu.Unlock()
	if d.starting && d.tracker.state == StateOff {
		return StatePoweringOn
	}
	return d.tracker.state
}

func (d *Domain) setStarting(is bool) {
	d.lab.mu.Lock()
	defer d.lab.mu.Unlock()
	d.starting = is
}

// On switches the host on; a host that isn't off stays as it is.
func (d *Domain) On(ctx context.Context) error {
	d.power.Lock()
	defer d.power.Unlock()
	if d.State() != StateOff {
		return nil
	}
	d.setStarting(true)
	defer d.setStarting(false)
	return d.act(ctx, "switch on", isKind(PoweredOn), func() error {
		return d.libvirt.Create()
	})
}

// ForceOff cuts the host's power.
func (d *Domain) ForceOff(ctx context.Context) error {
	d.power.Lock()
	defer d.power.Unlock()
	if d.State() == StateOff {
		return nil
	}
	return d.act(ctx, "force off", isKind(PoweredOff), func() error {
		// The guest may have switched itself off meanwhile.
		if err := d.libvirt.Destroy(); !errors.Is(err, libvirt.ERR_OPERATION_INVALID) {
			return err
		}
		return nil
	})
}

// Shutdown presses the ACPI power button. The guest decides what comes of it: nothing, while it
// boots or after [evidence.IgnoreShutdown]. A host that is off, or whose process ends at this very
// moment, has nothing to shut down.
func (d *Domain) Shutdown() error {
	err := d.libvirt.ShutdownFlags(libvirt.DOMAIN_SHUTDOWN_ACPI_POWER_BTN)
	gone := errors.Is(err, libvirt.ERR_OPERATION_INVALID) || errors.Is(err, libvirt.ERR_SYSTEM_ERROR)
	if err != nil && !gone {
		return fmt.Errorf("shut down host %s: %w", d.name, err)
	}
	return nil
}

// ErrNotRunning says that an operation came too late for the host's boot, which its guest may have
// ended at this very moment.
var ErrNotRunning = errors.New("it is not running")

// running turns libvirt's error for a domain that isn't running into ErrNotRunning, and returns
// other errors as they are.
func running(err error) error {
	if errors.Is(err, libvirt.ERR_OPERATION_INVALID) {
		return ErrNotRunning
	}
	return err
}

// Restart resets the host; it fails with ErrNotRunning if the host is off. One that is paused
// executes again, as a reset lets any hung machine do.
func (d *Domain) Restart(ctx context.Context) error {
	d.power.Lock()
	defer d.power.Unlock()
	d.restarting.Store(true)
	defer d.restarting.Store(false)
	err := d.act(ctx, "reset", isKind(Reset), func() error { return running(d.libvirt.Reset(0)) })
	if err != nil || d.State() != StatePaused {
		return err
	}
	return d.Resume(ctx)
}

// Restarting announces that another program is about to reset the host on request, and returns a
// function to call when it is done.
func (d *Domain) Restarting() (done func()) {
	d.restarting.Store(true)
	return func() { d.restarting.Store(false) }
}

// Settle waits until the hypervisor's state of the host's power is recorded, and old enough that
// its consequences can't be taken for something earlier. Call it for a client whose change of the
// power another program has answered.
func (d *Domain) Settle(ctx context.Context, old time.Duration) error {
	ctx, cancel := d.lab.options.Within(ctx, actTimeout)
	defer cancel()
	for {
		active, err := d.libvirt.IsActive()
		if err != nil {
			return fmt.Errorf("ask for the power of host %s: %w", d.name, err)
		}
		state := d.State()
		if recorded := active == (state != StateOff && state != StatePoweringOn); recorded && d.unchangedFor() >= old {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("await the power of host %s: no event has told: %w", d.name, context.Cause(ctx))
		case <-time.After(settleInterval):
		}
	}
}

// unchangedFor returns the time since the host's power changed.
func (d *Domain) unchangedFor() time.Duration {
	d.lab.mu.Lock()
	defer d.lab.mu.Unlock()
	return d.lab.Now() - d.changed
}

// Reboot presses the ACPI power button, as [Domain.Shutdown] does, and a guest that then switches
// itself off is reset instead. It fails with ErrNotRunning if the host is off.
func (d *Domain) Reboot() error {
	if err := running(d.libvirt.Reboot(libvirt.DOMAIN_REBOOT_ACPI_POWER_BTN)); err != nil {
		return fmt.Errorf("reboot host %s: %w", d.name, err)
	}
	return nil
}

// Interrupt injects a non-maskable interrupt, of which our kernel takes no notice but a line on the
// console. It fails with ErrNotRunning if the host is off.
func (d *Domain) Interrupt() error {
	if err := running(d.libvirt.InjectNMI(0)); err != nil {
		return fmt.Errorf("interrupt host %s: %w", d.name, err)
	}
	return nil
}

// Pause stops the execution of the host, which looks like a kernel that hangs.
func (d *Domain) Pause(ctx context.Context) error {
	return d.act(ctx, "pause", isKind(Paused), d.libvirt.Suspend)
}

// Resume ends Pause.
func (d *Domain) Resume(ctx context.Context) error {
	return d.act(ctx, "resume", isKind(Resumed), d.libvirt.Resume)
}

// Links are both directions between the host and everything else of the network.
func (d *Domain) Links() []network.Link { return network.All(network.Host(d.name)) }

// Tell sends a command to the guest's PID 1 and returns when that has accepted it. Its effect ends
// with the boot.
func (d *Domain) Tell(ctx context.Context, c evidence.Command) error {
	accepted := func(e Event) bool { return e.Kind == Kind(evidence.Accepted) && e.Detail == string(c) && !e.Late }
	return d.act(ctx, "tell "+string(c)+" to", accepted, func() error {
		d.lab.mu.Lock()
		port := d.port
		d.lab.mu.Unlock()
		if port == nil {
			return errors.New("it is off")
		}
		_, err := fmt.Fprintln(port, c)
		return err
	})
}

func isKind(k Kind) func(Event) bool { return func(e Event) bool { return e.Kind == k } }

// act does something to the host and waits until an event proves it.
func (d *Domain) act(ctx context.Context, what string, proof func(Event) bool, do func() error) error {
	w := &waiter{match: proof, seen: make(chan struct{})}
	d.lab.mu.Lock()
	d.waiters = append(d.waiters, w)
	d.lab.mu.Unlock()
	defer d.forget(w)
	if err := do(); err != nil {
		return fmt.Errorf("%s host %s: %w", what, d.name, err)
	}
	ctx, cancel := d.lab.options.Within(ctx, actTimeout)
	defer cancel()
	select {
	case <-w.seen:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s host %s: no event proves it: %w", what, d.name, context.Cause(ctx))
	}
}

func (d *Domain) forget(w *waiter) {
	d.lab.mu.Lock()
	defer d.lab.mu.Unlock()
	for i := range d.waiters {
		if d.waiters[i] == w {
			d.waiters = append(d.waiters[:i], d.waiters[i+1:]...)
			return
		}
	}
}

// notify is called with lab.mu held.
func (d *Domain) notify(e Event) {
	if e.Kind == PoweredOn || e.Kind == PoweredOff {
		d.changed = e.At
	}
	for _, w := range d.waiters {
		select {
		case <-w.seen:
		default:
			if w.match(e) {
				close(w.seen)
			}
		}
	}
}

// listen takes the connection of each QEMU process of this domain and reads it to its end.
func (d *Domain) listen() {
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return // closed by remove
		}
		d.inputs.put(input{connected: conn})
		lines := bufio.NewReader(conn)
		for err == nil {
			var line []byte
			// What has no end of line at the connection's end was cut short by the power.
			if line, err = lines.ReadBytes('\n'); err == nil {
				d.inputs.put(input{line: line})
			}
		}
		d.inputs.put(input{ended: true})
		conn.Close()
	}
}

// run makes events of the inputs, in their order.
func (d *Domain) run() {
	defer close(d.done)
	ticks := time.NewTicker(tickInterval)
	defer ticks.Stop()
	for {
		select {
		case <-d.inputs.wake:
			items, closed := d.inputs.take()
			for _, in := range items {
				d.handle(in)
			}
			if closed {
				return
			}
		case <-ticks.C:
			if d.stop != nil && d.portEnds.Err() != nil {
				d.lab.record(func(at time.Duration) []Event { return d.tracker.garbage(at, "(the port outlives its QEMU)") })
				d.finishStop()
			}
			d.lab.record(d.tracker.tick)
		}
	}
}

func (d *Domain) handle(in input) {
	switch {
	case in.connected != nil:
		d.setPort(in.connected)
	case in.ended:
		d.setPort(nil)
		if d.stop != nil {
			d.finishStop()
		}
	case in.line != nil:
		d.lab.record(func(at time.Duration) []Event {
			var l evidence.Line
			if err := json.Unmarshal(in.line, &l); err != nil {
				return d.tracker.garbage(at, string(in.line))
			}
			return d.tracker.line(at, l, d.resetReason)
		})
	case d.stop != nil:
		d.after = append(d.after, in)
	case in.kind == fired:
		d.fired = true
	case in.kind == PoweredOff && d.port != nil:
		// What the guest wrote before its end comes first in the history.
		d.stop = &in
		d.portEnds, d.portEnded = d.lab.options.Within(context.Background(), portEndTimeout)
	default:
		if in.kind == Reset {
			// The firmware itself adds resets to every warm one, before anything could write to
			// the console: it tries one way after the other until one works, six of them on a busy
			// machine. Or all are reported late, one right after the other.
			if in.detail = d.resetReason(); in.detail == resetGuest && (d.consoleLength() == d.consoleMark || time.Since(d.resetSeen) < firmwareReset) {
				return
			}
			d.resetSeen = time.Now()
		}
		if in.kind == PoweredOn || in.kind == Reset {
			d.fired = false
			d.consoleMark = d.consoleLength()
		}
		if in.kind == PoweredOn {
			d.lab.hypervisor.adopt(d.spec.name)
		}
		d.lab.record(func(at time.Duration) []Event { return d.tracker.hypervisor(at, in.kind, in.detail) })
	}
}

func (d *Domain) finishStop() {
	in := *d.stop
	d.stop = nil
	d.portEnded()
	d.lab.record(func(at time.Duration) []Event { return d.tracker.hypervisor(at, in.kind, in.detail) })
	after := d.after
	d.after = nil
	for _, in := range after {
		d.handle(in)
	}
}

// setPort is called by run's goroutine only, which may therefore read port without the lock.
func (d *Domain) setPort(conn net.Conn) {
	d.lab.mu.Lock()
	d.port = conn
	d.lab.mu.Unlock()
}

func (d *Domain) consoleLength() int64 {
	info, err := os.Stat(d.spec.console)
	if err != nil {
		return 0
	}
	return info.Size()
}

// resetReason finds out who reset the machine. QEMU has written the console by the time that it
// reports the reset.
func (d *Domain) resetReason() string {
	if d.restarting.CompareAndSwap(true, false) { // those that follow at once are the firmware's
		return resetRequested
	}
	if d.fired {
		return ResetWatchdog
	}
	console, err := os.ReadFile(d.spec.console)
	if err != nil || int64(len(console)) < d.consoleMark {
		return resetGuest
	}
	switch said := string(console[d.consoleMark:]); {
	case strings.Contains(said, "softdog: Initiating system reboot"):
		return ResetWatchdog
	case strings.Contains(said, "sysrq: Resetting"):
		return ResetSysrq
	}
	return resetGuest
}

// remove switches the host off and removes it from the hypervisor.
func (d *Domain) remove() error {
	errs := []error{d.ForceOff(context.Background())}
	if err := d.libvirt.Undefine(); err != nil {
		errs = append(errs, fmt.Errorf("undefine host %s: %w", d.name, err))
	}
	h := d.lab.hypervisor
	h.mu.Lock()
	delete(h.domains, d.spec.uuid)
	h.mu.Unlock()
	errs = append(errs, d.listener.Close())
	if d.shares != nil {
		errs = append(errs, d.shares.Close())
	}
	d.inputs.close()
	<-d.done
	return errors.Join(errs...)
}
