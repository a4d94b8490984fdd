//go:build cgo && libvirt_dlopen

package vms

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fencelab/fencelab/vms/guest/evidence"
	"github.com/fencelab/fencelab/vms/keeper"
	"github.com/fencelab/fencelab/vms/network"
)

// Options say where a Lab finds and leaves its files, and how long a guest may be silent.
type Options struct {
	Assets   string // what vms/assets.sh filled
	Evidence string // directory for the consoles' logs, which are kept; empty: they are removed with the Lab
	// Silence is how long a guest that was heard may be silent before its evidence counts as lost;
	// 0: 3 s, and 6 s where guests are emulated and share the cores with their emulators.
	Silence time.Duration
	// BootSilence is the same from the start of the machine to its first line, before which it runs
	// nothing that matters; 0: 30 s, and 60 s where guests are emulated: a reset of one whose
	// neighbours boot has taken 33 s.
	BootSilence time.Duration
	// Within ends what waits for the hypervisor or for the kernel after a time that suffices on a
	// machine that isn't busy, or as much later as this one is slower; nil: [context.WithTimeout].
	Within func(context.Context, time.Duration) (context.Context, context.CancelFunc)
}

// Lab is a set of hosts. Its methods may be called from any goroutine.
type Lab struct {
	options     Options
	hypervisor  *hypervisor
	network     *network.Switch
	image       *Image
	nodes       *Image // of real nodes; nil until there is one
	accelerator Accelerator
	reason      string
	emulator    string
	dir         string
	opened      time.Time
	events      chan Event
	consoles    *consoles
	closing     chan struct{}

	mu      sync.Mutex // orders the events of all domains
	queue   *queue[Event]
	domains []*Domain
	closed  bool
}

// Open starts the hypervisor of this process and decides between KVM and emulation, which takes
// seconds on the first time after a boot of the machine.
func Open(ctx context.Context, o Options) (_ *Lab, err error) {
	l := &Lab{options: o, opened: time.Now(), events: make(chan Event), closing: make(chan struct{}), queue: newQueue[Event](), network: network.New()}
	if l.image, err = LoadImage(o.Assets); err != nil {
		return nil, err
	}
	if l.emulator, err = exec.LookPath(emulator); err != nil {
		return nil, fmt.Errorf("find QEMU: %w; run vms/assets.sh", err)
	}
	if l.hypervisor, err = connect(filepath.Join(o.Assets, "libvirt")); err != nil {
		return nil, err
	}
	if l.dir, err = os.MkdirTemp(l.hypervisor.dir, "lab-"+keeper.Name()+"-*"); err != nil {
		return nil, fmt.Errorf("open lab: %w", err)
	}
	if o.Evidence == "" {
		l.options.Evidence = l.dir
	} else if l.options.Evidence, err = filepath.Abs(o.Evidence); err == nil {
		err = os.MkdirAll(l.options.Evidence, 0o755)
	}
	if err == nil {
		l.accelerator, l.reason, err = chooseAccelerator(ctx, l.image, o.Assets, l.dir, l.hypervisor.keeper.Mark())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open lab: %w", err), os.RemoveAll(l.dir))
	}
	slowness := map[Accelerator]time.Duration{KVM: 1, TCG: 2}[l.accelerator]
	l.options.Silence = cmp.Or(o.Silence, slowness*3*time.Second)
	l.options.BootSilence = cmp.Or(o.BootSilence, slowness*30*time.Second)
	if l.options.Within == nil {
		l.options.Within = context.WithTimeout
	}
	l.consoles = followConsoles(l.Now)
	go l.queue.pump(l.events, l.closing)
	return l, nil
}

// Accelerator returns how guests are executed, and why.
func (l *Lab) Accelerator() (Accelerator, string) { return l.accelerator, l.reason }

// URI is that by which others, such as virsh, connect to the hypervisor, after [OpenToOthers].
func (l *Lab) URI() string { return l.hypervisor.uri }

// Reachable says why the hypervisor does not answer, if it doesn't.
func (l *Lab) Reachable() error {
	if alive, err := l.hypervisor.conn.IsAlive(); err != nil || !alive {
		return fmt.Errorf("check the connection to libvirt: it is lost (%v)", err)
	}
	return nil
}

