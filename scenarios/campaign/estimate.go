package campaign

import "math"

// steady is by how much an estimate may differ when its unit of sampling is doubled.
const steady = 0.1

// Estimate says how many points schedules of one kind reach in all, from the points that some of
// them reached, which nothing may have chosen by what the others reached. It is Chao's lower bound
// for samples: points that one or two schedules reached stand for those that none has. The estimate
// can be said if it rests on both kinds, and stays the same when two schedules count as one.
func Estimate(reached []Points) (all float64, can bool) {
	all, rests := chao(reached)
	var pairs []Points
	for i := 0; i+1 < len(reached); i += 2 {
		pairs = append(pairs, append(append(Points{}, reached[i]...), reached[i+1]...))
	}
	doubled, still := chao(pairs)
	return all, rests && still && len(pairs) > 1 && math.Abs(doubled-all) <= steady*all
}

// chao returns the estimate, and whether points that two reached bear it out, if it needs them.
func chao(reached []Points) (all float64, rests bool) {
	in, last := make(map[Point]int), make(map[Point]int)
	for i, points := range reached {
		for _, p := range points {
			if last[p] != i+1 { // a pair may have it twice
				last[p] = i + 1
				in[p]++
			}
		}
	}
	once, twice := 0.0, 0.0
	for _, n := range in { // order does not matter: sums
		switch n {
		case 1:
			once++
		case 2:
			twice++
		}
	}
	m := float64(max(1, len(reached)))
	return float64(len(in)) + (m-1)/m*once*(once-1)/(2*(twice+1)), once == 0 || twice > 0
}
