//go:build cgo && libvirt_dlopen

package hosts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	thismachine "github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/lab/record"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/page"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/vms"
	"github.com/fencelab/fencelab/vms/guest/evidence"
	"github.com/fencelab/fencelab/vms/network"
)

// virtualMachines are machines that are libvirt domains.
type virtualMachines struct {
	ctx    context.Context
	vms    *vms.Lab
	dir    string // of the consoles
	stream *record.Stream
	asked  asker
	assets string
	nodes  string // the disk of real nodes; empty: guests
	logf   func(format string, args ...any)
	names  []string
	offset time.Duration // of the times of the hypervisor's observer
	tasks  sync.WaitGroup
	// storage is that of real nodes; nil without one
	storage *sharing

	mu     sync.Mutex
	byName map[string]*virtual
}

// OpenVirtual opens the hypervisor. nodes is the disk of real nodes, if the hosts shall be such;
// consoles are left in dir; programmed is called with each event, for those of the programs in the
// guests.
func OpenVirtual(
	ctx context.Context, assets, nodes, dir string, s *record.Stream, asked asker, programmed func(vms.Event, time.Duration), logf func(string, ...any),
) (*virtualMachines, error) {
	l, err := vms.Open(ctx, vms.Options{Assets: assets, Evidence: dir, Within: thismachine.WithBudget})
	if err != nil {
		return nil, err
	}
	v := &virtualMachines{ctx: ctx, vms: l, dir: dir, stream: s, asked: asked, assets: assets, nodes: nodes, logf: logf, byName: make(map[string]*virtual)}
	v.offset = s.Since() - l.Now()
	v.tasks.Go(func() {
		for e := range l.Events() {
			v.mu.Lock()
			m := v.byName[e.Host]
			v.mu.Unlock()
			m.notice(e)
			v.storage.notice(e)
			for _, event := range worldEvents(e, m.blamed(e)) {
				event.At = v.offset + e.At
				s.Put(event)
			}
			programmed(e, v.offset+e.At)
		}
	})
	accelerator, why := l.Accelerator()
	logf("guests run under %s: %s", accelerator, why)
	return v, nil
}

// Add implements Machines.
func (v *virtualMachines) Add(host *scenarios.Host, peers []string, kubelet *evidence.Kubelet, programs []vms.Program) (Machine, error) {
	v.mu.Lock() // its events wait
	defer v.mu.Unlock()
	config := vms.HostConfig{
		Name: host.Name, Watchdog: time.Duration(host.Watchdog), Peers: peers, Kubelet: kubelet,
		Executable: filepath.Join(v.assets, "agent"), Programs: programs, Disk: v.nodes,
		WatchdogDevice: v.nodes != "" && !host.Softdog,
	}
	if v.storage != nil {
		config.Storage = v.storage.connect(host.Name)
	}
	domain, err := v.vms.NewDomain(config)
	if err != nil {
		return nil, err
	}
	m := &virtual{all: v, domain: domain}
	v.byName[host.Name], v.names = m, append(v.names, host.Name)
	return m, nil
}

// Reach, cut, restore and restoreAll implement Machines.
func (v *virtualMachines) Reach(endpoint string, targets ...network.Target) ([]netip.AddrPort, error) {
	return v.vms.Serve(endpoint, targets...)
}
func (v *virtualMachines) Cut(links ...network.Link) { v.vms.Cut(links...) }
func (v *virtualMachines) Impair(how network.Impairment, links ...network.Link) {
	v.vms.Impair(how, links...)
}
func (v *virtualMachines) Restore(links ...network.Link) {
	v.vms.Restore(links...)
	v.storage.stir()
}
func (v *virtualMachines) RestoreAll(but []network.Link) {
	v.Restore(slices.DeleteFunc(v.vms.Faulty(), func(l network.Link) bool { return slices.Contains(but, l) })...)
}

// Storage implements Machines.
func (v *virtualMachines) Storage(volume scenarios.Volume) (*Storage, error) {
	v.storage = share(v.ctx, volume, v.stream, func(host string) bool {
		return !slices.ContainsFunc(v.vms.Faulty(), func(l network.Link) bool {
			return scenarios.Link(l).Covers(scenarios.HostEnd(host), scenarios.Storage)
		})
	})
	return v.storage.Storage, nil
}

