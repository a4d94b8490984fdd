package campaign

import "testing"

// TestEstimate: what many schedules reach is all that there is; what each reaches for itself is not
// said to be known.
func TestEstimate(t *testing.T) {
	var all, rare, own []Points
	for i := range 40 {
		all = append(all, Points{1, 2, Point(3 + i%4)})
		rare = append(rare, Points{1, Point(2 + i/2)})
		own = append(own, Points{Point(i)})
	}
	for _, tc := range []struct {
		what        string
		reached     []Points
		least, most float64
		can         bool
	}{
		{"each point often", all, 6, 6, true},
		{"each point by two schedules next to each other", rare, 21, 21, false},
		{"each point once", own, 500, 1000, false},
		{"one schedule", all[:1], 0, 10, false},
		{"none", nil, 0, 0, false},
	} {
		got, can := Estimate(tc.reached)
		if got < tc.least || got > tc.most || can != tc.can {
			t.Errorf("%s: %v, %t; want %v to %v, %t", tc.what, got, can, tc.least, tc.most, tc.can)
		}
	}
}
