package search

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/sim"
)

// rows caches the points of rows that have been taken, since making one costs more than the
// lookup.
type rows map[row]campaign.Point

type row struct {
	controller string
	facts      any
	action     string
}

func (r rows) point(at row) campaign.Point {
	p, ok := r[at]
	if !ok {
		h := fnv.New32a()
		fmt.Fprintf(h, "%s %+v %s", at.controller, at.facts, at.action)
		p = campaign.Point(h.Sum32())
		r[at] = p
	}
	return p
}

// coverage records the points that one schedule reaches.
type coverage struct {
	rows    rows
	reached map[campaign.Point]bool
	// last is the row taken last.
	last map[decider]campaign.Point
	// met are the edges that came about.
	met *met
}

// decider is a process and the key that it decides about.
type decider struct{ process, key string }

func newCoverage(r rows, e *edges) *coverage {
	return &coverage{rows: r, reached: make(map[campaign.Point]bool), last: make(map[decider]campaign.Point), met: e.watch()}
}

// decided notes a decision. Its point doesn't depend on the process of a controller, nor on the
// host.
func (c *coverage) decided(d sim.Decision) {
	who := decider{d.Process, d.Key}
	now := c.rows.point(row{d.Controller, d.Facts, d.Action})
	c.reached[now] = true
	if before, ok := c.last[who]; ok && before != now {
		c.reached[before*16777619^now] = true
	}
	c.last[who] = now
	c.met.decided(d)
}

// note adds what was reached to the result of the schedule.
func (c *coverage) note(r *campaign.Result) {
	r.Reached, r.Edges = sorted(c.reached), sorted(c.met.all())
}

func sorted(set map[campaign.Point]bool) campaign.Points {
	points := make(campaign.Points, 0, len(set))
	for p := range set { // order does not matter: they are sorted
		points = append(points, p)
	}
	slices.Sort(points)
	return points
}