// Hypervisor implements Machines.
func (v *virtualMachines) Hypervisor() (string, error) { return v.vms.URI(), v.vms.Reachable() }

// Close implements Machines.
func (v *virtualMachines) Close() (artifacts []play.Artifact, err error) {
	err = v.vms.Close()
	v.storage.close()
	v.tasks.Wait()
	for _, name := range v.names {
		for _, file := range []string{name + ".console", name + ".journal"} {
			if data, err := os.ReadFile(filepath.Join(v.dir, file)); err == nil {
				artifacts = append(artifacts, play.Artifact{Name: file, Data: data})
			}
		}
	}
	lines, failed := v.consoleLines()
	return append(artifacts, lines), errors.Join(err, failed)
}

// consoleLines are the lines of all consoles, at their times.
func (v *virtualMachines) consoleLines() (play.Artifact, error) {
	var file bytes.Buffer
	for _, l := range v.vms.ConsoleLines() {
		line := page.Line{At: v.offset + l.At, Host: l.Host, Text: l.Text}
		if err := json.NewEncoder(&file).Encode(line); err != nil {
			return play.Artifact{}, fmt.Errorf("record the consoles: %w", err)
		}
	}
	return play.Artifact{Name: page.Lines, Data: file.Bytes()}, nil
}

// virtual is a domain as the machine behind a BMC. It implements Machine, and fakebmc's
// System, Resetter, GuestSystem and Mains. libvirt carries commands out at once, so that
// accepting one is to have done it.
type virtual struct {
	all    *virtualMachines
	domain *vms.Domain

	mu    sync.Mutex // one at a time speaks to the guest
	guest fakebmc.Guest

	culprits culprits

	// What follows is set by the scenario, which does one thing at a time.
	paused bool
	told   []evidence.Command // the commands that undo those to the guest
}

// DomainName implements Machine.
func (m *virtual) DomainName() string { return m.domain.DefinedName() }

// SystemUUID implements Machine.
func (m *virtual) SystemUUID() string { return m.domain.UUID() }

// Settle implements domain.
func (m *virtual) Settle(ctx context.Context, old time.Duration) error {
	return m.domain.Settle(ctx, old)
}

// SwitchOn implements Machine.
func (m *virtual) SwitchOn(ctx context.Context) error {
	m.blame(string(history.Engine), true)
	return m.domain.On(ctx)
}

// CutPower implements Machine.
func (m *virtual) CutPower(ctx context.Context) error {
	m.blame(string(history.Engine), false)
	return m.domain.ForceOff(ctx)
}

// Pause implements Machine.
func (m *virtual) Pause(ctx context.Context) error {
	m.paused = true
	return m.domain.Pause(ctx)
}

// Resume implements Machine.
func (m *virtual) Resume(ctx context.Context) error {
	if !m.paused {
		return nil
	}
	m.paused = false
	if m.domain.State() != vms.StatePaused {
		return nil
	}
	return m.domain.Resume(ctx)
}

// FedBy implements Machine.
func (m *virtual) FedBy(agent string) { m.culprits.feeder = agent }

// Tell implements Machine.
func (m *virtual) Tell(ctx context.Context, do, undo evidence.Command) error {
	if do == evidence.StopFeeding || do == evidence.Hang || do == evidence.Panic {
		m.culprits.starved.Store(true)
	}
	if undo != "" {
		m.told = append(m.told, undo)
	}
	return m.domain.Tell(ctx, do)
}

// Heal implements Machine.
func (m *virtual) Heal(ctx context.Context) error {
	var errs []error
	errs = append(errs, m.Resume(ctx))
	for _, undo := range m.told {
		if m.domain.State() != vms.StateOn {
			break // its next boot knows nothing of this
		}
		if err := m.domain.Tell(ctx, undo); err != nil {
			m.all.logf("%s could not be told to %s, perhaps because it is booting: %v", m.domain.Name(), undo, err)
		}
	}
	m.told = nil
	return errors.Join(errs...)
}

