//go:build cgo && libvirt_dlopen

package libvirt

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/beevik/etree"
	"libvirt.org/go/libvirt"

	"github.com/fencelab/fencelab/fakebmc"
)

// Inventory implements fakebmc.Inventoried: what the domain's definition says, with the sizes of
// the disks that libvirt can look at.
func (d *Domain) Inventory() (fakebmc.Inventory, error) {
	known, err := d.definition()
	if err != nil {
		return fakebmc.Inventory{}, err
	}
	return known.inventory, nil
}

// sizes fills in how large the disks are. One that isn't there yet, or is elsewhere, has no size.
func sizes(dom *libvirt.Domain, drives []fakebmc.Drive) {
	for i := range drives {
		if info, err := dom.GetBlockInfo(drives[i].Name, 0); err == nil {
			drives[i].Bytes = int64(info.Capacity)
		}
	}
}

// inventory is what the definition says of the machine.
func (d definition) inventory() fakebmc.Inventory {
	i := fakebmc.Inventory{
		Modules:    []fakebmc.Module{{MiB: d.mebibytes()}},
		Processors: d.processors(),
		BIOS:       map[string]string{"BootMode": d.mode()},
	}
	if loader := d.os().SelectElement("loader"); loader != nil {
		i.SecureBoot = loader.SelectAttrValue("secure", "no") == "yes"
	}
	for _, nic := range d.devices().SelectElements("interface") {
		up := true
		if link := nic.SelectElement("link"); link != nil {
			up = link.SelectAttrValue("state", "up") == "up"
		}
		if mac := nic.SelectElement("mac"); mac != nil { // libvirt gives each one
			i.NICs = append(i.NICs, fakebmc.NIC{MAC: mac.SelectAttrValue("address", ""), Up: up})
		}
	}
	for _, disk := range d.disks("disk") {
		if target := disk.SelectElement("target"); target != nil {
			rotates, _ := strconv.Atoi(target.SelectAttrValue("rotation_rate", "1")) // 1 is none
			i.Drives = append(i.Drives, fakebmc.Drive{Name: target.SelectAttrValue("dev", ""), Rotates: rotates > 1})
		}
	}
	return i
}

// processors are the sockets. A domain without a topology has one for each of its CPUs.
func (d definition) processors() []fakebmc.Processor {
	cpus := max(number(d.document.FindElement("/domain/vcpu"), 1), 1)
	sockets, threads, model := cpus, 1, "virtual CPU"
	if m := d.document.FindElement("/domain/cpu/model"); m != nil {
		model = cmp.Or(strings.TrimSpace(m.Text()), model)
	}
	if t := d.document.FindElement("/domain/cpu/topology"); t != nil {
		sockets, _ = strconv.Atoi(t.SelectAttrValue("sockets", "1"))
		threads, _ = strconv.Atoi(t.SelectAttrValue("threads", "1"))
	}
	sockets = min(max(sockets, 1), cpus)
	architecture := ""
	if t := d.os().SelectElement("type"); t != nil {
		architecture = t.SelectAttrValue("arch", "")
	}
	each := cpus / sockets
	var all []fakebmc.Processor
	for range sockets {
		all = append(all, fakebmc.Processor{Model: model, Architecture: architecture, Cores: max(each/max(threads, 1), 1), Threads: each})
	}
	return all
}

// units maps libvirt's units of memory to KiB.
var units = map[string]float64{"b": 1. / 1024, "bytes": 1. / 1024, "KB": 1000. / 1024, "k": 1, "KiB": 1, "MB": 1e6 / 1024, "M": 1024, "MiB": 1024, "GB": 1e9 / 1024, "G": 1 << 20, "GiB": 1 << 20}

func (d definition) mebibytes() int {
	memory := d.document.FindElement("/domain/memory")
	if memory == nil {
		return 0
	}
	return int(float64(number(memory, 0)) * units[memory.SelectAttrValue("unit", "KiB")] / 1024)
}

// number is what an element says, or a default.
func number(e *etree.Element, otherwise int) int {
	if e == nil {
		return otherwise
	}
	n, err := strconv.Atoi(strings.TrimSpace(e.Text()))
	if err != nil {
		return otherwise
	}
	return n
}
