package vms

import (
	"debug/elf"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// guestModules lists the modules that the guest needs beyond Debian's built-in drivers: the bus,
// the evidence port, the network card, the watchdogs, and the ACPI power button with the device
// that reports it.
var guestModules = []string{"virtio_pci", "virtio_console", "virtio_net", "softdog", "i6300esb", "button", "evdev"}

// nodeModules are for a real node as well: the disk and its file system, whose checksums are of a
// module that it doesn't name as a dependency, and what containers are made of.
var nodeModules = append(slices.Clone(guestModules), "virtio_blk", "crc32c_generic", "ext4", "overlay", "veth")

// storageModules are for one that mounts volumes: 9P by a socket.
var storageModules = append(slices.Clone(nodeModules), "9p", "9pnet_fd")

// loadOrder returns the files of the wanted modules and of all that they depend on, dependencies
// first. Dependencies come from the modules themselves, because modules.dep is made by depmod only
// when a kernel package is installed. A module that isn't there is taken to be built into the
// kernel; if it was not, loading what needs it fails in the guest.
func loadOrder(files map[string]string, wanted []string) ([]string, error) {
	var order []string
	seen := map[string]bool{}
	var visit func(name string) error
	visit = func(name string) error {
		path, found := files[name]
		if seen[name] || !found {
			return nil
		}
		seen[name] = true
		needs, err := dependencies(path)
		if err != nil {
			return err
		}
		for _, n := range needs {
			if err := visit(n); err != nil {
				return err
			}
		}
		order = append(order, path)
		return nil
	}
	for _, name := range wanted {
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// moduleFiles finds the modules under root, by the name that the kernel gives them.
func moduleFiles(root string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".ko" {
			files[strings.ReplaceAll(strings.TrimSuffix(filepath.Base(path), ".ko"), "-", "_")] = path
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find kernel modules: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("find kernel modules: none in %s; run vms/assets.sh", root)
	}
	return files, nil
}

// dependencies reads the "depends" entry of a module's .modinfo section.
func dependencies(path string) ([]string, error) {
	module, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read kernel module %s: %w", path, err)
	}
	defer module.Close()
	section := module.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("read kernel module %s: it has no .modinfo section", path)
	}
	info, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("read kernel module %s: %w", path, err)
	}
	for entry := range strings.SplitSeq(string(info), "\x00") {
		if list, found := strings.CutPrefix(entry, "depends="); found && list != "" {
			return strings.Split(strings.ReplaceAll(list, "-", "_"), ","), nil
		}
	}
	return nil, nil
}
