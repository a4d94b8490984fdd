package steps

import "testing"

// TestListsRead: a delivery in whose place a cache lists anew brings what a kubelet writes beside
// it, which ordinary news doesn't, nor a list of another kind.
func TestListsRead(t *testing.T) {
	kubelet := Step{Class: ClassKubelet, Verb: "renew", Object: Object{Kind: "Node", Name: "worker-1"}, Place: PlaceHost + "worker-1"}
	for _, tc := range []struct {
		verb, kind  string
		independent bool
	}{{"deliver", "Lease", true}, {Lists, "Lease", false}, {Lists, "Node", false}, {Lists, "Machine", true}} {
		news := Step{Class: ClassDeliver, Verb: tc.verb, Object: Object{Kind: tc.kind}, Place: PlaceProcess + "watcher"}
		if got := news.Independent(kubelet); got != tc.independent || kubelet.Independent(news) != got {
			t.Errorf("%s of %s is independent of a kubelet's renewal: %t, want %t", tc.verb, tc.kind, got, tc.independent)
		}
	}
}
