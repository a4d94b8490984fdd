package poisonpill

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
	"time"
)

// Reply is the result of asking a peer.
type Reply string

// The four replies of seed 004.
const (
	Healthy   Reply = "healthy"
	Unhealthy Reply = "unhealthy"
	CutOff    Reply = "cut off"
	Silent    Reply = "silent"
)

// round is a vote of the peers about this boot.
type round struct {
	// Began is before the first question was asked.
	Began time.Duration `json:"began"`
	// Order is the order in which peers are asked.
	Order []string `json:"order"`
	// Replies are the replies of the peers asked so far.
	Replies map[string]Reply `json:"replies"`
}

// begin draws the order of the n-th round. It differs from agent to agent and from round
// to round, so that not all ask the same peers.
func begin(now time.Duration, self string, n int, peers []string) *round {
	rank := func(peer string) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(strconv.Itoa(n) + " " + peer + " " + self)) // never fails
		return h.Sum64()
	}
	order := slices.Clone(peers)
	slices.SortFunc(order, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	return &round{Began: now, Order: order, Replies: map[string]Reply{}}
}

// next returns the peers to ask now.
func (r *round) next() []string {
	from := len(r.Replies)
	return r.Order[from:min(from+setSize(len(r.Order)), len(r.Order))]
}

// state sums up the replies. A majority is needed of each list of peers that this agent may have
// announced.
func (r *round) state(promises []Announcement) State {
	s := State{About: OfVote, Alone: len(r.Order) == 0, Unasked: len(r.Replies) < len(r.Order)}
	for _, reply := range r.Replies { // order does not matter: any will do
		s.Healthy = s.Healthy || reply == Healthy
		s.Unhealthy = s.Unhealthy || reply == Unhealthy
		s.CutOff = s.CutOff || reply == CutOff
	}
	s.Most = s.CutOff
	for _, p := range promises {
		cutOff := 0
		for _, peer := range p.Peers {
			if r.Replies[peer] == CutOff {
				cutOff++
			}
		}
		s.Most = s.Most && 2*cutOff > len(p.Peers)
	}
	return s
}
