// Package vms runs the lab's hosts as libvirt domains and reports what physically happens to them.
//
// A [Lab] holds domains; each [Domain] boots a kernel and one static program (package guest) in
// about two seconds, even without KVM. [Lab.Events] merges two out-of-band observers into one
// ordered stream: libvirt, which alone knows about power, and the guest itself through a
// virtio-serial port, which alone knows about its processes. See [Observer].
//
// Nothing of the machine is used but the QEMU binary, libvirt's library and /dev/kvm where it
// works: the libvirt driver is embedded in this process with its state in a temporary directory,
// and so is the network (package network: no bridge, no privilege). [Lab.Close] removes
// everything, and a keeper (package keeper) does so when the process is killed. vms/assets.sh
// installs and builds what the Lab needs.
//
// Build with cgo and the tag libvirt_dlopen: libvirt's library is loaded when the first Lab is
// opened. Without one of them there is no Lab, and the package only offers the types by which
// other packages describe hosts.
package vms
