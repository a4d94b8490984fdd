package fakebmc

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	byID    map[string]*BMC
	byName  map[string]*BMC // by host
	changed chan struct{}   // closed when others take its place
}

// NewGroup returns a Group of these BMCs.
func NewGroup(bmcs ...*BMC) (*Group, error) {
	g := &Group{}
	g.members.Store(&members{changed: make(chan struct{})})
	return g, g.Add(bmcs...)
}

// Add takes in all BMCs, or on an error none. A host's name, and the Id of its
// resources, must be its own.
func (g *Group) Add(bmcs ...*BMC) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	next, err := newMembers(append(g.All(), bmcs...))
	if err == nil {
		g.replace(next)
	}
	return err
}

// Remove lets the BMC of a host go and returns it, or nil. It isn't closed.
func (g *Group) Remove(host string) *BMC {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.All()
	i := slices.IndexFunc(all, func(b *BMC) bool { return b.host == host })
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
func (g *Group) All() []*BMC {
	m := g.members.Load()
	all := make([]*BMC, len(m.ids))
	for i, id := range m.ids {
		all[i] = m.byID[id]
	}
	return all
}

func (g *Group) replace(next *members) { close(g.members.Swap(next).changed) }

func newMembers(all []*BMC) (*members, error) {
	m := &members{byID: make(map[string]*BMC, len(all)), byName: make(map[string]*BMC, len(all)), changed: make(chan struct{})}
	for _, b := range all {
		if b.id == "" || strings.ContainsAny(b.id, "/?#%\\ \t\r\n") {
			return nil, fmt.Errorf("the Id %q of host %q can't be a path segment", b.id, b.host)
		}
		if m.byName[b.host] != nil {
			return nil, fmt.Errorf("two bmcs of host %q", b.host)
		}
		if other := m.byID[b.id]; other != nil {
			return nil, fmt.Errorf("the bmcs of hosts %q and %q have the same Id %q", other.host, b.host, b.id)
		}
		m.ids = append(m.ids, b.id)
		m.byID[b.id], m.byName[b.host] = b, b
	}
	return m, nil
}
