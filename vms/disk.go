//go:build cgo && libvirt_dlopen

package vms

import (
	"cmp"
	"fmt"
	"os/exec"
	"path/filepath"
)

// imager makes the layers of disks.
const imager = "qemu-img"

// addDisk gives a host a layer of its own upon the image of a disk, and what else a real node has.
func (l *Lab) addDisk(s *spec, c HostConfig, number int) (err error) {
	if l.nodes == nil {
		modules := nodeModules
		if c.Storage != nil {
			modules = storageModules
		}
		if l.nodes, err = loadImage(l.options.Assets, modules); err != nil {
			return err
		}
	}
	base, err := filepath.Abs(c.Disk)
	if err != nil {
		return err
	}
	// The link to the newest image may change while this one is in use.
	if base, err = filepath.EvalSymlinks(base); err != nil {
		return fmt.Errorf("find the image of its disk: %w; run make nodes", err)
	}
	s.disk = filepath.Join(l.dir, fmt.Sprintf("%d.qcow2", number))
	if out, err := exec.Command(imager, "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, s.disk).CombinedOutput(); err != nil {
		return fmt.Errorf("make its disk: %w %s; run make nodes", err, out)
	}
	s.journal = filepath.Join(l.options.Evidence, c.Name+".journal")
	s.memoryMiB = cmp.Or(c.MemoryMiB, memoryOfNode)
	return nil
}
