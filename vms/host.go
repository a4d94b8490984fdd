package vms

import (
	"time"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// Program is one that runs in a guest: see [evidence.Program]. It finds Config at its ConfigPath.
type Program struct {
	evidence.Program
	Config []byte
}

// Processors holds the time that the processors of a host ran on this machine, and the time that
// they waited for a core.
type Processors struct {
	Process     int // of QEMU, which a host has from one power-on to the next
	Ran, Waited time.Duration
}

// Finding is one thing that a Lab needs or likes, and what was found of it.
type Finding struct {
	Subject string // QEMU, libvirt, guest image, KVM
	OK      bool
	// Needed: no Lab opens without it. What is not needed makes the Lab slower.
	Needed bool
	Detail string // the version or place if OK, else the reason and what to do
}

// openToOthers is global because a process has one hypervisor.
var openToOthers bool

// OpenToOthers lets other programs, such as virsh, connect to the hypervisor of this process. The
// hypervisor is then a libvirt daemon of its own instead of the embedded driver, and events of the
// hosts arrive a little later. Call it before the first Lab is opened.
func OpenToOthers() { openToOthers = true }

// Marks returns the marks that libvirt itself gives, with its files below a directory: to the QEMU
// of a domain, and to one that it asks for its capabilities (-qmp).
func Marks(dir string) []string { return []string{"XDG_CACHE_HOME=" + dir + "/", "unix:" + dir + "/"} }
