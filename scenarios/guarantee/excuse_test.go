package guarantee

import (
	"github.com/fencelab/fencelab/scenarios/invariant"
	"path/filepath"
	"testing"
)

// TestExcuses asks of every transcript what excuses it, and whether just that does: without it the
// guarantee must be violated, and with any part of it alone it must not.
func TestExcuses(t *testing.T) {
	paths, err := filepath.Glob("testdata/*/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	excused := 0
	for _, path := range paths {
		tr, err := parseTranscript(path)
		if err != nil {
			continue // TestTranscripts tells
		}
		h := record(tr.events)
		chosen := []invariant.Invariant{tr.invariant}
		results := invariant.Judge(h, chosen, tr.params)
		for _, e := range invariant.Excuses(h, chosen, tr.params, results) {
			excused++
			if len(e.Because) == 0 {
				t.Errorf("%s: nothing excuses %s", path, describe(e.Result))
			}
			without := func(kept int) invariant.Verdict {
				return invariant.JudgeWithout(h, chosen, tr.params, func(of invariant.Hindrance) bool {
					for i, held := range e.Because {
						if of == (invariant.Hindrance{Event: held.Event.Seq, Party: held.Party}) {
							return i != kept
						}
					}
					return false
				})[0].Verdict
			}
			if got := without(-1); got != invariant.Violated {
				t.Errorf("%s: without what is said to excuse it (%v): %s, want violated", path, e.Because, got)
			}
			for i, held := range e.Because {
				if got := without(i); got == invariant.Violated {
					t.Errorf("%s: that %s excuses nothing", path, held)
				}
			}
		}
	}
	if excused < 5 {
		t.Errorf("something excuses %d of %d transcripts, want at least 5: nothing has been tested", excused, len(paths))
	}
	t.Logf("something excuses %d of %d transcripts", excused, len(paths))
}
