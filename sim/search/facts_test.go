package search

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim/steps"
)

// TestWaited: a step that waited for another one was as late as it came or, if it never came, as it
// may have come; one that waited for nothing was not late.
func TestWaited(t *testing.T) {
	step := steps.Step{Actor: "a", Class: steps.ClassTimer, N: 4, At: 10 * time.Second, Verb: "wait", Place: steps.PlaceProcess + "a"}
	for _, tc := range []struct {
		what  string
		of    string
		taken time.Duration
		want  []string
	}{
		{"two seconds", step.Name(), 12 * time.Second, []string{"10ms", "100ms", "300ms", "1s"}},
		{"it never came", step.Name(), 0, []string{"10ms", "100ms", "300ms", "1s", "15s"}},
		{"in time", step.Name(), 10 * time.Second, nil},
		{"another step", "a/timer/5", 12 * time.Second, nil},
	} {
		f := newFacts([]scenarios.Deviation{{Step: tc.of, After: "b/api/1", Delay: scenarios.Duration(20 * time.Second)}})
		if f.scheduled(step); tc.taken > 0 {
			f.took(steps.Name{Actor: "a", Class: steps.ClassTimer, N: 4}, tc.taken)
		}
		var got []string
		for _, fact := range f.before(new(play.Outcome)) {
			if _, late, ok := strings.Cut(fact.Words, " came "); ok && !strings.Contains(fact.Words, "(no.") {
				got = append(got, strings.TrimSuffix(late, " late or more"))
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: late by %v, want %v", tc.what, got, tc.want)
		}
	}
}
