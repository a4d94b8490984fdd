//go:build cgo && libvirt_dlopen

package libvirt

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/beevik/etree"

	"github.com/fencelab/fencelab/fakebmc"
)

// domain has what a definition can vary in.
func domain(os, devices string) string {
	return "<domain xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>" +
		"<os>" + os + "</os><devices>" + devices + "</devices>" +
		"<qemu:commandline><qemu:arg value='-s'/></qemu:commandline></domain>"
}

func disk(kind, name, more string) string {
	return fmt.Sprintf("<disk device='%s'><target dev='%s'/>%s</disk>", kind, name, more)
}

const (
	pc  = "<type machine='pc-i440fx-7.2'>hvm</type>"
	q35 = "<type machine='pc-q35-7.2'>hvm</type>"
	nic = "<interface type='user'/>"
)

func TestDefinition(t *testing.T) {
	for _, c := range []struct {
		name, text    string
		mode, targets string
		target        string // that it boots from
		order         string // then
	}{
		{"a disk", domain(pc, disk("disk", "hda", "")), "Legacy", "None Cd Hdd", "Hdd", "hda"},
		{"a disk of the default kind", domain(pc, "<disk><target dev='hda'/></disk>"), "Legacy", "None Cd Hdd", "Hdd", "hda"},
		{"a LUN", domain(pc, disk("lun", "sda", "")), "Legacy", "None Cd Hdd", "Hdd", "sda"},
		{"a CD has none to boot from", domain(pc, disk("disk", "hda", "")), "Legacy", "None Cd Hdd", "Cd", "error"},
		{"the OS's order", domain(pc+"<boot dev='cdrom'/><boot dev='hd'/>", disk("disk", "hda", "")+disk("cdrom", "hdb", "")+nic),
			"Legacy", "None Pxe Cd Hdd", "Pxe", "interface hdb hda"},
		{"the OS's order, a CD first", domain(pc+"<boot dev='hd'/><boot dev='network'/>", disk("disk", "hda", "")+disk("cdrom", "hdb", "")+nic),
			"Legacy", "None Pxe Cd Hdd", "Cd", "hdb hda interface"},
		{"the devices' order", domain(pc, disk("disk", "hda", "<boot order='2'/>")+nic+disk("disk", "hdb", "<boot order='10'/>")+
			"<interface><boot order='1'/></interface>"), "Legacy", "None Pxe Cd Hdd", "Hdd", "hda hdb interface"},
		{"a device that is no target keeps its place", domain(pc, disk("disk", "hda", "<boot order='2'/>")+"<redirdev><boot order='1'/></redirdev>"),
			"Legacy", "None Cd Hdd", "Hdd", "hda redirdev"},
		{"UEFI by firmware", "<domain><os firmware='efi'>" + q35 + "</os><devices/></domain>", "UEFI", "None Cd", "Hdd", "error"},
		{"UEFI by loader", domain(q35+"<loader type='pflash'>/OVMF.fd</loader>", nic), "UEFI", "None Pxe Cd", "Pxe", "interface"},
		{"BIOS by loader", domain(q35+"<loader>/bios.bin</loader>", nic), "Legacy", "None Pxe Cd", "Pxe", "interface"},
		{"UEFI by variables", domain(q35+"<nvram>/vars.fd</nvram>", nic), "UEFI", "None Pxe Cd", "Pxe", "interface"},
		{"a kernel of the machine's", domain(pc+"<kernel>/vmlinuz</kernel>", disk("disk", "hda", "")+nic), "Legacy", "None", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := parse(c.text)
			if err != nil {
				t.Fatal(err)
			}
			if got := d.mode(); got != c.mode {
				t.Errorf("its mode is %s, want %s", got, c.mode)
			}
			if got := strings.Join(d.targets(), " "); got != c.targets {
				t.Errorf("its targets are %s, want %s", got, c.targets)
			}
			if c.target == "" {
				return
			}
			if err := d.bootFrom(c.target); (err != nil) != (c.order == "error") {
				t.Fatal(err)
			} else if err != nil {
				return
			}
			text, err := d.String()
			if err != nil {
				t.Fatal(err)
			}
			if d, err = parse(text); err != nil {
				t.Fatal(err)
			}
			var order []string
			for _, e := range d.order() {
				name := e.Tag
				if target := e.SelectElement("target"); target != nil {
					name = target.SelectAttrValue("dev", "")
				}
				order = append(order, name)
			}
			if got := strings.Join(order, " "); got != c.order {
				t.Errorf("the order is %s, want %s:\n%s", got, c.order, text)
			}
			if d.os().SelectElement("boot") != nil {
				t.Errorf("libvirt takes one order only:\n%s", text)
			}
			if c.text != text && !strings.Contains(text, "qemu:arg") {
				t.Errorf("what isn't known here was lost:\n%s", text)
			}
		})
	}
}

