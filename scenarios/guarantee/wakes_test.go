package guarantee

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// TestWakes judges each transcript by all guarantees, as they are and with none asleep: the results
// are the same. Each kind of event that wakes a guarantee is needed for that.
func TestWakes(t *testing.T) {
	paths, err := filepath.Glob("testdata/*/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	var all []*transcript
	for _, path := range paths {
		if tr, err := parseTranscript(path); err == nil { // or TestTranscripts reports it
			all = append(all, tr)
		}
	}
	// waking has this guarantee wake otherwise, and returns a transcript that it then judges
	// otherwise.
	waking := func(inv invariant.Invariant, kinds []history.Kind) (differs string) {
		other := inv
		for _, tr := range all {
			h := record(tr.events)
			inv.Wakes, other.Wakes = nil, kinds
			judged := func(by invariant.Invariant) string {
				r := invariant.Judge(h, []invariant.Invariant{by}, tr.params)[0]
				text := fmt.Sprintln(r.Verdict, r.Reason, r.Judged, r.Excused, r.Suspended)
				if v := r.Violation; v != nil {
					text += fmt.Sprintln(v.First, v.Second, v.Margin, v.Open)
				}
				if c := r.Closest; c != nil {
					text += fmt.Sprintln(c.First, c.Second, c.Margin, c.Limit)
				}
				return text
			}
			r, s := judged(inv), judged(other)
			if r != s {
				return fmt.Sprintf("%s:\n%s\n%s", tr.path, r, s)
			}
		}
		return ""
	}
	asleep := 0
	for _, inv := range Every() {
		if inv.Wakes == nil {
			continue
		}
		asleep++
		if inv.Literal || inv.Never != "" {
			t.Errorf("%s can't sleep: a panel shows it events as they are, or always judges it", inv.ID)
		}
		if differs := waking(inv, inv.Wakes); differs != "" {
			t.Errorf("%s sleeps too long in %s", inv.ID, differs)
		}
		for i, kind := range inv.Wakes {
			fewer := append(slices.Clone(inv.Wakes[:i]), inv.Wakes[i+1:]...)
			if waking(inv, append(fewer, "never")) == "" {
				t.Errorf("%s need not wake at %s: no transcript shows why", inv.ID, kind)
			}
		}
	}
	if asleep == 0 {
		t.Error("no guarantee sleeps")
	}
}
