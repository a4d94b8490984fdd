package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/campaign/pool"
	"github.com/fencelab/fencelab/scenarios/campaign/shard"
	"github.com/fencelab/fencelab/scenarios/version"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search"
)

// lastWords is how long a worker may take to end once its input has.
const lastWords = 5 * time.Second

// Crew is worker processes for the jobs of campaigns.
type Crew struct {
	ctx     context.Context
	command []string
	// at are the workers by their numbers, nil if they were not needed yet.
	at []*process
}

// Start returns a crew of n processes that run a command, which calls [Serve]. They end with the
// context, when the crew is closed, and when this process is gone.
func Start(ctx context.Context, n int, command ...string) *Crew {
	return &Crew{ctx: ctx, command: command, at: make([]*process, n)}
}

// process is one of the workers.
type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	to   *json.Encoder
	from *json.Decoder
	said bytes.Buffer
	// quest is the one that it knows.
	quest *Quest
}

// do has a worker carry out an order that is about a search.
func (c *Crew) do(worker int, q *Quest, o order) (answer, error) {
	p := c.at[worker]
	if p == nil {
		p = new(process)
		p.cmd = exec.CommandContext(c.ctx, c.command[0], c.command[1:]...)
		p.cmd.Stderr, p.cmd.Env, p.cmd.WaitDelay = &p.said, append(os.Environ(), "GOMAXPROCS=1"), lastWords
		in, err := p.cmd.StdinPipe()
		if err != nil {
			return answer{}, err
		}
		out, err := p.cmd.StdoutPipe()
		if err == nil {
			err = p.cmd.Start()
		}
		if err != nil {
			return answer{}, fmt.Errorf("start a worker: %w", err)
		}
		p.in, p.to, p.from = in, json.NewEncoder(in), json.NewDecoder(out)
		c.at[worker] = p
	}
	if p.quest != q {
		p.quest, o.Quest = q, q
	}
	var a answer
	err := p.to.Encode(o)
	if err == nil {
		err = p.from.Decode(&a)
	}
	switch {
	case c.ctx.Err() != nil:
		return a, c.ctx.Err()
	case err != nil:
		_ = p.in.Close()
		ended := p.cmd.Wait()
		c.at[worker] = nil
		return a, fmt.Errorf("a worker ended (%v): %w\n%s", ended, err, bytes.TrimSpace(p.said.Bytes()))
	}
	return a, nil
}

// Close ends the workers.
func (c *Crew) Close() {
	for i, p := range c.at {
		if p != nil {
			_ = p.in.Close()
			_ = p.cmd.Wait() // it has answered
			c.at[i] = nil
		}
	}
}

// Campaign is a campaign that was surveyed.
type Campaign struct {
	*shard.Outline
	// Each is how long a schedule of each search takes, if that was asked for, and Surveyed has all
	// searches, for the next one who needs the survey.
	Each     []time.Duration
	Surveyed []shard.Search

	crew   *Crew
	quests []*Quest
}

// Survey finds out what a campaign comes to, unless an equal program has: then known says it, but
// not how long schedules take here, for which timed asks. Done, which may be nil, is called with
// the number of stories that were surveyed.
func (c *Crew) Survey(ctx context.Context, of *scenarios.Campaign, stories []*scenarios.Scenario, known []shard.Search, timed bool, done func(n, of int)) (*Campaign, error) {
	quests := make([][]*Quest, len(stories))
	var all []*Quest
	for i, story := range stories {
		for _, search := range of.Spec.Searches {
			seeds := search.Seeds
			if len(seeds) == 0 {
				seeds = []uint64{1}
			}
			for _, seed := range seeds {
				quests[i] = append(quests[i], &Quest{story, shard.Search{
					Story: story.Metadata.Name, Strategy: search.Strategy, Seed: seed, Schedules: search.Schedules, Depth: search.Depth, Within: search.Within,
				}})
			}
		}
		all = append(all, quests[i]...)
	}
	fits := len(known) == len(all)
	for i := 0; i < len(all) && fits; i++ {
		fits = all[i].Same(known[i])
	}
	each := make(map[*Quest]time.Duration)
	var err error
	if fits && !timed {
		for i, q := range all {
			q.Survey = known[i].Survey
		}
	} else {
		err = c.survey(ctx, quests, each, done)
	}
	if err != nil {
		return nil, err
	}
	s := &Campaign{crew: c}
	for _, q := range all {
		s.Surveyed = append(s.Surveyed, q.Search)
	}
	s.Outline = shard.NewOutline(version.Built(), of, shard.DigestOf(of, stories), s.Surveyed)
	for _, q := range all { // those that the outline has, in the same order
		if at := len(s.quests); at < len(s.Searches) && s.Searches[at].Same(q.Search) {
			again := *q // no worker knows it with its survey
			s.quests, s.Each = append(s.quests, &again), append(s.Each, each[q])
		}
	}
	return s, nil
}