// blame says in whose name the machine's next power edge happens, if the machine
// is in a state in which there can be one.
func (m *virtual) blame(who string, on bool) {
	if off := m.domain.State() == vms.StateOff; off == on {
		m.culprits.blame(who, on)
	}
}

func (m *virtual) blamed(e vms.Event) string { return m.culprits.blamed(e) }

// culprits names who causes a machine's next power edges. A machine that was ordered on, and off
// before it was on, does both, each in the name of its own client. A reset by its watchdog is in
// the name of the agent that feeds it, if there is one, unless the scenario has starved it. Where
// there is no watchdog to feed, that agent has the kernel reboot.
type culprits struct {
	on, off atomic.Value // strings
	feeder  string
	starved atomic.Bool // in this boot
}

func (c *culprits) blame(who string, on bool) {
	if on {
		c.on.Store(who)
	} else {
		c.off.Store(who)
	}
}

// blamed returns who caused a power edge, or the end of a boot, as far as that is known: a guest
// may also go off without any command.
func (c *culprits) blamed(e vms.Event) string {
	who := ""
	switch {
	case e.Kind == vms.Reset && e.Detail == vms.ResetWatchdog:
		if starved := c.starved.Swap(false); c.feeder == "" || starved {
			return string(history.Engine)
		}
		return c.feeder
	case e.Kind == vms.Reset && e.Detail == vms.ResetSysrq && c.feeder != "":
		c.starved.Store(false)
		return c.feeder
	case e.Kind == vms.PoweredOn:
		who, _ = c.on.Swap("").(string)
	case e.Kind == vms.PoweredOff, e.Kind == vms.Reset:
		c.starved.Store(false)
		who, _ = c.off.Swap("").(string)
	}
	return who
}

// PowerState implements fakebmc.System.
func (m *virtual) PowerState() (fakebmc.PowerState, error) {
	return fakebmc.PowerState(m.domain.State()), nil
}

// Resets implements fakebmc.Resetter.
func (*virtual) Resets() []fakebmc.ResetType {
	return append(needPower[:], fakebmc.ResetOn, fakebmc.ResetForceOff, fakebmc.ResetGracefulShutdown, fakebmc.ResetPushPowerButton)
}

// needPower are the resets of which a machine that is off knows nothing.
var needPower = [...]fakebmc.ResetType{fakebmc.ResetForceRestart, fakebmc.ResetGracefulRestart, fakebmc.ResetPowerCycle, fakebmc.ResetNmi}

// Reset implements fakebmc.System.
func (m *virtual) Reset(t fakebmc.ResetType) error { return m.reset(m.domain.Name(), t) }

// wiredTo implements machine.
func (m *virtual) wiredTo(bmc string) fakebmc.System { return miswired{m, bmc} }

// miswired is a machine behind the BMC of another host.
type miswired struct {
	*virtual
	bmc string
}

// Reset implements fakebmc.System.
func (w miswired) Reset(t fakebmc.ResetType) error { return w.reset(w.bmc, t) }

// reset is a reset by the BMC of a host.
func (m *virtual) reset(host string, t fakebmc.ResetType) error {
	if !slices.Contains(m.Resets(), t) {
		return fmt.Errorf("%s of %s: %w", t, m.domain.Name(), fakebmc.ErrUnsupported)
	}
	off := m.domain.State() == vms.StateOff
	if m.deaf() && slices.Contains(needPower[:], t) {
		return fmt.Errorf("%s of %s, which is not on: %w", t, m.domain.Name(), fakebmc.ErrConflict)
	}
	client := m.all.asked(host, t)
	ctx, cancel := thismachine.WithBudget(m.all.ctx, CommandTimeout)
	defer cancel()
	if t == fakebmc.ResetPushPowerButton {
		t = fakebmc.ResetGracefulShutdown // it is the same button
		if off {
			t = fakebmc.ResetOn
		}
	}
	m.blame(client, t == fakebmc.ResetOn)
	late := func(err error) error {
		if errors.Is(err, vms.ErrNotRunning) {
			return fmt.Errorf("%w: %w", err, fakebmc.ErrConflict)
		}
		return err
	}
	switch t {
	case fakebmc.ResetForceOff:
		return m.domain.ForceOff(ctx)
	case fakebmc.ResetGracefulShutdown:
		if m.deaf() {
			return nil
		}
		return m.domain.Shutdown()
	case fakebmc.ResetForceRestart:
		return late(m.domain.Restart(ctx))
	case fakebmc.ResetGracefulRestart:
		return late(m.domain.Reboot())
	case fakebmc.ResetNmi:
		return late(m.domain.Interrupt())
	case fakebmc.ResetPowerCycle:
		if err := m.domain.ForceOff(ctx); err != nil {
			return err
		}
		m.blame(client, true)
	}
	return m.domain.On(ctx)
}

