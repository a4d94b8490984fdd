package guarantee

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/scenarios/invariant"
)

// TestWholeSet judges histories by all guarantees: which one objects doesn't matter, but one
// has to, unless the file names the one. A file's name says what comes out.
func TestWholeSet(t *testing.T) {
	paths, err := filepath.Glob("testdata/whole/histories/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no histories: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			tr, err := parseTranscript(path)
			if err != nil {
				t.Fatal(err)
			}
			var violated []string
			for _, r := range invariant.Judge(record(tr.events), All(), tr.params) {
				if r.Verdict == invariant.Violated {
					violated = append(violated, r.Invariant)
				}
			}
			want := strings.HasPrefix(filepath.Base(path), "violated-")
			if want != (len(violated) > 0) {
				t.Errorf("violated: %v", violated)
			}
			if id := tr.invariant.ID; want && id != "" && !slices.Contains(violated, id) {
				t.Errorf("%s does not object, but %v", id, violated)
			}
			t.Logf("violated: %v", violated)
		})
	}
}
