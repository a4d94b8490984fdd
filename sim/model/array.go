package model

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Array is the storage that has a volume, and the only source of events about who has access to it.
//
// It doesn't look at who uses the volume: a host that has mounted it goes on writing when it is
// detached, as with an exported file system, or a disk that all hosts of a rack see. Only a fence
// keeps a host from writing. Storage that takes a detached volume away by force loses the writes
// instead, which is the same harm to whoever wrote.
type Array struct {
	volume string
	now    func() time.Duration
	emit   func(history.Event)
	ports  []*port
}

// port is the access of one host, of which it knows the boot that runs.
type port struct {
	host             string
	boot             func() string
	attached, fenced bool
	// mounted is the boot that has mounted the volume; since is when that wrote first.
	mounted string
	since   time.Duration
}

// NewArray returns storage with a volume that no host has.
func NewArray(volume string, now func() time.Duration, emit func(history.Event)) *Array {
	return &Array{volume: volume, now: now, emit: emit}
}

// Volume is the volume's name.
func (a *Array) Volume() string { return a.volume }

// Connect makes a host known. boot returns the incarnation that runs there.
func (a *Array) Connect(host string, boot func() string) {
	a.ports = append(a.ports, &port{host: host, boot: boot})
}

// Identify writes who has access, without times.
func (a *Array) Identify(to io.Writer) {
	for _, p := range a.ports {
		fmt.Fprintf(to, "port %s %t %t %s %t\n", p.host, p.attached, p.fenced, p.mounted, p.since > 0)
	}
}

func (a *Array) port(host string) *port {
	return a.ports[slices.IndexFunc(a.ports, func(p *port) bool { return p.host == host })]
}

func (a *Array) tell(p *port, kind history.Kind, e history.Event) {
	e.Kind, e.Host, e.Boot, e.Object = kind, p.host, p.boot(), a.volume
	a.emit(e)
}

// Attach gives the volume to a host.
func (a *Array) Attach(host, by string) {
	p := a.port(host)
	a.change(p, &p.attached, true, history.VolumeAttached, by)
}

// Detach takes the volume away from a host, whether or not it is mounted there.
func (a *Array) Detach(host, by string) {
	p := a.port(host)
	a.change(p, &p.attached, false, history.VolumeDetached, by)
}

// Fence has the storage take nothing more from a host.
func (a *Array) Fence(host, by string) {
	p := a.port(host)
	a.change(p, &p.fenced, true, history.VolumeFenced, by)
}

// Unfence lets a host in again.
func (a *Array) Unfence(host, by string) {
	p := a.port(host)
	a.change(p, &p.fenced, false, history.VolumeUnfenced, by)
}

// change gives a state of a port another value, which is an event only if it had another one.
func (a *Array) change(p *port, state *bool, to bool, kind history.Kind, by string) {
	if *state != to {
		*state = to
		a.tell(p, kind, history.Event{Actor: by})
	}
}

// Mount mounts the volume in the boot that runs. It fails unless the host has it and is let in.
func (a *Array) Mount(host string) error {
	p := a.port(host)
	switch {
	case !p.attached:
		return fmt.Errorf("mount %s on %s: it is not attached there", a.volume, host)
	case p.fenced:
		return fmt.Errorf("mount %s on %s: the storage keeps that host out", a.volume, host)
	case p.mounted == "":
		p.mounted, p.since = p.boot(), 0
		a.tell(p, history.VolumeMounted, history.Event{})
	}
	return nil
}

// Mounted reports whether the boot that runs on a host has mounted the volume.
func (a *Array) Mounted(host string) bool { return a.port(host).mounted != "" }

// Unmount ends the mount.
func (a *Array) Unmount(host string) {
	if p := a.port(host); p.mounted != "" {
		p.mounted = ""
		a.tell(p, history.VolumeUnmounted, history.Event{})
	}
}

// Fenced reports whether the storage keeps a host out.
func (a *Array) Fenced(host string) bool { return a.port(host).fenced }

// Ended notes that the boot of a host is over, and with it its mount.
func (a *Array) Ended(host string) { a.port(host).mounted = "" }

// Write is a write of what runs on a host. It is lost unless the volume is mounted there and the
// storage lets it in.
func (a *Array) Write(host string) {
	p := a.port(host)
	if p.mounted == "" || p.fenced {
		return
	}
	if p.since == 0 {
		p.since = a.now()
	}
	a.tell(p, history.VolumeWritten, history.Event{Value: strconv.Itoa(int((a.now() - p.since) / time.Second))})
}
