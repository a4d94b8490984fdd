package redfish

import (
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/fencelab/fencelab/fakebmc"
)

const (
	processorType  = "#Processor.v1_23_0.Processor"
	memoryType     = "#Memory.v1_24_0.Memory"
	interfaceType  = "#EthernetInterface.v1_12_5.EthernetInterface"
	storageType    = "#Storage.v1_22_0.Storage"
	driveType      = "#Drive.v1_22_0.Drive"
	biosType       = "#Bios.v1_3_0.Bios"
	secureBootType = "#SecureBoot.v1_2_0.SecureBoot"
)

// part is a kind of thing in a machine, below its system.
type part struct {
	// property of the system leads to it.
	property string
	typ      string
	name     string // of the collection, and of each with its number
	// count is how many there are; nil for one that is no collection.
	count func(*fakebmc.Inventory) int
	// show fills in the resource of the n-th, counted from 0.
	show func(o object, i *fakebmc.Inventory, n int)
}

// parts are all of them.
var parts = []part{
	{"Processors", processorType, "Processor", func(i *fakebmc.Inventory) int { return len(i.Processors) }, func(o object, i *fakebmc.Inventory, n int) {
		p := i.Processors[n]
		architecture, instructions := architectureOf(p.Architecture)
		o["ProcessorType"], o["Socket"], o["Model"] = "CPU", "CPU"+strconv.Itoa(n), p.Model
		o["ProcessorArchitecture"], o["InstructionSet"] = architecture, instructions
		o["TotalCores"], o["TotalThreads"] = p.Cores, p.Threads
	}},
	{"Memory", memoryType, "Memory module", func(i *fakebmc.Inventory) int { return len(i.Modules) }, func(o object, i *fakebmc.Inventory, n int) {
		o["MemoryType"], o["CapacityMiB"], o["DeviceLocator"] = "DRAM", i.Modules[n].MiB, "DIMM"+strconv.Itoa(n)
	}},
	{"EthernetInterfaces", interfaceType, "Ethernet interface", func(i *fakebmc.Inventory) int { return len(i.NICs) }, func(o object, i *fakebmc.Inventory, n int) {
		nic := i.NICs[n]
		o["MACAddress"], o["PermanentMACAddress"], o["InterfaceEnabled"], o["LinkStatus"] = nic.MAC, nic.MAC, true, "LinkDown"
		if nic.Up {
			o["LinkStatus"] = "LinkUp"
		}
	}},
	{"Storage", storageType, "Storage", func(i *fakebmc.Inventory) int { return min(len(i.Drives), 1) }, func(o object, i *fakebmc.Inventory, _ int) {
		path := o["@odata.id"].(string) + "/Drives"
		var ids []string
		for n := range i.Drives {
			ids = append(ids, strconv.Itoa(n+1))
		}
		o["Drives"], o["Drives@odata.count"] = links(path, ids...), len(ids)
	}},
	{"Bios", biosType, "BIOS", nil, func(o object, i *fakebmc.Inventory, _ int) {
		attributes := object{}
		for name, value := range i.BIOS {
			attributes[name] = value
		}
		o["Attributes"] = attributes
	}},
	{"SecureBoot", secureBootType, "Secure boot", nil, func(o object, i *fakebmc.Inventory, _ int) {
		o["SecureBootEnable"], o["SecureBootCurrentBoot"], o["SecureBootMode"] = i.SecureBoot, "Disabled", "SetupMode"
		if i.SecureBoot {
			o["SecureBootCurrentBoot"], o["SecureBootMode"] = "Enabled", "UserMode"
		}
	}},
}

// drivesOf is what the path of a drive begins with, below the system.
const drivesOf = "/Storage/1/Drives/"

// architectureOf is what Redfish calls an architecture, and its instructions.
func architectureOf(kernel string) (architecture, instructions string) {
	switch kernel {
	case "x86_64":
		return "x86", "x86-64"
	case "aarch64":
		return "ARM", "ARM-A64"
	}
	return "OEM", "OEM"
}

// reference is a link in what is read often, where maps are dear.
type reference struct {
	ID string `json:"@odata.id"`
}

// inventoried adds to a system what its inventory comes to, and where that is found in full.
func inventoried(b *fakebmc.BMC, r object) {
	s, ok := b.System().(fakebmc.Inventoried)
	if !ok {
		return
	}
	i, err := s.Inventory()
	if err != nil {
		return // the resources say why
	}
	cores, threads, model := 0, 0, ""
	for _, p := range i.Processors {
		cores, threads, model = cores+p.Cores, threads+p.Threads, p.Model
	}
	r["ProcessorSummary"] = object{"Count": len(i.Processors), "CoreCount": cores, "LogicalProcessorCount": threads, "Model": model, "Status": healthy()}
	// The unit is a GiB, of which there may be a fraction.
	r["MemorySummary"] = object{"TotalSystemMemoryGiB": math.Round(float64(i.MiB())/1024*1000) / 1000, "Status": healthy()}
	for _, p := range parts {
		r[p.property] = reference{b.SystemPath() + "/" + p.property}
	}
}

// inventoryEndpoint is that of a part of a machine, if there is one of this path below its system.
func inventoryEndpoint(b *fakebmc.BMC, rest string, e *endpoint) {
	s, ok := b.System().(fakebmc.Inventoried)
	if !ok {
		return
	}
	name, below, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	for _, p := range parts {
		if p.property != name || p.count == nil && below != "" {
			continue
		}
		i, err := s.Inventory()
		if err != nil {
			e.get = func() response { return refusal(http.StatusInternalServerError, fakebmc.MsgInternalError, err) }
			return
		}
		p.endpoint(b.SystemPath()+"/"+name, rest, below, &i, e)
	}
}

// endpoint is that of one of these, of all, or of a drive of the storage.
func (p *part) endpoint(path, rest, below string, i *fakebmc.Inventory, e *endpoint) {
	one := func(path, typ, id, name string, show func(object)) {
		e.get = shows(func() object {
			o := resource(path, typ, id, name)
			show(o)
			if typ != biosType && typ != secureBootType { // which have none
				o["Status"] = healthy()
			}
			return o
		})
	}
	count := 0
	if p.count != nil {
		count = p.count(i)
	}
	n, err := strconv.Atoi(below)
	switch {
	case p.count == nil:
		one(path, p.typ, p.property, p.name, func(o object) { p.show(o, i, 0) })
	case below == "":
		var ids []string
		for n := range count {
			ids = append(ids, strconv.Itoa(n+1))
		}
		kind := strings.TrimPrefix(p.typ[:strings.IndexByte(p.typ, '.')], "#")
		e.get = shows(func() object { return collection(path, kind+"Collection", p.name+"s", ids...) })
	case err == nil && 0 < n && n <= count && below == strconv.Itoa(n):
		one(path+"/"+below, p.typ, below, p.name+" "+below, func(o object) { p.show(o, i, n-1) })
	case strings.HasPrefix(rest, drivesOf):
		id := strings.TrimPrefix(rest, drivesOf)
		if n, err := strconv.Atoi(id); err == nil && 0 < n && n <= len(i.Drives) && id == strconv.Itoa(n) {
			one(path+strings.TrimPrefix(rest, "/Storage"), driveType, id, "Drive "+id, func(o object) {
				d := i.Drives[n-1]
				o["CapacityBytes"], o["MediaType"] = d.Bytes, "SSD"
				if d.Rotates {
					o["MediaType"] = "HDD"
				}
				o["PhysicalLocation"] = object{"PartLocation": object{"ServiceLabel": d.Name}}
			})
		}
	}
}