// survey has the stories surveyed, each by one worker, which plays its default schedule once. What
// schedules take is found out once for searches of a story that differ in their seeds.
func (c *Crew) survey(ctx context.Context, quests [][]*Quest, each map[*Quest]time.Duration, done func(n, of int)) error {
	var mu sync.Mutex // of each
	return pool.Each(ctx, len(c.at), len(quests), func(_ context.Context, worker, i int) error {
		for n, q := range quests[i] {
			alike := slices.IndexFunc(quests[i][:n], func(o *Quest) bool { return o.Strategy == q.Strategy && o.Depth == q.Depth })
			a, err := c.do(worker, q, order{Sample: alike < 0})
			if err != nil {
				return err
			}
			mu.Lock()
			if alike >= 0 {
				a.Survey.Weight, a.Each = quests[i][alike].Weight, each[quests[i][alike]]
			}
			q.Survey, each[q] = a.Survey, a.Each
			mu.Unlock()
		}
		return nil
	}, func(i int) {
		if done != nil {
			done(i+1, len(quests))
		}
	})
}

// Play plays the jobs that are left of a shard's blob, and writes it. Done, which may be nil, is
// called after each with how many schedules it was and how many of them failed.
func (s *Campaign) Play(ctx context.Context, w *shard.Writer, done func(tried, failed int)) error {
	left := w.Left
	records := make([]*shard.Record, len(left))
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err := pool.Each(ctx, len(s.crew.at), len(left), func(_ context.Context, worker, i int) error {
		a, err := s.crew.do(worker, s.quests[left[i].Search], order{Job: &left[i]})
		records[i] = a.Record
		return err
	}, func(i int) {
		if err := w.Add(*records[i]); err != nil {
			stop(err)
			return
		}
		if t := records[i].Tally; done != nil {
			done(t.Tried, t.Violated+t.Unknown)
		}
		records[i] = nil
	})
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// others is how many schedules beside those that failed are played, to find out what divides them.
const others = 150

// Search makes the search of a finding, and the schedules of it to be played anew: those that are
// known to have failed alike, and others, spread over all. There are none if the default schedule
// fails, or if the strategy has learned: then what divides them was looked for already.
func Search(ctx context.Context, simulator *sim.Simulator, f *shard.Finding) (*campaign.Search, []campaign.Schedule, error) {
	alone := &campaign.Search{Story: f.Plan, Total: 1, One: true}
	if f.Of.Default || f.Of.Whole {
		return alone, nil, nil
	}
	told, err := search.Tell(ctx, simulator, f.Plan.Plan)
	if err != nil {
		return nil, nil, err
	}
	story := *f.Plan
	story.Cover = true // what was drawn is needed of those that held, too
	s, err := told.Again(ctx, &story, options(f.Of))
	if err != nil {
		return nil, nil, err
	}
	chosen, n := slices.Clone(f.Given), min(others, s.Total)
	for i := range n {
		next, ok := s.Next(i * s.Total / n)
		if ok && !slices.ContainsFunc(f.Given, func(g campaign.Schedule) bool { return g.Number == next.Number }) {
			chosen = append(chosen, next)
		}
	}
	s.Total, s.One = len(chosen), true
	return s, chosen, nil
}

// Shrinking is the tally of a finding, to be shrunk and shown as that of any search.
func Shrinking(f *shard.Finding) campaign.Tally {
	return campaign.Tally{Failed: []campaign.Failure{{
		Signature: f.Signature, Cause: f.Cause, Invariant: f.Guarantee, Missing: f.Missing, Schedule: f.First, Count: f.Count,
	}}}
}
