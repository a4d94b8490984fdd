package campaign

import (
	"strings"
	"testing"
)

// TestDivides: a fact divides when each schedule that failed has it and none that held; two do when
// none that held has both. A fact of schedules that went another way, or one that few that failed
// lack, divides nothing.
func TestDivides(t *testing.T) {
	fact := func(point Point, words string, needs ...Point) Fact { return Fact{point, words, needs} }
	late, early, fault, own := fact(1, "late", 10), fact(2, "early", 10), fact(3, "fault"), fact(4, "own news", 99)
	for _, tc := range []struct {
		what         string
		failed, held []Points
		want         string
	}{
		{"one fact", []Points{{1, 3, 10}, {1, 10}}, []Points{{2, 10}, {3, 10}}, "failed in 2 of 2 schedules in which late, and held in 2 of 2 others"},
		{"the first that divides", []Points{{1, 2, 10}}, []Points{{10}}, "in which late"},
		{"two together", []Points{{1, 3, 10}}, []Points{{1, 10}, {3, 10}}, "in which late, and fault"},
		{"one that failed lacks it", []Points{{1, 10}, {10}}, []Points{{10}}, "no order, nothing unknown and no fault, nor any two of these, divides 2 schedules from 1 that held"},
		{"one that held has it", []Points{{1, 10}}, []Points{{1, 10}, {10}}, "no order"},
		{"what no other schedule came to", []Points{{4, 99}}, []Points{{10}}, "no order"},
		{"two kinds of failures", []Points{{1, 10}, {1, 10}, {3, 10}, {3, 10}}, []Points{{10}}, "failed in 4 of 4 schedules in which late, or in which fault, and held in 1 of 1 others"},
		{"and one more", []Points{{1, 10}, {1, 10}, {10}}, []Points{{10}}, "failed in 2 of 2 schedules in which late, and held in 1 of 1 others; nothing divides 1 more"},
		{"nothing held", []Points{{1, 10}}, nil, ""},
	} {
		got := divides([]Fact{own, late, early, fault}, tc.failed, tc.held)
		if !strings.Contains(got, tc.want) || (tc.want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", tc.what, got, tc.want)
		}
	}
}
