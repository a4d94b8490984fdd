package poisonpill

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Annotations on Nodes.
const (
	// AgentAnnotation holds the Announcement of the agent on the Node's host.
	AgentAnnotation = "poison-pill.fencelab.dev/agent"
	// FencedAnnotation says since when a Node has been cordoned, and for which NodeFence by its
	// UID: "2026-01-01T00:00:00Z UID".
	FencedAnnotation = "poison-pill.fencelab.dev/fenced"
)

// Announcement is the agent's message to the others about its boot, on its Node. The agent never
// goes by terms that it has not announced before.
type Announcement struct {
	// Boot is the boot that the announcement is about.
	Boot string `json:"boot"`
	// Peers are the Nodes whose agents it asks, sorted. Without peers it never lets its host be
	// reset for want of an answer, and its Node is not released either.
	Peers []string `json:"peers"`
	Terms
	// Knows are the UIDs of the NodeFences that it knows, sorted.
	Knows []types.UID `json:"knows,omitempty"`
}

// promises reports whether survivors compute the same safe time from both: it needs all of them
// except Knows.
func (a Announcement) promises(as Announcement) bool {
	return a.Boot == as.Boot && a.Terms == as.Terms && slices.Equal(a.Peers, as.Peers)
}

func (a Announcement) String() string {
	data, err := json.Marshal(a)
	if err != nil {
		panic(fmt.Sprintf("encode an announcement: %v", err)) // texts and numbers always encode
	}
	return string(data)
}

// announced returns the announcement on a Node, or an empty one if it can't be read or is not
// plausible. Anybody may have written it: a missing or negative term, an unbounded sum, or a
// duplicate peer would release a host that still runs.
func announced(node *corev1.Node) Announcement {
	var a Announcement
	if node == nil || json.Unmarshal([]byte(node.Annotations[AgentAnnotation]), &a) != nil || !a.plausible() {
		return Announcement{}
	}
	return a
}

// longestTerm is more than any term that an agent announces.
const longestTerm = 30 * 24 * time.Hour

func (a Announcement) plausible() bool {
	terms := []metav1.Duration{a.Reads, a.Pause, a.Reset}
	if len(a.Peers) > 0 {
		// an agent without peers needs no rounds
		terms = append(terms, a.Rounds)
	}
	for _, term := range terms {
		if term.Duration <= 0 || term.Duration > longestTerm {
			return false
		}
	}
	peers := slices.Clone(a.Peers)
	slices.Sort(peers)
	return len(slices.Compact(peers)) == len(a.Peers)
}

// quorate reports whether enough of its peers know a NodeFence. The remaining ones, who may still
// say that they are cut off, must not be a majority.
func (a Announcement) quorate(knows func(node string) bool) bool {
	others := 0
	for _, peer := range a.Peers {
		if !knows(peer) {
			others++
		}
	}
	return len(a.Peers) > 0 && others <= len(a.Peers)/2
}

// readings remembers the announcements on Nodes, by name: most are the same at each look.
type readings struct {
	mutex sync.Mutex
	last  map[string]reading
}

type reading struct {
	text string
	said Announcement
}

// of is announced for a Node that was looked at before. The result must not be changed.
func (r *readings) of(node *corev1.Node) Announcement {
	if node == nil {
		return Announcement{}
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	text := node.Annotations[AgentAnnotation]
	if last, ok := r.last[node.Name]; ok && last.text == text {
		return last.said
	}
	if r.last == nil {
		r.last = make(map[string]reading)
	}
	said := announced(node)
	r.last[node.Name] = reading{text, said}
	return said
}

// forget drops those of Nodes that are gone.
func (r *readings) forget(all map[string]*corev1.Node) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	maps.DeleteFunc(r.last, func(node string, _ reading) bool { return all[node] == nil })
}
