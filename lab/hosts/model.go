package hosts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/lab/record"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/page"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim/model"
	"github.com/fencelab/fencelab/vms"
	"github.com/fencelab/fencelab/vms/guest/evidence"
	"github.com/fencelab/fencelab/vms/guest/kubelet"
	"github.com/fencelab/fencelab/vms/network"
)

// modelMachines are machines that are models of hosts, the simulator's, on the clock of
// this machine. What happens to them they know themselves. Each has a kubelet, which is
// that of the guests, within this process.
type modelMachines struct {
	ctx     context.Context
	stop    context.CancelFunc
	stream  *record.Stream
	asked   asker
	timings scenarios.HostTimings
	storage *Storage // nil without one
	tasks   sync.WaitGroup

	thread // in which everything happens to models
	models []*modelled
	cuts   []network.Link
	lines  []page.Line
}

// OpenModels makes machines that take the times of the topology.
func OpenModels(ctx context.Context, timings scenarios.HostTimings, s *record.Stream, asked asker) *modelMachines {
	ctx, stop := context.WithCancel(ctx)
	return &modelMachines{ctx: ctx, stop: stop, stream: s, asked: asked, timings: timings, thread: newThread()}
}

// Reach implements machines: kubelets of this process reach what it does.
func (*modelMachines) Reach(_ string, targets ...network.Target) (at []netip.AddrPort, err error) {
	for _, target := range targets {
		parsed, err := netip.ParseAddrPort(target.To)
		if err != nil {
			return nil, fmt.Errorf("reach %s from the hosts: %w", target.To, err)
		}
		at = append(at, parsed)
	}
	return at, nil
}

