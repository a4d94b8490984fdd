// Package libvirt lets BMCs control the libvirt domains of a machine, such as those
// of qemu:///system, which somebody else made. It takes the place of sushy-emulator.
//
// A domain's definition is never changed: a boot override and virtual media are
// part of the instance that is started with them, and gone with it. They are what
// the BMC remembers, so they end with this process, too.
package libvirt
