package redfish

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fencelab/fencelab/fakebmc"
)

// Group is the BMCs that share a listener and an admin API. They may come and go
// while both serve. All methods may be called concurrently.
type Group struct {
	mu      sync.Mutex // of writers
	members atomic.Pointer[members]
}

// members is what a Group is at a time; it doesn't change.
type members struct {
	ids     []string // of the resources, in the order in which the BMCs came
	byID    map[string]*fakebmc.BMC
	byName  map[string]*fakebmc.BMC // by host
	changed chan struct{}           // closed when others take its place
}

// NewGroup returns a Group of these BMCs.
func NewGroup(bmcs ...*fakebmc.BMC) (*Group, error) {
	g := &Group{}
	g.members.Store(&members{changed: make(chan struct{})})
	return g, g.Add(bmcs...)
}

// Add takes in all BMCs, or on an error none. A host's name, and the Id of its
// resources, must be its own.
func (g *Group) Add(bmcs ...*fakebmc.BMC) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	next, err := newMembers(append(g.All(), bmcs...))
	if err == nil {
		g.replace(next)
	}
	return err
}

// Remove lets the BMC of a host go and returns it, or nil. It isn't closed.
func (g *Group) Remove(host string) *fakebmc.BMC {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.All()
	i := slices.IndexFunc(all, func(b *fakebmc.BMC) bool { return b.Host() == host })
	if i < 0 {
		return nil
	}
	gone := all[i]
	next, err := newMembers(slices.Delete(all, i, i+1))
	if err != nil {
		return nil // what fitted together before does so with one less
	}
	g.replace(next)
	return gone
}

// All returns the BMCs in the order in which they came.
func (g *Group) All() []*fakebmc.BMC {
	m := g.members.Load()
	all := make([]*fakebmc.BMC, len(m.ids))
	for i, id := range m.ids {
		all[i] = m.byID[id]
	}
	return all
}

func (g *Group) replace(next *members) { close(g.members.Swap(next).changed) }

func newMembers(all []*fakebmc.BMC) (*members, error) {
	m := &members{byID: make(map[string]*fakebmc.BMC, len(all)), byName: make(map[string]*fakebmc.BMC, len(all)), changed: make(chan struct{})}
	for _, b := range all {
		if b.ID() == "" || strings.ContainsAny(b.ID(), "/?#%\\ \t\r\n") {
			return nil, fmt.Errorf("the Id %q of host %q can't be a path segment", b.ID(), b.Host())
		}
		if m.byName[b.Host()] != nil {
			return nil, fmt.Errorf("two bmcs of host %q", b.Host())
		}
		if other := m.byID[b.ID()]; other != nil {
			return nil, fmt.Errorf("the bmcs of hosts %q and %q have the same Id %q", other.Host(), b.Host(), b.ID())
		}
		m.ids = append(m.ids, b.ID())
		m.byID[b.ID()], m.byName[b.Host()] = b, b
	}
	return m, nil
}
