package campaign

import (
	"context"
	"slices"
	"testing"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// stepper explains a schedule by the step of its first deviation, and plays nothing.
type stepper struct{}

func (stepper) Explain(_ context.Context, s Schedule, fail func([][]scenarios.Deviation) []bool) (*Fact, error) {
	step := s.Deviations[0].Step
	if other := []scenarios.Deviation{{Step: "held"}}; !slices.Equal(fail([][]scenarios.Deviation{s.Deviations, other}), []bool{true, false}) {
		return &Fact{[]Part{{Words: "something else"}}}, nil
	}
	return &Fact{[]Part{{Words: step + " was late", Deed: step}}}, nil
}

func (stepper) Is(_ context.Context, f *Fact, s Schedule) (bool, error) {
	return slices.ContainsFunc(s.Deviations, func(d scenarios.Deviation) bool { return d.Step == f.Parts[0].Deed }), nil
}

// failing plays schedules, of which those fail that have one of some steps.
type failing struct {
	steps   []string
	waiting []Schedule
}

func (f *failing) Give(s Schedule) { f.waiting = append(f.waiting, s) }

func (f *failing) Take() (Result, bool) {
	s := f.waiting[0]
	f.waiting = f.waiting[1:]
	r := Result{Number: s.Number, Variant: s.Variant, Verdict: invariant.Held}
	for _, d := range s.Deviations {
		if slices.Contains(f.steps, d.Step) {
			r.Verdict, r.Invariant, r.Signature = invariant.Violated, "g", "g: it"
		}
	}
	return r, true
}

// TestDivide: what the deviations of a failure come to divides it from the schedules that held; a
// failure that this leaves is explained by itself, and what held in spite of it is counted.
func TestDivide(t *testing.T) {
	for _, tc := range []struct {
		what         string
		steps        []string
		failed, held [][]string
		want         string
	}{
		{"one fact", []string{"a"}, [][]string{{"a"}, {"a"}}, [][]string{{"b"}, {}}, "failed in 2 of 2 schedules in which a was late, and held in 2 of 2 others"},
		{"as few deviations as it takes", []string{"a"}, [][]string{{"b", "a"}}, [][]string{{"b"}}, "failed in 1 of 1 schedule in which a was late, and held in 1 of 1 others"},
		{"two", []string{"a", "c"}, [][]string{{"a"}, {"c"}, {"c"}}, [][]string{{"b"}}, "failed in 3 of 3 schedules in which a was late, or in which c was late, and held in 1 of 1 others"},
		{"one that held has it", []string{"a"}, [][]string{{"a"}}, [][]string{{"a", "b"}, {"b"}}, "failed in 1 of 2 schedules in which a was late, and held in 1 of 1 others"},
		{"more than are looked for", []string{"a", "b", "c", "d"}, [][]string{{"a"}, {"b"}, {"c"}, {"d"}}, [][]string{{"e"}},
			"failed in 3 of 3 schedules in which a was late, or in which b was late, or in which c was late, and held in 1 of 2 others; nothing divides the other from these"},
	} {
		s := &Search{Explainer: stepper{}}
		var tally Tally
		play := func(steps []string, r Result) {
			var schedule Schedule
			for _, step := range steps {
				schedule.Deviations = append(schedule.Deviations, scenarios.Deviation{Step: step})
			}
			schedule.Number = len(s.played)
			tally.Add(schedule, r)
			s.note(schedule, r)
		}
		for _, steps := range tc.failed {
			play(steps, Result{Verdict: invariant.Violated, Invariant: "g", Signature: "g: it"})
		}
		for _, steps := range tc.held {
			play(steps, Result{Verdict: invariant.Held})
		}
		if err := s.Divide(t.Context(), &failing{steps: tc.steps}, &tally); err != nil {
			t.Fatal(err)
		}
		if got := tally.Failed[0].Divides; got != tc.want {
			t.Errorf("%s: %q, want %q", tc.what, got, tc.want)
		}
	}
}

// TestByOrder: facts that come to the same order share a clause, and count as one.
func TestByOrder(t *testing.T) {
	var facts []*Fact
	for _, part := range []Part{{Words: "a was late", Order: "p came before q"}, {Words: "b failed"}, {Words: "c was late", Order: "p came before q"}, {Words: "d was late", Order: "q came before r"}, {Words: "b failed"}} {
		facts = append(facts, &Fact{[]Part{part}})
	}
	want := "failed in 5 of 5 schedules in which p came before q because a was late, or because c was late, or in which b failed, or in which d was late, so that q came before r, and held in 2 of 2 others"
	if got := divided(facts, 5, 5, 0, 2); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if n := len(byOrder(facts)); n != 3 {
		t.Errorf("%d facts, want 3", n)
	}
}
