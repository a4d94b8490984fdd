package sim

import "testing"

// TestKindsAreServed compares the table of kinds with the simulated server.
func TestKindsAreServed(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for served, k := range s.kinds.table { // order does not matter: each is compared
		if served.GroupVersionKind != k.GVK || served.Resource != k.Resource || served.Namespaced != k.Namespaced || served.Status != k.Status || served.Custom != k.Custom {
			t.Errorf("the table of kinds has %+v, and the server %+v", k, served)
		}
	}
	if all := s.server.Kinds(); len(all) != len(s.kinds.table) {
		t.Errorf("the server has %d kinds, the table %d", len(all), len(s.kinds.table))
	}
}