// deaf says that there is no guest to hear a button. libvirt isn't asked to press one then: what it
// asks of a QEMU that is just being started holds up every other operation.
func (m *virtual) deaf() bool {
	state := m.domain.State()
	return state == vms.StateOff || state == vms.StatePoweringOn
}

// LoseAC implements fakebmc.Mains: the process of the virtual machine is killed.
func (m *virtual) LoseAC() error {
	ctx, cancel := thismachine.WithBudget(m.all.ctx, CommandTimeout)
	defer cancel()
	m.blame(fakebmc.ClientBMC, false)
	return m.domain.ForceOff(ctx)
}

// SetGuest implements fakebmc.GuestSystem.
func (m *virtual) SetGuest(g fakebmc.Guest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	ctx, cancel := thismachine.WithBudget(m.all.ctx, CommandTimeout)
	defer cancel()
	resume := m.guest.Paused && !g.Paused && m.domain.State() == vms.StatePaused
	m.guest = g
	if resume {
		if err := m.domain.Resume(ctx); err != nil {
			return err
		}
	}
	return m.instruct(ctx)
}

// notice repeats the commands on the guest's behaviour: a boot forgets them, and a guest whose
// processors stood still has not received them.
func (m *virtual) notice(e vms.Event) {
	if e.Kind != vms.Kind(evidence.Boot) && e.Kind != vms.Resumed {
		return
	}
	m.all.tasks.Go(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.guest == (fakebmc.Guest{}) {
			return
		}
		ctx, cancel := thismachine.WithBudget(m.all.ctx, CommandTimeout)
		defer cancel()
		if err := m.instruct(ctx); err != nil {
			m.all.logf("%v", err)
		}
	})
}

// instruct makes the guest behave, if there is one that can hear; see notice. It is
// called with mu held.
func (m *virtual) instruct(ctx context.Context) error {
	if m.domain.State() != vms.StateOn {
		return nil
	}
	command := evidence.ObeyShutdown.Taking(time.Duration(m.guest.Slow))
	if m.guest.Ignore {
		command = evidence.IgnoreShutdown
	}
	if err := m.domain.Tell(ctx, command); err != nil || !m.guest.Paused {
		return err
	}
	return m.domain.Pause(ctx)
}

// Processors implements Machines.
func (v *virtualMachines) Processors() map[string]vms.Processors {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := make(map[string]vms.Processors)
	for name, m := range v.byName {
		if p, on := m.domain.Processors(); on {
			all[name] = p
		}
	}
	return all
}

// commanded announces that another program is about to carry out a client's reset, and returns a
// function to call when it is done.
func (m *virtual) commanded(t fakebmc.ResetType, client string) (done func()) {
	done = func() {}
	switch t {
	case fakebmc.ResetOn:
		m.blame(client, true)
	case fakebmc.ResetPushPowerButton:
		m.blame(client, m.domain.State() == vms.StateOff)
	case fakebmc.ResetForceRestart, fakebmc.ResetPowerCycle:
		m.blame(client, false)
		m.culprits.blame(client, true) // it may be done by switching it off and on
		done = m.domain.Restarting()
	case fakebmc.ResetForceOff, fakebmc.ResetGracefulShutdown, fakebmc.ResetGracefulRestart:
		m.blame(client, false)
	}
	return done
}
