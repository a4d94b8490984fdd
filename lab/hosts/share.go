package hosts

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hugelgupf/p9/fsimpl/templatefs"
	"github.com/hugelgupf/p9/p9"
	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/lab/record"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/model"
	"github.com/fencelab/fencelab/vms"
	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// sharing has the volume of real nodes: a directory with one file, which their kernels mount by 9P
// over a port out of band. So what mounts and writes is theirs, and seen here.
//
// A request of a host that can't reach the storage waits, as one over a network would; one of a
// host that is kept out fails.
type sharing struct {
	*Storage
	thread  thread
	ctx     context.Context
	reaches func(host string) bool // whether the way from the host is open
	// What follows changes within do: the boots that run, the mounts that stand, and the hosts
	// whose next write is an event, by host; and the file.
	boots   map[string]string
	mounts  map[string]*mount
	unseen  map[string]bool
	content []byte
}

func share(ctx context.Context, v scenarios.Volume, stream *record.Stream, reaches func(host string) bool) *sharing {
	s := &sharing{
		thread: newThread(), ctx: ctx, reaches: reaches,
		boots: map[string]string{}, mounts: map[string]*mount{}, unseen: map[string]bool{},
	}
	s.Storage = &Storage{takes: v, do: s.thread.do, await: s.thread.await, stir: s.look}
	s.array = model.NewArray(v.Name, stream.Since, func(e history.Event) {
		stream.Now(e)
		if e.Kind != history.VolumeWritten {
			s.look()
		}
	})
	return s
}

// look makes an event of each host's next write. It is called within do.
func (s *sharing) look() {
	for host := range s.boots {
		s.unseen[host] = true
	}
}

// stir lets those look again who wait for a way to be open.
func (s *sharing) stir() {
	if s != nil {
		s.do(s.look)
	}
}

// notice takes note of what happened to the boots of hosts.
func (s *sharing) notice(e vms.Event) {
	if s == nil || e.Late {
		return
	}
	switch e.Kind {
	case vms.Kind(evidence.Boot):
		s.do(func() { s.boots[e.Host] = e.Boot })
	case vms.PoweredOff, vms.Reset:
		s.do(func() {
			s.boots[e.Host] = ""
			delete(s.mounts, e.Host)
			s.array.Ended(e.Host)
		})
	}
}

// connect registers a host with the storage, and returns the function that serves each connection
// of its machine.
func (s *sharing) connect(host string) func(io.ReadWriteCloser) {
	s.do(func() {
		s.boots[host] = ""
		s.array.Connect(host, func() string { return s.boots[host] })
	})
	return func(conn io.ReadWriteCloser) {
		l := &line{ReadWriteCloser: conn}
		_ = p9.NewServer(attacher{s, host, l}).Handle(l, l) // it ends with the machine
	}
}

// line is the connection of a machine. What ends with it was not unmounted.
type line struct {
	io.ReadWriteCloser
	over atomic.Bool
}

// Read implements io.Reader.
func (l *line) Read(to []byte) (int, error) {
	n, err := l.ReadWriteCloser.Read(to)
	if err != nil {
		l.over.Store(true)
	}
	return n, err
}

func (s *sharing) close() {
	if s != nil {
		s.do(func() { s.thread.closed = true })
	}
}

// open waits until the way from a host is open.
func (s *sharing) open(host string) error {
	return s.await(s.ctx, func() (bool, error) { return s.thread.closed || s.reaches(host), nil })
}

// attacher is how a host mounts the volume. It implements p9.Attacher.
type attacher struct {
	s    *sharing
	host string
	line *line
}

// Attach implements p9.Attacher.
func (a attacher) Attach() (_ p9.File, err error) {
	m := &mount{s: a.s, host: a.host, line: a.line}
	a.s.do(func() {
		if err = a.s.mount(a.host, a.s.reaches(a.host)); err == nil {
			a.s.mounts[a.host] = m
		}
	})
	if err != nil {
		return nil, unix.EACCES
	}
	return &node{mount: m, root: true, first: true}, nil
}

// mount is one mount of the volume.
type mount struct {
	s    *sharing
	host string
	line *line
}