// Events returns the one stream of all hosts' events, in the order of their times. It has no bound,
// so a slow reader loses nothing. It is closed by [Lab.Close].
func (l *Lab) Events() <-chan Event { return l.events }

// Now is the time in terms of [Event.At].
func (l *Lab) Now() time.Duration { return time.Since(l.opened) }

// HostConfig describes a host.
type HostConfig struct {
	Name      string
	MemoryMiB uint          // 0: 160, and 256 more with Programs; 1024 for a real node
	Heartbeat time.Duration // between two heartbeats of each process; 0: half a second, since each costs an emulated host 3 ms
	// Watchdog is the margin of the guest's watchdog in whole seconds; 0: the guest has none. It is
	// softdog unless it is said to be a device of the machine, an i6300ESB. A softdog resets a
	// guest whose user space hangs, but not one whose kernel hangs or that is paused.
	Watchdog       time.Duration
	WatchdogDevice bool
	Kubelet        *evidence.Kubelet // nil: the guest has no kubelet
	// Disk is the image of a real node's disk (raw, as vms/node/build.sh makes it), which a Real
	// Kubelet needs. It is only read: what the host writes goes to a layer of its own, which lasts
	// as long as the Lab.
	Disk string
	// Storage serves each connection of the machine to its storage, by a port out of band; nil: it
	// has none. The real nodes of a Lab all have it or none has.
	Storage func(io.ReadWriteCloser)
	Peers   []string // the other hosts whose addresses the guest knows
	// Programs run in the guest beside the kubelet, from one Executable, which must be static. On
	// a real node they get the same configuration, but run in Pods, from the image on the disk.
	// The caller has to create those Pods.
	Executable string
	Programs   []Program
}

// Sizes of the machines: a program brings an executable, which is in memory twice while the guest
// unpacks it.
const memory, memoryOfPrograms, memoryOfNode = 160, 256, 1024

// NewDomain defines a host; it is off.
func (l *Lab) NewDomain(c HostConfig) (_ *Domain, err error) {
	if c.Watchdog%time.Second != 0 || c.Watchdog < 0 {
		return nil, fmt.Errorf("define host %s: the watchdog margin %v is not in whole seconds", c.Name, c.Watchdog)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("define host %s: the lab is closed", c.Name)
	}
	for _, d := range l.domains {
		if d.name == c.Name {
			return nil, fmt.Errorf("define host %s: a host of that name exists already", c.Name)
		}
	}
	number := len(l.domains)
	id := make([]byte, 16)
	rand.Read(id)
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // a random UUID, RFC 9562 section 5.4
	s := spec{
		name:        fmt.Sprintf("fencelab-%s-%s", strings.TrimPrefix(filepath.Base(l.dir), "lab-"), c.Name),
		uuid:        fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]),
		accelerator: l.accelerator,
		emulator:    l.emulator,
		memoryMiB:   cmp.Or(c.MemoryMiB, memory),
		kernel:      l.image.Kernel,
		initramfs:   filepath.Join(l.dir, fmt.Sprintf("%d.cpio", number)),
		console:     filepath.Join(l.options.Evidence, c.Name+".console"),
		port:        filepath.Join(l.dir, fmt.Sprintf("%d.port", number)),
		network:     filepath.Join(l.dir, fmt.Sprintf("%d.network", number)),
		mac:         l.network.MAC(network.Host(c.Name)).String(),
		watchdog:    c.Watchdog > 0 && c.WatchdogDevice,
	}
	if c.Disk != "" {
		if err := l.addDisk(&s, c, number); err != nil {
			return nil, fmt.Errorf("define host %s: %w", c.Name, err)
		}
	}
	var shares net.Listener
	if c.Storage != nil {
		s.storage = filepath.Join(l.dir, fmt.Sprintf("%d.storage", number))
		if shares, err = net.Listen("unix", s.storage); err != nil {
			return nil, fmt.Errorf("define host %s: %w", c.Name, err)
		}
		go serveStorage(shares, c.Storage)
	}
	if c.MemoryMiB == 0 && len(c.Programs) > 0 {
		s.memoryMiB += memoryOfPrograms
	}
	if s.kernel, err = filepath.Abs(s.kernel); err != nil {
		return nil, fmt.Errorf("define host %s: %w", c.Name, err)
	}
	config := evidence.Config{Name: c.Name, Heartbeat: cmp.Or(c.Heartbeat, 500*time.Millisecond), Watchdog: c.Watchdog, WatchdogDevice: c.WatchdogDevice, Kubelet: c.Kubelet,
		Network: &evidence.Network{Address: netip.PrefixFrom(l.network.Address(network.Host(c.Name)), network.Prefix), Peers: map[string]netip.Addr{}}}
	for _, peer := range c.Peers {
		config.Network.Peers[peer] = l.network.Address(network.Host(peer))
	}
	for _, p := range c.Programs {
		p.InPod = c.Disk != ""
		config.Programs = append(config.Programs, p.Program)
	}
	image, executable := l.image, c.Executable
	if c.Disk != "" {
		image, executable = l.nodes, ""
	}
	if err := image.WriteInitramfs(s.initramfs, config, executable, c.Programs); err != nil {
		return nil, err
	}
	if err := l.network.Listen(network.Host(c.Name), s.network); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", s.port)
	if err != nil {
		return nil, fmt.Errorf("define host %s: %w", c.Name, err)
	}
	d, err := newDomain(l, c.Name, s, listener)
	if err != nil {
		listener.Close()
		return nil, err
	}
	d.shares = shares
	l.domains = append(l.domains, d)
	l.consoles.add(c.Name, s.console)
	return d, nil
}

