package poisonpill

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fencelab/fencelab/controllers/api/fence"
)

// memory is all that an agent knows. It is kept for as long as the boot lasts, so that the next
// agent continues after a death: it neither forgets a promise nor lives without an answer. Times
// count from the start of the boot.
type memory struct {
	// Looked: the API server has answered in this boot.
	Looked bool `json:"looked"`
	// Vouched is the last time at which the host was known to be wanted. Condemned says that it is
	// not.
	Vouched   time.Duration `json:"vouched"`
	Condemned bool          `json:"condemned"`
	// Starved is when the watchdog was first not fed, or 0 while it is fed.
	Starved time.Duration `json:"starved,omitempty"`
	// Failures counts the looks in a row that failed; Next is when the next one is due.
	Failures int           `json:"failures"`
	Next     time.Duration `json:"next"`
	// Round is the vote under way, and Rounds the number of rounds so far.
	Round  *round `json:"round,omitempty"`
	Rounds int    `json:"rounds"`
	// Promises are the announcements of which one is on the Node: the last one known to be there,
	// and those that were sent since.
	Promises []Announcement `json:"promises,omitempty"`
	// Peers are the others' Nodes with their addresses, and Missed in how many looks in a row they
	// were not Ready.
	Peers  map[string][]string `json:"peers,omitempty"`
	Missed map[string]int      `json:"missed,omitempty"`
	// Known are the NodeFences of others, by their Nodes' names.
	Known map[string]known `json:"known,omitempty"`
	// Waits holds a survivor's waits.
	Waits map[types.UID]*wait `json:"waits,omitempty"`
}

// known is a NodeFence that this agent has read.
type known struct {
	UID  types.UID `json:"uid"`
	Boot string    `json:"boot"`
}

// wait is the safe time of a NodeFence, as measured by this agent.
type wait struct {
	// Promise is the announcement of the fenced boot's agent, as read last.
	Promise Announcement `json:"promise"`
	// Quorate says that half of its peers were seen to know the NodeFence, and Since when this
	// agent knew that.
	Quorate bool          `json:"quorate"`
	Since   time.Duration `json:"since"`
	// Gone is since when the Node has been missing.
	Gone    time.Duration `json:"gone"`
	Missing bool          `json:"missing"`
	// Warned says that users were warned why the Node can't be released.
	Warned bool `json:"warned"`
}

// learn records which NodeFences exist.
func (m *memory) learn(s *survey) {
	m.Looked, m.Failures = true, 0
	m.Known = make(map[string]known, len(s.fences))
	for node, f := range s.fences { // order does not matter: into a map
		m.Known[node] = known{f.UID, f.Spec.Boot}
	}
	for uid := range m.Waits { // order does not matter: all that are over go
		if !slices.Contains(s.knows(), uid) {
			delete(m.Waits, uid)
		}
	}
}

// meet records the peers: all Nodes except this one, and except those that have been gone for as
// many looks as patience.
func (m *memory) meet(s *survey, self string, patience int) {
	missed, peers := map[string]int{}, map[string][]string{}
	for name, node := range s.nodes { // order does not matter: into maps
		switch {
		case name == self:
			continue
		case !ready(node):
			missed[name] = m.Missed[name] + 1
		}
		if missed[name] < patience {
			peers[name] = addresses(node)
		}
	}
	m.Missed, m.Peers = missed, peers
}

// electorate returns all peers whose majority may be needed, sorted.
func (m *memory) electorate() []string {
	var all []string
	for _, p := range m.Promises {
		all = append(all, p.Peers...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// patience returns how long the host may live on an answer.
func (m *memory) patience() time.Duration {
	least := time.Duration(1<<63 - 1)
	for _, p := range m.Promises {
		least = min(least, p.Patience())
	}
	return least
}

// fresh reports whether the host may still live on the last answer.
func (m *memory) fresh(now time.Duration) bool { return now-m.Vouched < m.patience() }

// vouch notes that the host was wanted at a time.
func (m *memory) vouch(at time.Duration) {
	m.Vouched, m.Condemned, m.Round = max(m.Vouched, at), false, nil
}

// waitFor returns the wait for a NodeFence.
func (m *memory) waitFor(f *fence.NodeFence) *wait {
	w := m.Waits[f.UID]
	if w == nil {
		w = new(wait)
		if m.Waits == nil {
			m.Waits = map[types.UID]*wait{}
		}
		m.Waits[f.UID] = w
	}
	return w
}
