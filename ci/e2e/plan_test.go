package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestLeft: what is done counts, what is slow takes longer, and what is over takes nothing.
func TestLeft(t *testing.T) {
	p := past{Wall: 100, Slow: 1, Suites: map[string]samples{"a": {2, 30}, "b": {10, 90}}}
	a, b := &suite{Name: "a"}, &suite{Name: "b"}
	both := []*suite{a, b}
	if got := p.left(both, 1); got != 100*time.Second {
		t.Errorf("at the start %v are left", got)
	}
	if got := p.left(both, 2.5); got != 250*time.Second {
		t.Errorf("on a machine that is slow %v are left", got)
	}
	a.Tests = []*test{{Name: "one", Outcome: passed}, {Name: "two", Outcome: running}, {Name: "three", Outcome: skipped}}
	if got := p.left(both, 1); got != 87500*time.Millisecond {
		t.Errorf("once half of one is done %v are left", got)
	}
	a.Ended = time.Now()
	if got := p.left(both, 1); got != 75*time.Second {
		t.Errorf("once one is over %v are left", got)
	}
}

// TestRemember: a run is foretold by the last one here, and the first by the reference.
func TestRemember(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "times.json")
	if got := remember(file); got.Wall != reference.Wall {
		t.Errorf("the first is foretold by %+v", got)
	}
	s := &suite{Name: "a", Tests: []*test{{Name: "one", Outcome: passed, Took: 3 * time.Second}, {Name: "two", Outcome: skipped}}}
	if err := pastOf([]*suite{s}, 10*time.Second, 2).keep(file); err != nil {
		t.Fatal(err)
	}
	if got := remember(file); got.Wall != 10 || got.Slow != 2 || got.Suites["a"] != (samples{1, 3}) {
		t.Errorf("the second is foretold by %+v", got)
	}
	if err := os.WriteFile(file, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := remember(file); got.Wall != reference.Wall {
		t.Errorf("after a record that was cut short it is foretold by %+v", got)
	}
}