// serveStorage serves each connection of a machine, which is one life of its process.
func serveStorage(shares net.Listener, serve func(io.ReadWriteCloser)) {
	for {
		conn, err := shares.Accept()
		if err != nil {
			return // closed by remove
		}
		go func() {
			serve(conn)
			conn.Close()
		}()
	}
}

// Serve makes targets services of one endpoint of the network, and returns where guests reach
// them. Serve them before making the guests that are configured with these addresses.
func (l *Lab) Serve(endpoint string, targets ...network.Target) ([]netip.AddrPort, error) {
	return l.network.Serve(endpoint, targets...)
}

// Cut lets nothing pass these links any more, whether their hosts are on or off; it records an
// event for each link that was not cut before.
func (l *Lab) Cut(links ...network.Link) { l.linked(LinkDown, "", l.network.Cut(links...)) }

// Restore ends Cut and Impair; it records an event for each link that was cut or poor.
func (l *Lab) Restore(links ...network.Link) { l.linked(LinkUp, "", l.network.Restore(links...)) }

// Impair makes these links poor, whether their hosts are on or off; it records an event for each
// link that was not so before.
func (l *Lab) Impair(how network.Impairment, links ...network.Link) {
	l.linked(LinkPoor, how.String(), l.network.Impair(how, links...))
}

// Faulty are the links that are cut or poor.
func (l *Lab) Faulty() []network.Link { return l.network.Faulty() }

func (l *Lab) linked(kind Kind, detail string, changed []network.Link) {
	l.record(func(at time.Duration) (events []Event) {
		for _, link := range changed {
			host, is := network.HostOf(link.From)
			if !is {
				host, _ = network.HostOf(link.To)
			}
			events = append(events, Event{At: at, Host: host, Observer: Listener, Kind: kind, Link: link, Detail: detail})
		}
		return events
	})
}

// record stamps and appends what f makes of the present moment. All events of a Lab are made here,
// hence their order.
func (l *Lab) record(f func(at time.Duration) []Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range f(l.Now()) {
		l.queue.put(e)
		for _, d := range l.domains {
			if d.name == e.Host {
				d.notify(e)
			}
		}
	}
}

// Close switches every host off, removes all that the Lab made but the consoles in
// Options.Evidence, and closes the stream of events. Unread events are lost.
func (l *Lab) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	domains := l.domains
	l.mu.Unlock()
	var errs []error
	for _, d := range domains {
		errs = append(errs, d.remove())
	}
	l.consoles.close()
	errs = append(errs, l.network.Close())
	close(l.closing)
	l.queue.close()
	errs = append(errs, os.RemoveAll(l.dir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close lab: %w", err)
	}
	return nil
}
