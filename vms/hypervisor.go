//go:build cgo && libvirt_dlopen

package vms

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"libvirt.org/go/libvirt"

	"github.com/fencelab/fencelab/vms/keeper"
)

// qemuConf keeps libvirt's driver from touching anything of the machine: there is no change of
// owners, no cgroups, no mount namespaces, no security labels, no virtlogd. With qemuUser QEMU runs
// as we do, for a driver that could do otherwise.
const (
	qemuUser = `user = "+%d"
group = "+%d"
`
	qemuConf = `dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
namespaces = []
cgroup_controllers = []
stdio_handler = "file"
`
)

// hypervisor is libvirt's QEMU driver inside our own process, with all of its state in a directory
// of ours. So it sees none of the machine's domains and networks, and needs neither a daemon nor
// its socket.
//
// libvirt allows one embedded driver in a process and can't move it, therefore all Labs of a
// process share it, and it stays until the process ends. Then the keeper kills what is left of its
// QEMU processes and removes the directory.
//
// After [OpenToOthers] the driver is in a daemon, all else being equal.
type hypervisor struct {
	conn   *libvirt.Connect
	keeper *keeper.Keeper
	dir    string // for the driver and the Labs
	pids   string // where the driver has the ids of its QEMU processes
	uri    string // by which others reach it; empty: they can't

	mu      sync.Mutex
	domains map[string]*Domain // by UUID
}

// embedded keeps a failure as well: libvirt's state can't be set up twice.
var embedded struct {
	sync.Once
	hypervisor *hypervisor
	err        error
}

// connect returns the process's hypervisor. cache, of the first call, is where libvirt keeps what
// it learns about the QEMU binary, which takes seconds.
func connect(cache string) (*hypervisor, error) {
	embedded.Do(func() {
		h := &hypervisor{domains: map[string]*Domain{}}
		if embedded.err = h.start(cache); embedded.err == nil {
			embedded.hypervisor = h
		} else if h.keeper != nil {
			embedded.err = errors.Join(embedded.err, h.keeper.Close())
		}
	})
	return embedded.hypervisor, embedded.err
}

func (h *hypervisor) start(cache string) (err error) {
	if h.keeper, err = keeper.Start(); err != nil {
		return err
	}
	if h.dir, err = h.keeper.TempDir("fencelab-vms"); err != nil {
		return err
	}
	if err := fits(h.dir); err != nil {
		return err
	}
	for _, mark := range Marks(h.dir) {
		if err := h.keeper.KillMarked(mark); err != nil {
			return err
		}
	}
	root := filepath.Join(h.dir, "libvirt")
	files := layout{conf: "etc", known: "cache/qemu/capabilities", pids: "run/qemu", cache: filepath.Join(cache, "qemu/capabilities")}
	if openToOthers {
		root, files = h.dir, daemonLayout(cache)
	}
	conf := []byte(qemuConf)
	if !openToOthers {
		conf = append(fmt.Appendf(nil, qemuUser, os.Getuid(), os.Getgid()), conf...)
	}
	if err := os.MkdirAll(filepath.Join(root, files.conf), 0o700); err != nil {
		return fmt.Errorf("prepare libvirt's directory: %w", err)
	}
	if err := os.WriteFile(filepath.Join(root, files.conf, "qemu.conf"), conf, 0o600); err != nil {
		return fmt.Errorf("prepare libvirt's directory: %w", err)
	}
	h.pids = filepath.Join(root, files.pids)
	// libvirt writes its cache in place, so that two drivers that share one can fail or read half a
	// file. Each has a copy.
	keepFiles(files.cache, filepath.Join(root, files.known))
	defer func() {
		if err == nil {
			keepFiles(filepath.Join(root, files.known), files.cache)
		}
	}()
	return h.open(root)
}

// deepest is how libvirt's daemon calls the socket of a QEMU's monitor, below our directory: the
// longest of all paths of sockets. It takes 20 characters of a domain's name, and 3 are for its
// number.
const deepest = "/" + config + "/libvirt/qemu/lib/domain-999-12345678901234567890/monitor.sock"

// fits says why sockets can't be below a directory, which libvirt would only say of the first host
// that is switched on.
func fits(dir string) error {
	const limit = len(unix.RawSockaddrUnix{}.Path) - 1 // the last byte is 0
	if over := len(dir) + len(deepest) - limit; over > 0 {
		return fmt.Errorf("prepare libvirt's directory: %s is %d bytes too long for the sockets of virtual machines; set TMPDIR to a directory with a short name, such as /tmp", dir, over)
	}
	return nil
}

// layout says where a driver has its files, below its root.
type layout struct {
	conf  string // the directory of qemu.conf
	known string // what it has learned about QEMU
	pids  string
	cache string // where that which is known is kept for the next driver, an absolute path
}

