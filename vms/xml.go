package vms

import (
	"fmt"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// kernelArguments: the console for people and as evidence; a panic (PID 1 ended) resets the machine
// after a second; and what saves half a second of each boot: no self-tests, no waiting for grace
// periods and for a keyboard controller. The kernel resets the machine by a triple fault, which
// halts the processor at once: by its default way a reset has come 26 s after softdog had asked for
// it, on a busy machine, and the guest was silent meanwhile.
const kernelArguments = "console=ttyS0 quiet panic=1 reboot=t cryptomgr.notests rcupdate.rcu_expedited=1 i8042.noaux i8042.nokbd"

// emulationArguments keep an emulated kernel from calibrating anything: on a busy machine, what it
// measures over some milliseconds can be wrong by a factor of ten, and then so are its watchdog and
// all of its time. The HPET needs no calibration. And it has no guards against attackers, for which
// an emulator pays more than a processor does: with retpolines, pages that are cleared when they
// are given out, and checks of what is copied from and to programs a boot takes a twelfth longer.
const emulationArguments = " clocksource=hpet tsc=unstable nolapic_timer no_timer_check mitigations=off init_on_alloc=0 hardened_usercopy=off"

// spec holds the settings that vary between domains.
type spec struct {
	name, uuid        string
	accelerator       Accelerator
	emulator          string
	memoryMiB         uint
	kernel, initramfs string
	console           string // log file; appended over the domain's whole life
	port              string // unix socket on which we listen for the evidence
	network, mac      string // unix socket of the network's switch
	watchdog          bool   // a device
	// A real node has these; both are empty for any other.
	disk    string // qcow2
	journal string // log file, appended as the console's is
	storage string // unix socket on which we serve its storage; empty: it has none
}

// networkArguments plug the card into the switch. libvirt's interfaces know QEMU's streams only
// over TCP, whose ports are open to everybody on the machine; so these are QEMU's own arguments,
// and it is the switch that cuts links, not libvirt.
func networkArguments(s spec) []libvirtxml.DomainQEMUCommandlineArg {
	return []libvirtxml.DomainQEMUCommandlineArg{
		{Value: "-netdev"},
		{Value: "stream,id=network,server=off,addr.type=unix,addr.path=" + strings.ReplaceAll(s.network, ",", ",,")},
		{Value: "-device"},
		// No boot ROM: the firmware would try the network and cost a second. The slot is one that
		// libvirt, which gives them out from the lowest, doesn't give to its own devices.
		{Value: "virtio-net-pci,netdev=network,bus=pci.0,addr=0x1e,romfile=,mac=" + s.mac},
	}
}

// diskArguments attach the disk on QEMU's command line, past libvirt. For a disk in its XML,
// libvirt loads a storage driver, which makes what it has cached about QEMU stale. It would then
// probe QEMU again in the middle of a run, and wait for a minute.
func diskArguments(s spec) []libvirtxml.DomainQEMUCommandlineArg {
	return []libvirtxml.DomainQEMUCommandlineArg{
		{Value: "-drive"},
		{Value: "id=disk,if=none,format=qcow2,cache=writeback,file=" + strings.ReplaceAll(s.disk, ",", ",,")},
		{Value: "-device"},
		{Value: "virtio-blk-pci,drive=disk,bus=pci.0,addr=0x1d"},
	}
}

// domainXML describes a host. A reset, whoever asks for it, keeps the QEMU process and restarts the
// machine in it; every other end of the guest destroys the process, so that "off" always means that
// no process is left.
func domainXML(s spec) (string, error) {
	cpu := &libvirtxml.DomainCPU{Mode: "maximum"}
	arguments := kernelArguments + emulationArguments
	if s.accelerator == KVM {
		cpu.Mode, arguments = "host-passthrough", kernelArguments
	}
	domain := libvirtxml.Domain{
		Type:   string(s.accelerator),
		Name:   s.name,
		UUID:   s.uuid,
		Memory: &libvirtxml.DomainMemory{Value: s.memoryMiB, Unit: "MiB"},
		VCPU:   &libvirtxml.DomainVCPU{Value: 1},
		OS: &libvirtxml.DomainOS{
			Type:    &libvirtxml.DomainOSType{Arch: "x86_64", Machine: "pc", Type: "hvm"},
			Kernel:  s.kernel,
			Initrd:  s.initramfs,
			Cmdline: arguments,
		},
		Features:   &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}},
		CPU:        cpu,
		Clock:      &libvirtxml.DomainClock{Offset: "utc"},
		OnPoweroff: "destroy",
		OnReboot:   "restart",
		OnCrash:    "destroy",
		Devices: &libvirtxml.DomainDeviceList{
			Emulator:    s.emulator,
			Controllers: []libvirtxml.DomainController{{Type: "usb", Model: "none"}, {Type: "virtio-serial"}},
			Serials: []libvirtxml.DomainSerial{{
				Source: &libvirtxml.DomainChardevSource{File: &libvirtxml.DomainChardevSourceFile{Path: s.console, Append: "on"}},
			}},
			Channels: []libvirtxml.DomainChannel{{
				// QEMU connects to us when it starts: one connection is one life of the process,
				// and its end proves the process's end.
				Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "connect", Path: s.port}},
				Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: evidence.PortName}},
			}},
			MemBalloon: &libvirtxml.DomainMemBalloon{Model: "none"},
		},
		QEMUCommandline: &libvirtxml.DomainQEMUCommandline{Args: networkArguments(s)},
	}
	if s.watchdog {
		domain.Devices.Watchdogs = []libvirtxml.DomainWatchdog{{Model: "i6300esb", Action: "reset"}}
	}
	if s.disk != "" {
		domain.QEMUCommandline.Args = append(domain.QEMUCommandline.Args, diskArguments(s)...)
		domain.Devices.Channels = append(domain.Devices.Channels, libvirtxml.DomainChannel{
			Source: &libvirtxml.DomainChardevSource{File: &libvirtxml.DomainChardevSourceFile{Path: s.journal, Append: "on"}},
			Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: evidence.JournalName}},
		})
	}
	if s.storage != "" {
		domain.Devices.Channels = append(domain.Devices.Channels, libvirtxml.DomainChannel{
			Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "connect", Path: s.storage}},
			Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: evidence.StorageName}},
		})
	}
	text, err := domain.Marshal()
	if err != nil {
		return "", fmt.Errorf("describe domain %s: %w", s.name, err)
	}
	return text, nil
}
