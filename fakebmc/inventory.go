package fakebmc

import (
	"crypto/sha256"
	"fmt"
)

// Inventory is what an inspection finds in a machine. Nothing of it can be changed through the BMC.
type Inventory struct {
	Processors []Processor
	Modules    []Module
	NICs       []NIC
	Drives     []Drive
	// SecureBoot says that the firmware boots only what is signed.
	SecureBoot bool
	// BIOS are the attributes of the firmware's set-up.
	BIOS map[string]string
}

// Processor is a socket with a processor in it.
type Processor struct {
	Model string
	// Architecture is as the kernel calls it: x86_64, aarch64.
	Architecture   string
	Cores, Threads int
}

// Module is a module of memory.
type Module struct{ MiB int }

// NIC is a port of a network card.
type NIC struct {
	MAC string
	Up  bool
}

// Drive is a disk.
type Drive struct {
	Name    string
	Bytes   int64
	Rotates bool
}

// MiB is all of the memory.
func (i *Inventory) MiB() (sum int) {
	for _, m := range i.Modules {
		sum += m.MiB
	}
	return sum
}

// Inventoried is a System that knows what it is made of.
type Inventoried interface {
	Inventory() (Inventory, error)
}

// TypicalInventory is that of a small server: always the same for a name, and with other addresses
// than any other name has.
func TypicalInventory(name string) Inventory {
	h := sha256.Sum256([]byte("inventory of " + name))
	// Locally administered, and of nobody in particular.
	mac := func(port byte) string {
		return fmt.Sprintf("52:54:%02x:%02x:%02x:%02x", h[0], h[1], h[2], h[3]&0xf0|port)
	}
	return Inventory{
		Processors: []Processor{{Model: "fakebmc CPU", Architecture: "x86_64", Cores: 8, Threads: 16}},
		Modules:    []Module{{MiB: 16 << 10}, {MiB: 16 << 10}},
		NICs:       []NIC{{MAC: mac(0), Up: true}, {MAC: mac(1)}},
		Drives:     []Drive{{Name: "sda", Bytes: 480e9}},
		BIOS:       map[string]string{"BootMode": BootUEFI},
	}
}
