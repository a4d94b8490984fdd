package sim

import (
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// countMembers finds out whether the store behind the API server has a quorum: whether some member
// that runs and is in reach of the API server reaches, with itself, a majority of those that run.
// It is asked at each event that may have changed that.
func (b *Backend) countMembers(by *history.Event) {
	if len(b.members) == 0 {
		return
	}
	runs := func(h *host) bool { return h.Booted() && !h.Halted() }
	quorum := false
	for _, h := range b.members {
		reached := 0
		for _, g := range b.members {
			if runs(g) && (g == h || b.connected(g.at, h.at)) {
				reached++
			}
		}
		quorum = quorum || runs(h) && b.connected(h.at, scenarios.API) && 2*reached > len(b.members)
	}
	if quorum != b.api.inquorate {
		return
	}
	e := history.Event{Kind: history.QuorumLost, Host: by.Host, Actor: by.Actor}
	if !quorum {
		for _, h := range b.hosts {
			h.kubelet.rouse()
		}
	}
	if b.api.inquorate = !quorum; quorum {
		e.Kind = history.QuorumRegained
		b.apiIsBack()
	}
	if b.waiting != nil && len(b.waiting) == 0 { // else they are only coming up
		b.w.emit(e)
	}
}

// connected reports whether two ends reach each other.
func (b *Backend) connected(one, other string) bool {
	n := &b.w.network
	return n.carries(one, other) && n.carries(other, one)
}
