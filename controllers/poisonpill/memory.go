package poisonpill

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fencelab/fencelab/controllers/api/fence"
)

// memory is all that an agent knows. It is kept for as long as the boot lasts, so that an
// agent which dies goes on where it was: it neither forgets what it has promised nor
// lives on nothing. Times are those since the boot began.
type memory struct {
	// Looked: the API server has answered in this boot.
	Looked bool `json:"looked"`
	// Vouched is as of when the host was known to be wanted, and Condemned that it is not.
	Vouched   time.Duration `json:"vouched"`
	Condemned bool          `json:"condemned"`
	// Starved is when its watchdog was first not fed, 0 if it is.
	Starved time.Duration `json:"starved,omitempty"`
	// Failures counts the looks in a row that failed; Next is when the next one is due.
	Failures int           `json:"failures"`
	Next     time.Duration `json:"next"`
	// Round is the vote that is under way, and Rounds how many there were.
	Round  *round `json:"round,omitempty"`
	Rounds int    `json:"rounds"`
	// Promises are the announcements of which one is on the Node: the last one that is
	// known to be, and those that were sent since.
	Promises []Announcement `json:"promises,omitempty"`
	// Peers are the others' Nodes with their addresses, and Missed in how many looks in
	// a row they were not Ready.
	Peers  map[string][]string `json:"peers,omitempty"`
	Missed map[string]int      `json:"missed,omitempty"`
	// Known are the NodeFences of others, by their Nodes' names.
	Known map[string]known `json:"known,omitempty"`
	// Waits are what this agent waits for as a survivor.
	Waits map[types.UID]*wait `json:"waits,omitempty"`
}

// known is a NodeFence that this agent has read.
type known struct {
	UID  types.UID `json:"uid"`
	Boot string    `json:"boot"`
}

// wait is the safe time of a NodeFence, as this agent measures it.
type wait struct {
	// Promise is what the agent of the fenced boot has announced, as it was read last.
	Promise Announcement `json:"promise"`
	// Quorate says that half of its peers were seen to know the NodeFence, and Since
	// when this agent knew.
	Quorate bool          `json:"quorate"`
	Since   time.Duration `json:"since"`
	// Gone is since when the Node is not there.
	Gone    time.Duration `json:"gone"`
	Missing bool          `json:"missing"`
	// Warned says that users were told why the Node can't be released.
	Warned bool `json:"warned"`
}

// learn takes over which NodeFences there are.
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

// meet takes over who the peers are: all Nodes but this one, and but those that are gone
// for as far as this agent has seen.
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

// electorate are all peers of whom a majority may be needed, sorted.
func (m *memory) electorate() []string {
	var all []string
	for _, p := range m.Promises {
		all = append(all, p.Peers...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// patience is how long the host lives on what its agent has heard.
func (m *memory) patience() time.Duration {
	least := time.Duration(1<<63 - 1)
	for _, p := range m.Promises {
		least = min(least, p.Patience())
	}
	return least
}

// fresh reports whether it may still live on that.
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
