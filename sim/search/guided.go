package search

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
)

// guided is the strategy coverage: it keeps the schedules that reached something new,
// and varies them.
type guided struct {
	*space
	// at maps a step to the index of its first deviation in singles.
	at map[string]int
	// reached counts the schedules that reached a point.
	reached map[campaign.Point]int
	corpus  []*specimen
}

// specimen is a schedule that reached something new.
type specimen struct {
	campaign.Schedule
	// fresh are the points that it was the first to reach.
	fresh campaign.Points
	// varied is how often it was varied.
	varied int
}

func newGuided(from *space) chosen {
	g := &guided{space: from, at: make(map[string]int), reached: make(map[campaign.Point]int)}
	for i, d := range from.singles {
		if _, ok := g.at[d.Step]; !ok {
			g.at[d.Step] = i
		}
	}
	return chosen{
		Strategy: g, what: fmt.Sprintf("schedules led by coverage from seed %d", from.seed), endless: true, learns: true,
	}
}

const (
	// 1 in freshOneIn schedules is new; of these, 1 in singleOneIn is a single deviation, and the
	// others are drawn like those of random.
	freshOneIn  = 2
	singleOneIn = 4
	// 1 in drawnOneIn of the varied schedules has further deviations drawn: they lead to steps
	// that the benign schedule doesn't have.
	drawnOneIn = 2
	// candidates is how many specimens are compared to choose the next one to vary.
	candidates = 4
)

// Next varies a schedule that reached a point which few others reach. Now and then, and as long as
// there is nothing to vary, it draws one at random.
func (g *guided) Next(n int) (campaign.Schedule, bool) {
	seed := g.seedOf(n)
	stream := scenarios.Stream(seed, "coverage")
	if len(g.corpus) == 0 || len(g.singles) == 0 || stream.IntN(freshOneIn) == 0 {
		if len(g.singles) == 0 || stream.IntN(singleOneIn) != 0 {
			return campaign.Schedule{Number: n, Seed: seed, Draw: true}, true
		}
		return campaign.Schedule{Number: n, Seed: seed, Deviations: []scenarios.Deviation{g.single(stream)}}, true
	}
	parent := g.choose(stream)
	parent.varied++
	child := campaign.Schedule{Number: n, Seed: parent.Seed, Deviations: g.vary(parent.Deviations, stream)}
	if stream.IntN(drawnOneIn) == 0 {
		child.Seed, child.Draw = seed, true
	}
	return child, true
}

// Learn keeps a schedule that reached something new.
func (g *guided) Learn(s campaign.Schedule, r campaign.Result) {
	var fresh campaign.Points
	for _, p := range r.Reached {
		if g.reached[p]++; g.reached[p] == 1 {
			fresh = append(fresh, p)
		}
	}
	// A schedule that broke a guarantee has ended there, and one that got stuck leads nowhere.
	if len(fresh) > 0 && r.Signature == "" {
		g.corpus = append(g.corpus, &specimen{Schedule: s, fresh: fresh})
	}
}

// choose prefers specimens that were varied little and reached rare points.
func (g *guided) choose(stream *rand.Rand) *specimen {
	var best *specimen
	least := 0
	for range candidates {
		s := g.corpus[stream.IntN(len(g.corpus))]
		rarest := g.reached[s.fresh[0]]
		for _, p := range s.fresh {
			rarest = min(rarest, g.reached[p])
		}
		if cost := rarest + s.varied; best == nil || cost < least {
			best, least = s, cost
		}
	}
	return best
}

func (g *guided) single(stream *rand.Rand) scenarios.Deviation {
	return g.singles[stream.IntN(len(g.singles))]
}

// vary changes deviations in one or a few places.
func (g *guided) vary(parent []scenarios.Deviation, stream *rand.Rand) []scenarios.Deviation {
	child := slices.Clone(parent)
	for again := true; again; again = stream.IntN(3) == 0 {
		i := 0
		if len(child) > 0 {
			i = stream.IntN(len(child))
		}
		switch how := stream.IntN(5); {
		case len(child) == 0 || how < 2:
			child = append(child, g.single(stream))
		case how == 2:
			child = slices.Delete(child, i, i+1)
		case how == 3:
			if child[i] = child[i].At(moved(child[i].Step, stream)); child[i].Step == child[i].After {
				child[i].After = "" // it would wait for itself
			}
		default:
			child[i] = g.changed(child[i], stream)
		}
	}
	return distinct(child)
}

// moved returns a step of the same actor and class, before or after the given one.
func moved(step string, stream *rand.Rand) string {
	const far = 3
	slash := strings.LastIndexByte(step, '/')
	n, err := strconv.Atoi(step[slash+1:])
	if err != nil {
		return step // unreachable: a step is ACTOR/CLASS/N
	}
	by := 1 + stream.IntN(far)
	if stream.IntN(2) == 0 {
		by = -by
	}
	return fmt.Sprintf("%s/%d", step[:slash], max(1, n+by))
}

// changed returns another deviation of the same step, or the same with a longer or shorter delay.
func (g *guided) changed(d scenarios.Deviation, stream *rand.Rand) scenarios.Deviation {
	if d.Delay > 0 && stream.IntN(2) == 0 {
		factor := 1 << (1 + stream.IntN(3))
		if stream.IntN(2) == 0 {
			d.Delay = max(scenarios.Duration(time.Millisecond), d.Delay/scenarios.Duration(factor))
		} else {
			d.Delay = min(2*scenarios.Duration(time.Minute), d.Delay*scenarios.Duration(factor))
		}
		return d
	}
	first, ok := g.at[d.Step]
	if !ok {
		return d // a step that the benign schedule doesn't have
	}
	last := first
	for last < len(g.singles) && g.singles[last].Step == d.Step {
		last++
	}
	return g.singles[first+stream.IntN(last-first)]
}

// distinct keeps the first deviation of each step.
func distinct(deviations []scenarios.Deviation) []scenarios.Deviation {
	seen := make(map[string]bool)
	return slices.DeleteFunc(deviations, func(d scenarios.Deviation) bool {
		before := seen[d.Step]
		seen[d.Step] = true
		return before
	})
}
