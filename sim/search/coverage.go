package search

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/fencelab/fencelab/sim"
)

// Point is something that a schedule may reach: that a controller takes a row of its
// decision table, which is an action for certain facts; or that it does so right after
// another row, about the same key. It is a hash of them.
type Point uint32

// Points are a set of them, sorted.
type Points []Point

// MarshalText implements encoding.TextMarshaler: they are many.
func (p Points) MarshalText() ([]byte, error) {
	data := make([]byte, 0, 4*len(p))
	for _, point := range p {
		data = binary.LittleEndian.AppendUint32(data, uint32(point))
	}
	return base64.StdEncoding.AppendEncode(nil, data), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Points) UnmarshalText(text []byte) error {
	data, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil || len(data)%4 != 0 {
		return errors.Join(errors.New("read what a schedule reached: these are no points"), err)
	}
	*p = make(Points, len(data)/4)
	for i := range *p {
		(*p)[i] = Point(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return nil
}

// rows are the points of rows that have been taken: to find one again is cheaper than
// to make it.
type rows map[row]Point

type row struct {
	controller string
	facts      any
	action     string
}

func (r rows) point(at row) Point {
	p, ok := r[at]
	if !ok {
		h := fnv.New32a()
		fmt.Fprintf(h, "%s %+v %s", at.controller, at.facts, at.action)
		p = Point(h.Sum32())
		r[at] = p
	}
	return p
}

// coverage notes what one schedule reaches.
type coverage struct {
	rows    rows
	reached map[Point]bool
	// last is the row that was taken last.
	last map[decider]Point
}

// decider is a process and the key that it decides about.
type decider struct{ process, key string }

func newCoverage(r rows) *coverage {
	return &coverage{rows: r, reached: make(map[Point]bool), last: make(map[decider]Point)}
}

// decided notes a decision. Which process of a controller it was, and about which
// host, makes no difference.
func (c *coverage) decided(d sim.Decision) {
	who := decider{d.Process, d.Key}
	now := c.rows.point(row{d.Controller, d.Facts, d.Action})
	c.reached[now] = true
	if before, ok := c.last[who]; ok && before != now {
		c.reached[before*16777619^now] = true
	}
	c.last[who] = now
}

func (c *coverage) points() Points {
	if c == nil {
		return nil
	}
	points := make(Points, 0, len(c.reached))
	for p := range c.reached { // order does not matter: they are sorted
		points = append(points, p)
	}
	slices.Sort(points)
	return points
}
