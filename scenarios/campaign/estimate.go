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
// of them reached, which nothing may have chosen by what the others reached; 0 stands for any
// number of schedules.
//
// Two bounds are known. The lower one is Chao's, and Chao and Lin's where none is drawn twice:
// points that one or two schedules reached stand for those that none has. By itself it is far too
// low as long as little was played. The upper one: what is new becomes rarer, so that each schedule
// that is left finds no more of it than the last of those that were played, which is the share of
// points that one schedule reached. The estimate lies between the two.
func Estimate(reached []Points, of int) Estimated {
	e := estimate(reached, of)
	var pairs []Points
	for i := 0; i+1 < len(reached); i += 2 {
		pairs = append(pairs, append(append(Points{}, reached[i]...), reached[i+1]...))
	}
	doubled := estimate(pairs, of/2)
	e.Can = len(pairs) > 1 && e.Deviation <= vague*e.All && math.Abs(doubled.All-e.All) <= steady*e.All
	return e
}

func estimate(reached []Points, of int) Estimated {
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
	all, n := float64(len(in)), float64(len(reached))
	left := math.Inf(1)
	if of > 0 {
		left = max(0, float64(of)-n)
	}
	if n == 0 || left == 0 {
		return Estimated{All: all}
	}
	unseen, deviation, w := 0.0, 0.0, n/max(1, n-1)
	if once > 0 {
		unseen = once * (once - 1) / (2*w*(twice+1) + n/left*once)
		deviation = math.Sqrt(unseen + math.Pow(2*w*twice*unseen*unseen+once*once*unseen, 2)/math.Pow(once, 5) + 4*w*w*twice*math.Pow(unseen/once, 4))
	}
	if of == 0 {
		return Estimated{All: all + unseen, Deviation: max(unseen, deviation)}
	}
	least := max(all, all+unseen-deviation)
	most := max(least, all+(once+max(1, math.Sqrt(once)))*left/n)
	return Estimated{All: (least + most) / 2, Deviation: (most - least) / 2}
}