func TestInsert(t *testing.T) {
	full := disk("disk", "hda", "") + disk("disk", "hdb", "") + disk("disk", "hdc", "") + disk("cdrom", "hdd", "")
	for _, c := range []struct {
		name, text, drive, bus string
		cds                    string // in their order
	}{
		{"IDE", domain(pc, disk("disk", "vda", "")), "hda", "ide", "hda"},
		{"IDE with a disk", domain("<type machine='pc'>hvm</type>", disk("disk", "hda", "")), "hdb", "ide", "hdb"},
		{"IDE without a place", domain(pc, full), "", "", ""},
		{"SATA before the domain's own CD", domain(q35, disk("cdrom", "sda", "")), "sdb", "sata", "sdb sda"},
		{"another machine", domain("<type machine='virt-7.2'>hvm</type>", ""), "sda", "scsi", "sda"},
		{"no machine", domain("<type>hvm</type>", ""), "sda", "scsi", "sda"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := parse(c.text)
			if err != nil {
				t.Fatal(err)
			}
			drive, err := d.insert("/images/<a & b>.iso")
			if drive != c.drive || (err != nil) != (c.drive == "") {
				t.Fatalf("the drive is %q, %v; want %q", drive, err, c.drive)
			}
			if err != nil {
				return
			}
			var cds []string
			var ours *etree.Element
			for _, e := range d.disks("cdrom") {
				name := e.SelectElement("target").SelectAttrValue("dev", "")
				cds = append(cds, name)
				if name == drive {
					ours = e
				}
			}
			if got := strings.Join(cds, " "); got != c.cds {
				t.Errorf("the CDs are %s, want %s", got, c.cds)
			}
			if bus := ours.SelectElement("target").SelectAttrValue("bus", ""); bus != c.bus {
				t.Errorf("the bus is %s, want %s", bus, c.bus)
			}
			for _, file := range []string{"/images/other.iso", ""} {
				text, err := d.changed(drive, file)
				if err != nil || strings.Contains(text, "<source") != (file != "") || !strings.Contains(text, file) || !strings.Contains(text, "'"+c.bus+"'") && !strings.Contains(text, `"`+c.bus+`"`) {
					t.Errorf("changed to %q: %s, %v", file, text, err)
				}
			}
			if _, err := d.changed("sdz", ""); err == nil {
				t.Error("a drive that isn't there was changed")
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"", "<domain>", "<domain/>", "<domain><os/></domain>", "<domain><devices/></domain>", "<network><os/><devices/></network>"} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q was taken for a domain", text)
		}
	}
}

// TestInventory: what an inspection finds is what the definition says.
func TestInventory(t *testing.T) {
	const large = `<domain><memory unit='GiB'>4</memory><vcpu>8</vcpu>
<cpu><model>Skylake</model><topology sockets='2' cores='2' threads='2'/></cpu>
<os><type arch='aarch64'>hvm</type><loader secure='yes' type='pflash'>/OVMF.fd</loader></os><devices>
<interface type='user'><mac address='52:54:00:00:00:01'/></interface><interface type='user'><mac address='52:54:00:00:00:02'/><link state='down'/></interface>
<disk device='disk'><target dev='vda' rotation_rate='7200'/></disk><disk device='cdrom'><target dev='sda'/></disk><disk><target dev='vdb'/></disk></devices></domain>`
	const small = `<domain><memory>524288</memory><vcpu>2</vcpu><os><type arch='x86_64'>hvm</type></os><devices/></domain>`
	cpu := fakebmc.Processor{Model: "virtual CPU", Architecture: "x86_64", Cores: 1, Threads: 1}
	for _, c := range []struct {
		name, text string
		want       fakebmc.Inventory
	}{
		{"large", large, fakebmc.Inventory{
			Processors: slices.Repeat([]fakebmc.Processor{{Model: "Skylake", Architecture: "aarch64", Cores: 2, Threads: 4}}, 2),
			Modules:    []fakebmc.Module{{MiB: 4096}},
			NICs:       []fakebmc.NIC{{MAC: "52:54:00:00:00:01", Up: true}, {MAC: "52:54:00:00:00:02"}},
			Drives:     []fakebmc.Drive{{Name: "vda", Rotates: true}, {Name: "vdb"}},
			SecureBoot: true, BIOS: map[string]string{"BootMode": "UEFI"},
		}},
		{"small", small, fakebmc.Inventory{Processors: []fakebmc.Processor{cpu, cpu}, Modules: []fakebmc.Module{{MiB: 512}}, BIOS: map[string]string{"BootMode": "Legacy"}}},
	} {
		d, err := parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.inventory(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
