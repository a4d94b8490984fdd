package sim

import (
	"slices"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// network carries messages between the ends of links, except over cut links. A request over a cut
// link never arrives. If only the answer's way is cut, the request has its effect but its client
// learns nothing. A client that waits gives up after its timeout.
type network struct{ cuts []scenarios.Link }

// carries reports whether a message gets from one end to the other.
func (n *network) carries(from, to string) bool {
	return len(n.cuts) == 0 || !slices.ContainsFunc(n.cuts, func(l scenarios.Link) bool { return l.Covers(from, to) })
}

// Cut cuts links.
func (o operations) Cut(op *scenarios.LinkOp) error { return o.onLinks(op, o.cut) }

// Impair fails: a link of the simulator carries messages or doesn't.
func (operations) Impair(*scenarios.ImpairOp) error {
	return errLacking
}

// Restore restores links.
func (o operations) Restore(op *scenarios.LinkOp) error { return o.onLinks(op, o.restore) }

func (b *Backend) onLinks(op *scenarios.LinkOp, do func(*scenarios.LinkOp)) error {
	if op.Host != "" {
		return b.onHost(op.Host, func(*host) { do(op) })
	}
	do(op)
	return nil
}

func (b *Backend) cut(op *scenarios.LinkOp) {
	n := &b.w.network
	var fresh []scenarios.Link
	for _, link := range op.Links(&b.spec.Topology) {
		if !slices.Contains(n.cuts, link) {
			fresh = append(fresh, link)
		}
	}
	if len(fresh) == 0 {
		return
	}
	for _, h := range b.talking(fresh) {
		h.kubelet.rouse()
	}
	n.cuts = append(n.cuts, fresh...)
	b.tell(history.LinkCut, op.Host, fresh)
}

func (b *Backend) restore(op *scenarios.LinkOp) {
	n := &b.w.network
	links := slices.DeleteFunc(op.Links(&b.spec.Topology), func(l scenarios.Link) bool { return !slices.Contains(n.cuts, l) })
	if len(links) == 0 {
		return
	}
	b.tell(history.LinkRestored, op.Host, links)
	n.cuts = slices.DeleteFunc(n.cuts, func(l scenarios.Link) bool { return slices.Contains(links, l) })
	b.countMembers(&history.Event{Host: op.Host})
	for _, h := range b.talking(links) {
		h.kubelet.reconnect()
	}
	for _, p := range b.processes {
		if slices.ContainsFunc(links, func(l scenarios.Link) bool {
			return l.Covers(scenarios.API, p.uplink.at) || p.uplink.host != "" && l.Covers(scenarios.API, p.uplink.host)
		}) {
			for _, s := range p.cache.streams {
				s.catchUp()
			}
		}
	}
}

// talking returns the hosts that use one of the links to reach the API server.
func (b *Backend) talking(links []scenarios.Link) []*host {
	var hosts []*host
	for _, h := range b.hosts {
		if slices.ContainsFunc(links, func(l scenarios.Link) bool { return l.Covers(h.at, scenarios.API) || l.Covers(scenarios.API, h.at) }) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// tell emits the events of links: one for a whole host, or one for each link.
func (b *Backend) tell(kind history.Kind, host string, links []scenarios.Link) {
	if host != "" {
		b.w.emit(history.Event{Kind: kind, Host: host, Object: scenarios.API})
		return
	}
	for _, l := range links {
		b.w.emit(history.Event{Kind: kind, Host: l.Host(), From: l.From, To: l.To})
	}
}

// RestoreAllBut restores every cut link except the given ones.
func (b *Backend) RestoreAllBut(but []scenarios.Link) error {
	for _, l := range slices.Clone(b.w.network.cuts) {
		if l.From != "" && l.To != "" && !slices.Contains(but, l) {
			b.restore(&scenarios.LinkOp{From: l.From, To: l.To})
		}
	}
	for _, h := range b.hosts {
		if all := (&scenarios.LinkOp{Host: h.name}); !slices.Contains(but, all.Links(&b.spec.Topology)[0]) {
			b.restore(all)
		}
	}
	return nil
}
