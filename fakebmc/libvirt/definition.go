//go:build cgo && libvirt_dlopen

package libvirt

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/beevik/etree"

	"github.com/fencelab/fencelab/fakebmc"
)

// definition is a domain's XML (https://libvirt.org/formatdomain.html). It is
// edited in place rather than decoded, so that nothing that this package doesn't
// know is lost from a domain of others.
type definition struct{ document *etree.Document }

func parse(text string) (definition, error) {
	d := definition{etree.NewDocument()}
	if err := d.document.ReadFromString(text); err != nil {
		return d, fmt.Errorf("read the domain's definition: %w", err)
	}
	if d.document.FindElement("/domain/os") == nil || d.document.FindElement("/domain/devices") == nil {
		return d, errors.New("read the domain's definition: it has no <os> or no <devices>")
	}
	return d, nil
}

func (d definition) String() (string, error) { return d.document.WriteToString() }

func (d definition) os() *etree.Element      { return d.document.FindElement("/domain/os") }
func (d definition) devices() *etree.Element { return d.document.FindElement("/domain/devices") }

// disks are the disks of a kind: disk (also a LUN), cdrom or floppy.
func (d definition) disks(kind string) (found []*etree.Element) {
	for _, disk := range d.devices().SelectElements("disk") {
		is := disk.SelectAttrValue("device", "disk")
		if is == kind || kind == "disk" && is == "lun" {
			found = append(found, disk)
		}
	}
	return found
}

// bootable are the devices of a target of a boot override.
func (d definition) bootable(target string) []*etree.Element {
	switch target {
	case fakebmc.BootPxe:
		return d.devices().SelectElements("interface")
	case fakebmc.BootCd:
		return d.disks("cdrom")
	case fakebmc.BootHdd:
		return d.disks("disk")
	}
	return nil
}

// targets are those of a boot override that the domain can follow. A CD can always
// be inserted. A domain that boots a kernel of the machine follows none.
func (d definition) targets() []string {
	targets := []string{fakebmc.BootNone}
	if d.os().SelectElement("kernel") != nil {
		return targets
	}
	for _, t := range []string{fakebmc.BootPxe, fakebmc.BootCd, fakebmc.BootHdd} {
		if t == fakebmc.BootCd || len(d.bootable(t)) > 0 {
			targets = append(targets, t)
		}
	}
	return targets
}

// mode is the firmware's. Another one would need another firmware and its variables.
func (d definition) mode() string {
	os := d.os()
	loader := os.SelectElement("loader")
	if os.SelectAttrValue("firmware", "") == "efi" || os.SelectElement("nvram") != nil ||
		loader != nil && loader.SelectAttrValue("type", "rom") == "pflash" {
		return fakebmc.BootUEFI
	}
	return fakebmc.BootLegacy
}

// order is the order of boot devices that the domain has by itself.
func (d definition) order() (devices []*etree.Element) {
	for _, boot := range d.os().SelectElements("boot") {
		target := map[string]string{"network": fakebmc.BootPxe, "cdrom": fakebmc.BootCd, "hd": fakebmc.BootHdd}[boot.SelectAttrValue("dev", "")]
		devices = append(devices, d.bootable(target)...)
	}
	if devices != nil {
		return devices
	}
	place := func(e *etree.Element) int {
		n, _ := strconv.Atoi(e.SelectElement("boot").SelectAttrValue("order", "0"))
		return n
	}
	for _, e := range d.devices().ChildElements() {
		if e.SelectElement("boot") != nil {
			devices = append(devices, e)
		}
	}
	slices.SortStableFunc(devices, func(a, b *etree.Element) int { return place(a) - place(b) })
	return devices
}

// bootFrom puts the devices of a target before the others.
func (d definition) bootFrom(target string) error {
	first := d.bootable(target)
	if len(first) == 0 {
		return fmt.Errorf("it has no device to boot from by %s", target)
	}
	order := slices.Clone(first)
	for _, e := range d.order() {
		if !slices.Contains(order, e) {
			order = append(order, e)
		}
	}
	for _, boot := range d.os().SelectElements("boot") {
		d.os().RemoveChild(boot)
	}
	for _, e := range d.devices().ChildElements() {
		if boot := e.SelectElement("boot"); boot != nil {
			e.RemoveChild(boot)
		}
	}
	for i, e := range order {
		e.CreateElement("boot").CreateAttr("order", strconv.Itoa(i+1))
	}
	return nil
}

// maxIDE is how many drives the IDE controllers of a machine have.
const maxIDE = 4

// insert adds a CD drive with an image, before the domain's own, and returns the
// drive's name.
func (d definition) insert(image string) (drive string, err error) {
	machine := ""
	if t := d.os().SelectElement("type"); t != nil {
		machine = t.SelectAttrValue("machine", "")
	}
	bus, prefix, most := "scsi", "sd", 26
	switch {
	case strings.Contains(machine, "q35"):
		bus = "sata"
	case machine == "pc" || strings.Contains(machine, "i440fx"):
		bus, prefix, most = "ide", "hd", maxIDE
	}
	var taken []string
	for _, disk := range d.devices().SelectElements("disk") {
		if t := disk.SelectElement("target"); t != nil {
			taken = append(taken, t.SelectAttrValue("dev", ""))
		}
	}
	for letter := range most {
		drive = prefix + string(rune('a'+letter))
		if slices.Contains(taken, drive) {
			continue
		}
		disk := cdrom(image, drive, bus)
		at := len(d.devices().Child)
		if cds := d.disks("cdrom"); len(cds) > 0 {
			at = cds[0].Index()
		}
		d.devices().InsertChildAt(at, disk)
		return drive, nil
	}
	return "", fmt.Errorf("its %s bus has no place for a further drive", bus)
}

// cdrom is a drive; image may be empty.
func cdrom(image, drive, bus string) *etree.Element {
	disk := etree.NewElement("disk")
	disk.CreateAttr("type", "file")
	disk.CreateAttr("device", "cdrom")
	driver := disk.CreateElement("driver")
	driver.CreateAttr("name", "qemu")
	driver.CreateAttr("type", "raw")
	if image != "" {
		disk.CreateElement("source").CreateAttr("file", image)
	}
	target := disk.CreateElement("target")
	target.CreateAttr("dev", drive)
	target.CreateAttr("bus", bus)
	disk.CreateElement("readonly")
	return disk
}

// changed is the device XML of a drive of the domain with another image, or none.
func (d definition) changed(drive, image string) (string, error) {
	for _, disk := range d.disks("cdrom") {
		target := disk.SelectElement("target")
		if target == nil || target.SelectAttrValue("dev", "") != drive {
			continue
		}
		document := etree.NewDocument()
		document.SetRoot(cdrom(image, drive, target.SelectAttrValue("bus", "")))
		return document.WriteToString()
	}
	return "", fmt.Errorf("its drive %s is gone", drive)
}