// end ends it, once it can. What has ended with its boot needs no end.
func (m *mount) end() {
	_ = m.s.await(m.s.ctx, func() (bool, error) {
		if m.s.thread.closed || m.line.over.Load() || m.s.mounts[m.host] != m {
			return true, nil
		}
		if m.s.unmount(m.host) != nil {
			return false, nil
		}
		delete(m.s.mounts, m.host)
		return true, nil
	})
}

// write is a write of a boot, which names itself.
func (m *mount) write(data []byte) (err error) {
	if err := m.s.open(m.host); err != nil {
		return unix.EIO
	}
	boot, _, _ := strings.Cut(string(data), " ")
	m.s.do(func() {
		switch {
		case m.s.mounts[m.host] != m || boot != m.s.boots[m.host]:
			err = unix.ESTALE // it was on its way when its boot ended
		case m.s.array.Fenced(m.host):
			err = unix.EIO
		default:
			m.s.content = append([]byte(nil), data...)
			if m.s.unseen[m.host] {
				m.s.unseen[m.host] = false
				m.s.array.Write(m.host)
			}
		}
	})
	return err
}

// node is the directory of a mount or the file in it. It implements p9.File.
type node struct {
	templatefs.NoopFile
	p9.DefaultWalkGetAttr
	mount *mount
	root  bool
	first bool // the node that the mount has as long as it stands
}

func (n *node) qid() p9.QID {
	if n.root {
		return p9.QID{Type: p9.TypeDir, Path: 1}
	}
	return p9.QID{Type: p9.TypeRegular, Path: 2}
}

// Walk implements p9.File.
func (n *node) Walk(names []string) ([]p9.QID, p9.File, error) {
	switch {
	case len(names) == 0:
		return nil, &node{mount: n.mount, root: n.root}, nil
	case n.root && len(names) == 1 && names[0] == evidence.VolumeFile:
		file := &node{mount: n.mount}
		return []p9.QID{file.qid()}, file, nil
	}
	return nil, nil, unix.ENOENT
}

// GetAttr implements p9.File.
func (n *node) GetAttr(p9.AttrMask) (p9.QID, p9.AttrMask, p9.Attr, error) {
	attr := p9.Attr{Mode: p9.ModeDirectory | 0o777, NLink: 2, BlockSize: 4096, MTimeSeconds: uint64(time.Now().Unix())}
	if !n.root {
		attr.Mode, attr.NLink = p9.ModeRegular|0o666, 1
		n.mount.s.do(func() { attr.Size = uint64(len(n.mount.s.content)) })
	}
	return n.qid(), p9.AttrMaskAll, attr, nil
}

// SetAttr implements p9.File. No one reads a file's times here.
func (*node) SetAttr(p9.SetAttrMask, p9.SetAttr) error { return nil }

// Open implements p9.File.
func (n *node) Open(p9.OpenFlags) (p9.QID, uint32, error) { return n.qid(), 0, nil }

// ReadAt implements p9.File.
func (n *node) ReadAt(to []byte, at int64) (count int, err error) {
	if err := n.mount.s.open(n.mount.host); err != nil {
		return 0, unix.EIO
	}
	n.mount.s.do(func() {
		if at < int64(len(n.mount.s.content)) {
			count = copy(to, n.mount.s.content[at:])
		}
	})
	return count, nil
}

// WriteAt implements p9.File. The workload writes the whole file each time.
func (n *node) WriteAt(data []byte, at int64) (int, error) {
	if n.root || at != 0 {
		return 0, unix.EINVAL
	}
	if err := n.mount.write(data); err != nil {
		return 0, err
	}
	return len(data), nil
}

// FSync implements p9.File.
func (*node) FSync() error { return nil }

// Readdir implements p9.File.
func (n *node) Readdir(offset uint64, _ uint32) (p9.Dirents, error) {
	if !n.root || offset > 0 {
		return nil, nil
	}
	return p9.Dirents{{QID: (&node{}).qid(), Offset: 1, Type: p9.TypeRegular, Name: evidence.VolumeFile}}, nil
}

// Close implements p9.File.
func (n *node) Close() error {
	if n.first {
		n.mount.end()
	}
	return nil
}
