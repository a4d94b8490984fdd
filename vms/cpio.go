package vms

import (
	"fmt"
	"io"
	"io/fs"
)

// archive writes a "newc" cpio archive. The kernel unpacks this format as its initramfs
// (Documentation/driver-api/early-userspace/buffer-format.rst). The same content always gives the
// same bytes: times and owners are zero.
type archive struct {
	w     io.Writer
	inode int
	size  int
	err   error
}

const (
	cpioDirectory   = 0o040000
	cpioRegular     = 0o100000
	cpioCharDevice  = 0o020000
	cpioEndOfHeader = "TRAILER!!!"
)

func (a *archive) directory(name string) { a.entry(name, cpioDirectory|0o755, nil, 0, 0) }

func (a *archive) file(name string, perm fs.FileMode, content []byte) {
	a.entry(name, cpioRegular|int(perm.Perm()), content, 0, 0)
}

func (a *archive) charDevice(name string, major, minor int) {
	a.entry(name, cpioCharDevice|0o600, nil, major, minor)
}

// close writes the trailer. Archives may follow each other, so close doesn't close the writer.
func (a *archive) close() error {
	a.inode = -1 // the trailer has inode 0
	a.entry(cpioEndOfHeader, 0, nil, 0, 0)
	return a.err
}

func (a *archive) entry(name string, mode int, content []byte, major, minor int) {
	a.inode++
	const links = 1
	a.write(fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.inode, mode, 0, 0, links, 0, len(content), 0, 0, major, minor, len(name)+1, 0))
	a.write(append([]byte(name), 0))
	a.pad()
	a.write(content)
	a.pad()
}

// pad aligns to four bytes, names (counted from the header's start) as well as contents.
func (a *archive) pad() { a.write(make([]byte, -a.size&3)) }

func (a *archive) write(b []byte) {
	if a.err != nil {
		return
	}
	n, err := a.w.Write(b)
	a.size += n
	if err != nil {
		a.err = fmt.Errorf("write initramfs: %w", err)
	}
}
