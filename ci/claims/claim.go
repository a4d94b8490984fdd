package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search"
)

// play finishes the search.
func (f *finished) play(ctx context.Context) (*claim, error) {
	data, err := os.ReadFile(f.file())
	if err != nil {
		return nil, err
	}
	cells, err := file.LoadCells(f.file(), data, objects.Vocabulary(), nil)
	if err != nil {
		return nil, err
	}
	plan, err := scenarios.Compile(cells[0], 1)
	if err != nil {
		return nil, err
	}
	simulator, err := sim.New()
	if err != nil {
		return nil, err
	}
	s, benign, err := search.New(ctx, simulator, cells[0], plan, search.Options{Strategy: "portfolio", Seed: 1, Depth: f.depth, Within: f.bound()})
	if err == nil && benign.Meets() != "" {
		err = fmt.Errorf("the default schedule of %s breaks already: %s", f.story, benign.Meets())
	}
	if err != nil {
		return nil, err
	}
	of := s.Strategy.(campaign.Covering)
	c := &claim{finished: *f, foretold: of.Shares(), early: make(map[string][]campaign.Share)}
	each, _, err := search.NewPlayer(simulator, s.Story).Each(search.Samples(of, search.Sampled), time.Now)
	if err != nil {
		return nil, err
	}
	alone := search.NewAlone(simulator, s.Story)
	began := time.Now()
	looked := false
	c.tally = s.Run(alone, func(campaign.Tally) { looked = looked || c.look(of.Shares()) })
	c.came, c.took, c.foretime = of.Shares(), time.Since(began), each*time.Duration(c.tally.Tried)
	return c, alone.Close()
}

// look keeps the shares of the parts that have come to their next moment, and reports whether all
// have come to their last.
func (c *claim) look(shares []campaign.Share) bool {
	all := true
	for _, s := range shares {
		early := c.early[s.Name]
		for s.Of > 0 && len(early) < len(moments) && 100*s.Played >= moments[len(early)]*s.Of {
			early = append(early, s)
		}
		c.early[s.Name] = early
		all = all && (s.Of == 0 || len(early) == len(moments))
	}
	return all
}