func (h *hypervisor) open(root string) error {
	// libvirt reads this once, when it is first used. Its warnings are no news to our user; they
	// are kept as evidence.
	const logOutputs = "LIBVIRT_LOG_OUTPUTS"
	if _, set := os.LookupEnv(logOutputs); !set {
		os.Setenv(logOutputs, "3:file:"+filepath.Join(h.dir, "libvirt.log"))
		defer os.Unsetenv(logOutputs)
	}
	// And so it does these. Without them some state of a driver that isn't root's is in the user's
	// home, whatever its root.
	for _, name := range []string{"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"} {
		if old, set := os.LookupEnv(name); set {
			defer os.Setenv(name, old)
		} else {
			defer os.Unsetenv(name)
		}
		os.Setenv(name, filepath.Join(h.dir, "home"))
	}
	if err := libvirt.EventRegisterDefaultImpl(); err != nil {
		return fmt.Errorf("start libvirt's event loop: %w; run vms/assets.sh", err)
	}
	go func() {
		for {
			libvirt.EventRunDefaultImpl()
		}
	}()
	var err error
	if openToOthers {
		if h.uri, err = h.startDaemon(root); err != nil {
			return err
		}
	} else if h.conn, err = libvirt.NewConnect("qemu:///embed?root=" + root); err != nil {
		return fmt.Errorf("open libvirt's embedded QEMU driver: %w; run vms/assets.sh", err)
	}
	if _, err = h.conn.DomainEventLifecycleRegister(nil, h.lifecycle); err == nil {
		_, err = h.conn.DomainEventRebootRegister(nil, func(_ *libvirt.Connect, d *libvirt.Domain) { h.tell(d, Reset, "") })
	}
	if err == nil {
		_, err = h.conn.DomainEventWatchdogRegister(nil, func(_ *libvirt.Connect, d *libvirt.Domain, _ *libvirt.DomainEventWatchdog) {
			h.tell(d, fired, "")
		})
	}
	if err != nil {
		return fmt.Errorf("subscribe to libvirt's events: %w", err)
	}
	// libvirt takes a QEMU for alive until its parent has collected it. QEMU makes itself a child
	// of init, and in a container that may be seconds late, so from here on we are the parent and
	// collect (see adopt). Not earlier: the QEMUs that libvirt asks for their capabilities, here,
	// would be ours too.
	if _, err := h.conn.GetCapabilities(); err != nil {
		return fmt.Errorf("learn about QEMU: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of QEMU: %w", err)
	}
	return nil
}

// process is the id of the QEMU of a domain, or 0 if there is none.
func (h *hypervisor) process(domain string) int {
	text, err := os.ReadFile(filepath.Join(h.pids, domain+".pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}

// adopt collects the QEMU process of a domain as soon as it ends, and lets its emulated processors
// give way to its main loop, which reports resets, carries the guest's evidence, and shares a lock
// with them: beside busy processors resets were reported 15 s late. QEMU has a session of its own,
// among which the kernel divides its time first (sched(7), autogroup), so that a nice value counts
// between QEMU's threads alone. Where the kernel doesn't do that, none is changed. A failure only
// makes things known later.
func (h *hypervisor) adopt(domain string) {
	pid := h.process(domain)
	if pid == 0 {
		return
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return
	}
	if inSessions() {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid)) // the pattern is a good one
		for _, thread := range threads {
			if id, err := strconv.Atoi(filepath.Base(thread)); err == nil && id != pid {
				_ = unix.Setpriority(unix.PRIO_PROCESS, id, processorNice)
			}
		}
	}
	go process.Wait()
}

// inSessions reports whether the kernel divides its time among sessions first.
func inSessions() bool {
	enabled, _ := os.ReadFile("/proc/sys/kernel/sched_autogroup_enabled") // it is missing where it can't
	return strings.TrimSpace(string(enabled)) == "1"
}

// processorNice is the nice value of QEMU's threads but for its main loop, which needs little time
// but that at once.
const processorNice = 15

var stopReasons = map[libvirt.DomainEventStoppedDetailType]string{
	libvirt.DOMAIN_EVENT_STOPPED_SHUTDOWN:  "shutdown",
	libvirt.DOMAIN_EVENT_STOPPED_DESTROYED: "destroyed",
	libvirt.DOMAIN_EVENT_STOPPED_CRASHED:   "crashed",
	libvirt.DOMAIN_EVENT_STOPPED_FAILED:    "failed",
}

// lifecycle is called on libvirt's event loop, as is everything that it calls.
func (h *hypervisor) lifecycle(_ *libvirt.Connect, d *libvirt.Domain, event *libvirt.DomainEventLifecycle) {
	switch event.Event {
	case libvirt.DOMAIN_EVENT_STARTED:
		if name, err := d.GetName(); err == nil && h.uri != "" {
			h.adopt(name) // somebody else may have started it
		}
		h.tell(d, PoweredOn, "")
	case libvirt.DOMAIN_EVENT_STOPPED:
		h.tell(d, PoweredOff, stopReasons[libvirt.DomainEventStoppedDetailType(event.Detail)])
	case libvirt.DOMAIN_EVENT_SUSPENDED:
		h.tell(d, Paused, "")
	case libvirt.DOMAIN_EVENT_RESUMED:
		h.tell(d, Resumed, "")
	}
}

func (h *hypervisor) tell(d *libvirt.Domain, kind Kind, detail string) {
	uuid, err := d.GetUUIDString()
	if err != nil {
		return
	}
	h.mu.Lock()
	domain := h.domains[uuid]
	h.mu.Unlock()
	if domain != nil {
		domain.inputs.put(input{kind: kind, detail: detail})
	}
}
