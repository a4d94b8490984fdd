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

// Processors are what the processors of a host had of this machine's: how long they ran, and how long they waited for one.
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

// openToOthers is for the process, as its one hypervisor is.
var openToOthers bool

// OpenToOthers lets other programs, such as virsh, connect to the hypervisor of this process: it is a libvirt daemon of its
// own then, in the place of the embedded driver. What is told of the hosts is a little later. It has to be called before the
// first Lab is opened.
func OpenToOthers() { openToOthers = true }

// Marks are those that libvirt itself gives, with its files below a directory: to the QEMU of a domain, and to one that it
// asks for its capabilities (-qmp).
func Marks(dir string) []string { return []string{"XDG_CACHE_HOME=" + dir + "/", "unix:" + dir + "/"} }
