package campaign

import (
	"math"
	"math/rand/v2"
	"testing"
)

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
		of          int
		least, most float64
		can         bool
	}{
		{"each point often", all, 80, 6, 7, true},
		{"each point by two schedules next to each other", rare, 80, 21, 22, false},
		{"each point once, and as many are left", own, 80, 60, 80, false},
		{"each point once, and none is left", own, 40, 40, 40, true},
		{"one schedule", all[:1], 80, 3, 200, false},
		{"none", nil, 80, 0, 100, false},
	} {
		got := Estimate(tc.reached, len(tc.reached), tc.of)
		if got.All < tc.least || got.All > tc.most || got.Can != tc.can {
			t.Errorf("%s: %+v; want %v to %v, %t", tc.what, got, tc.least, tc.most, tc.can)
		}
	}
}

// TestEstimateOfADraw: when some of many schedules were drawn, the estimate is within its deviation
// of what all reach, nine times in ten. It can be said when half was drawn, and not when few were.
func TestEstimateOfADraw(t *testing.T) {
	stream := rand.New(rand.NewPCG(1, 1))
	right, said := 0, map[int]int{}
	for range 100 {
		var every []Points
		seen := make(map[Point]bool)
		for range 400 {
			var points Points
			for range 5 {
				p := Point(math.Exp(5 * stream.Float64())) // some are rare
				points, seen[p] = append(points, p), true
			}
			every = append(every, points)
		}
		for _, n := range []int{8, 80, 200} {
			got := Estimate(every[:n], n, len(every))
			if math.Abs(got.All-float64(len(seen))) <= math.Ceil(got.Deviation) {
				right++
			}
			if got.Can {
				said[n]++
			}
		}
	}
	if right < 270 || said[8] > 0 || said[200] < 90 {
		t.Errorf("of 300 estimates %d are right; of 100 can be said with so many schedules: %v", right, said)
	}
}
