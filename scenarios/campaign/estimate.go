package campaign

import "math"

const (
	// steady is by how much an estimate may differ when its unit of sampling is doubled.
	steady = 0.1
	// vague is how large the deviation of an estimate may be that is worth saying.
	vague = 0.25
)

// Estimated says how many points schedules of one kind reach in all.
type Estimated struct {
	All, Deviation float64
	// Can says that the estimate bears looking at: it isn't vague, and stays the same when two
	// schedules count as one.
	Can bool
}

// Estimate estimates how many points all of a number of schedules reach, from the points that some
// of them reached. Nothing may have chosen the first probes of these by what is there to reach.
//
// The estimate lies in the middle between two bounds: all reach what some have reached; and what is
// new becomes rarer, so that each schedule that is left finds no more of it than a probe has found
// that no other schedule found.
func Estimate(reached []Points, probes, of int) Estimated {
	e := estimate(reached, probes, of)
	var pairs []Points
	for i := 0; i+1 < len(reached); i += 2 {
		pairs = append(pairs, append(append(Points{}, reached[i]...), reached[i+1]...))
	}
	doubled := estimate(pairs, probes/2, of/2)
	e.Can = probes > 3 && e.Deviation <= vague*e.All && math.Abs(doubled.All-e.All) <= steady*e.All
	return e
}

func estimate(reached []Points, probes, of int) Estimated {
	in, by := make(map[Point]int), make(map[Point]int) // in how many, and the last of them
	for i, points := range reached {
		for _, p := range points {
			if last, ok := by[p]; !ok || last != i { // a pair may have it twice
				by[p] = i
				in[p]++
			}
		}
	}
	once := 0.0
	for p, n := range in { // order does not matter: a sum
		if n == 1 && by[p] < probes {
			once++
		}
	}
	half := 0.0
	if left := of - len(reached); left > 0 {
		half = (once + max(1, math.Sqrt(once))) * float64(left) / float64(max(1, probes)) / 2
	}
	return Estimated{All: float64(len(in)) + half, Deviation: half}
}