// Add implements Machines.
func (a *modelMachines) Add(host *scenarios.Host, _ []string, k *evidence.Kubelet, programs []vms.Program) (Machine, error) {
	if len(programs) > 0 {
		return nil, fmt.Errorf("host %s: a model runs no programs", host.Name)
	}
	m := &modelled{all: a, name: host.Name, kubelet: k, boot: fakebmc.Boot{Enabled: fakebmc.BootDisabled, Target: fakebmc.BootNone, Mode: fakebmc.BootUEFI}}
	m.host = model.New(m, m, host.Name, model.Timings{
		Boot: time.Duration(a.timings.Boot), SoftOff: time.Duration(a.timings.SoftOff), HardOff: time.Duration(a.timings.HardOff),
		Watchdog: time.Duration(host.Watchdog), Softdog: host.Softdog,
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.models = append(a.models, m)
	if a.storage != nil {
		a.storage.array.Connect(m.name, m.host.Boot)
	}
	return m, nil
}

// Cut, restore and restoreAll implement Machines.
func (a *modelMachines) Cut(links ...network.Link) {
	a.do(func() {
		for _, l := range links {
			if !slices.Contains(a.cuts, l) {
				a.cuts = append(a.cuts, l)
				a.linked(vms.LinkDown, l)
			}
		}
	})
}

func (*modelMachines) Impair(network.Impairment, ...network.Link) {} // Capabilities
func (a *modelMachines) Restore(links ...network.Link)            { a.do(func() { a.join(links) }) }

func (a *modelMachines) RestoreAll(but []network.Link) {
	a.do(func() {
		a.join(slices.DeleteFunc(slices.Clone(a.cuts), func(l network.Link) bool { return slices.Contains(but, l) }))
	})
}

func (a *modelMachines) join(links []network.Link) {
	for _, l := range links {
		if i := slices.Index(a.cuts, l); i >= 0 {
			a.cuts = slices.Delete(a.cuts, i, i+1)
			a.linked(vms.LinkUp, l)
		}
	}
}

// linked records what happened to a link in the words of the network of guests.
func (a *modelMachines) linked(kind vms.Kind, l network.Link) {
	for _, event := range worldEvents(vms.Event{Kind: kind, Link: l, Host: scenarios.Link(l).Host()}, "") {
		a.stream.Now(event)
	}
}

// carries reports whether a message gets from one end of a link to the other.
func (a *modelMachines) carries(from, to string) bool {
	return !slices.ContainsFunc(a.cuts, func(l network.Link) bool { return scenarios.Link(l).Covers(from, to) })
}

// hypervisor implements machines: there is none.
func (*modelMachines) Processors() map[string]vms.Processors { return nil }
func (*modelMachines) Hypervisor() (string, error)           { return "", nil }

// Close implements Machines.
func (a *modelMachines) Close() ([]play.Artifact, error) {
	a.do(func() {
		a.closed = true
		for _, m := range a.models {
			m.life.end()
		}
	})
	a.stop()
	a.tasks.Wait()
	var file bytes.Buffer
	for _, line := range a.lines {
		if err := json.NewEncoder(&file).Encode(line); err != nil {
			return nil, fmt.Errorf("record what the hosts said: %w", err)
		}
	}
	return []play.Artifact{{Name: page.Lines, Data: file.Bytes()}}, nil
}

// modelled is a host that is a model, as the machine behind a BMC. It implements Machine, and
// fakebmc's System, Resetter, Booter, GuestSystem and Mains; and for the model World and Software.
type modelled struct {
	all     *modelMachines
	name    string
	host    *model.Host
	kubelet *evidence.Kubelet
	woken   bool
	boot    fakebmc.Boot // where the next boot is from
	life    *kubeletLife // the latest
	told    []evidence.Command
	// writes is the next write of what runs there; drops says that the kubelet of this boot reports
	// no volume in use.
	writes model.Timer
	drops  bool
}

// say notes a line of the host's console. It is called with mu held.
func (m *modelled) say(text string) {
	m.all.lines = append(m.all.lines, page.Line{At: m.all.stream.Since(), Host: m.name, Text: text})
}

// timer is a model.Timer.
type timer struct {
	timer *time.Timer
	over  bool
}

// Now, After, Cancel and Emit implement model.World.
func (m *modelled) Now() time.Duration { return m.all.stream.Since() }

func (m *modelled) After(d time.Duration, _ model.Class, _ string, do func()) model.Timer {
	t := new(timer)
	t.timer = time.AfterFunc(d, func() {
		m.all.do(func() {
			if !t.over {
				do()
			}
		})
	})
	return t
}

func (*modelled) Cancel(t model.Timer) {
	if t, ok := t.(*timer); ok {
		t.over = true
		t.timer.Stop()
	}
}

func (m *modelled) Emit(e history.Event) { m.all.stream.Now(e) }

// Begins, Start, ShutDown, Kill and Halts implement model.Software.
func (m *modelled) Begins() {
	from := ""
	if m.boot.Enabled != fakebmc.BootDisabled {
		from = " from " + m.boot.Target
	}
	m.say("boot " + m.host.Boot() + " begins" + from)
	if m.boot.Enabled == fakebmc.BootOnce {
		m.boot.Enabled, m.boot.Target = fakebmc.BootDisabled, fakebmc.BootNone
	}
}

// Bootable, Boot and SetBoot implement fakebmc.Booter. Wherever a model boots from, the same comes
// up; its console says where that was.
func (*modelled) Bootable() (targets, modes []string, err error) {
	return []string{fakebmc.BootNone, fakebmc.BootPxe, fakebmc.BootHdd}, []string{fakebmc.BootUEFI}, nil
}

func (m *modelled) Boot() (boot fakebmc.Boot, err error) {
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	return m.boot, nil
}

func (m *modelled) SetBoot(b fakebmc.Boot) error {
	m.all.do(func() { m.boot = fakebmc.Boot{Enabled: b.Enabled, Target: b.Target, Mode: cmp.Or(b.Mode, m.boot.Mode)} })
	return nil
}

func (m *modelled) Start() {
	life := &kubeletLife{m: m}
	life.ctx, life.stop = context.WithCancel(m.all.ctx)
	about := kubelet.Machine{Name: m.name, Boot: m.host.Boot(), Address: "127.0.0.1", UUID: m.SystemUUID(), Kernel: "none", OS: "fencelab model"}
	k, err := kubelet.New(m.kubelet, about, life, life.wire, life.complain)
	if err != nil {
		m.all.stream.Fail(fmt.Errorf("start the kubelet of %s: %w", m.name, err))
		return
	}
	if m.all.storage != nil {
		k.WithVolumes(volumes{life})
	}
	m.say("kubelet starts")
	m.life = life
	m.all.tasks.Go(func() { k.Run(life.ctx) })
}

func (m *modelled) ShutDown() {
	m.say("shutting down")
	m.life.shutDown()
}

func (m *modelled) Kill() {
	m.life.end()
	if s := m.all.storage; s != nil {
		m.Cancel(m.writes)
		m.writes, m.drops = nil, false
		s.array.Ended(m.name)
	}
}

func (*modelled) Halts() {}

// DomainName implements Machine.
func (*modelled) DomainName() string { return "" }

// SystemUUID implements Machine.
func (m *modelled) SystemUUID() string { return m.name }

// SwitchOn implements Machine. A host's first boot, before the story, is complete at once.
func (m *modelled) SwitchOn(context.Context) error {
	m.all.do(func() {
		if m.woken {
			m.host.PowerOn(string(history.Engine))
			return
		}
		m.woken = true
		m.host.Wake(string(history.Engine))
	})
	return nil
}

// CutPower implements Machine.
func (m *modelled) CutPower(context.Context) error {
	m.all.do(func() { m.host.LosePower(string(history.Engine)) })
	return nil
}

// Pause and resume implement Machine.
func (m *modelled) Pause(context.Context) error {
	m.all.do(m.host.Pause)
	return nil
}

func (m *modelled) Resume(context.Context) error {
	m.all.do(m.host.Resume)
	return nil
}

// FedBy implements Machine.
func (m *modelled) FedBy(agent string) { m.all.do(func() { m.host.FedBy(agent) }) }

// Tell implements Machine.
func (m *modelled) Tell(_ context.Context, do, undo evidence.Command) error {
	known := true
	m.all.do(func() { known = m.obey(do) })
	if !known {
		return fmt.Errorf("tell %s to %s: a model knows nothing of this", m.name, do)
	}
	if undo != "" {
		m.told = append(m.told, undo)
	}
	return nil
}

// obey is called with mu held, and reports whether the host knows the command.
func (m *modelled) obey(command evidence.Command) bool {
	switch command {
	case evidence.StopKubelet:
		m.life.end()
	case evidence.StartKubelet:
		if m.host.Booted() && m.life.over {
			m.Start()
		}
	case evidence.DropVolumes:
		m.drops = true
	case evidence.StopFeeding:
		m.host.StopFeeding()
	case evidence.Hang:
		m.host.Hang()
	case evidence.Panic:
		m.host.Panic()
	case evidence.IgnoreShutdown:
		m.host.IgnoreShutdown(true)
	case evidence.ObeyShutdown.Taking(0):
		m.host.IgnoreShutdown(false)
	default:
		return false
	}
	return true
}

// Heal implements Machine.
func (m *modelled) Heal(context.Context) error {
	m.all.do(func() {
		m.host.Resume()
		for _, undo := range m.told {
			m.obey(undo)
		}
	})
	m.told = nil
	return nil
}

// PowerState implements fakebmc.System.
func (m *modelled) PowerState() (state fakebmc.PowerState, err error) {
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	return m.host.PowerState()
}

// Resets implements fakebmc.Resetter.
func (m *modelled) Resets() []fakebmc.ResetType { return m.host.Resets() }

// Reset implements fakebmc.System.
func (m *modelled) Reset(t fakebmc.ResetType) error { return m.reset(m.name, t) }

// reaction is the time that a BMC takes to apply a command to the host's power. If it were less
// than the lab's observers can resolve, the order of a host's start and its controller's last
// action would be unknown.
const reaction = 4 * record.Skew

// reset is a reset by the BMC of a host.
func (m *modelled) reset(bmc string, t fakebmc.ResetType) (err error) {
	client := m.all.asked(bmc, t)
	time.Sleep(reaction)
	m.all.do(func() { err = m.host.ResetFor(client, t) })
	return err
}

// wiredTo implements machine.
func (m *modelled) wiredTo(bmc string) fakebmc.System { return rewired{m, bmc} }

// rewired is a model behind the BMC of another host.
type rewired struct {
	*modelled
	bmc string
}

// Reset implements fakebmc.System.
func (w rewired) Reset(t fakebmc.ResetType) error { return w.reset(w.bmc, t) }

// LoseAC implements fakebmc.Mains.
func (m *modelled) LoseAC() (err error) {
	m.all.do(func() { err = m.host.LoseAC() })
	return err
}

// SetGuest implements fakebmc.GuestSystem.
func (m *modelled) SetGuest(g fakebmc.Guest) (err error) {
	m.all.do(func() { err = m.host.SetGuest(g) })
	return err
}
