package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/campaign/pool"
	"github.com/fencelab/fencelab/scenarios/campaign/shard"
	"github.com/fencelab/fencelab/scenarios/version"
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
	// Each is how long a schedule of each search takes, if that was asked for.
	Each []time.Duration

	crew   *Crew
	quests []*Quest
}

// Survey finds out what a campaign comes to. Timed also measures how long its schedules take.
// Done, which may be nil, is called with the number of searches that were surveyed.
func (c *Crew) Survey(ctx context.Context, of *scenarios.Campaign, stories []*scenarios.Scenario, timed bool, done func(n, of int)) (*Campaign, error) {
	var quests []*Quest
	for _, story := range stories {
		for _, search := range of.Spec.Searches {
			seeds := search.Seeds
			if len(seeds) == 0 {
				seeds = []uint64{1}
			}
			for _, seed := range seeds {
				quests = append(quests, &Quest{story, shard.Search{Story: story.Metadata.Name, Strategy: search.Strategy, Seed: seed, Schedules: search.Schedules}})
			}
		}
	}
	each := make([]time.Duration, len(quests))
	err := pool.Each(ctx, len(c.at), len(quests), func(_ context.Context, worker, i int) error {
		a, err := c.do(worker, quests[i], order{Time: timed})
		quests[i].Survey, each[i] = a.Survey, a.Each
		return err
	}, func(i int) {
		if done != nil {
			done(i+1, len(quests))
		}
	})
	if err != nil {
		return nil, err
	}
	searches := make([]shard.Search, len(quests))
	for i, q := range quests {
		searches[i] = q.Search
	}
	s := &Campaign{Outline: shard.NewOutline(version.Built(), of, shard.DigestOf(of, stories), searches), crew: c}
	for i, q := range quests { // those that the outline has, in the same order
		if at := len(s.quests); at < len(s.Searches) && sameSearch(s.Searches[at], q.Search) {
			again := *q // no worker knows it with its survey
			s.quests, s.Each = append(s.quests, &again), append(s.Each, each[i])
		}
	}
	return s, nil
}

func sameSearch(a, b shard.Search) bool {
	return a.Story == b.Story && a.Strategy == b.Strategy && a.Seed == b.Seed
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

// Shrinking makes the search and the tally of a finding, to be shrunk and shown as those of any
// search.
func Shrinking(f *shard.Finding) (*campaign.Search, campaign.Tally) {
	return &campaign.Search{Story: f.Plan, Total: 1}, campaign.Tally{Failed: []campaign.Failure{{
		Signature: f.Signature, Cause: f.Cause, Invariant: f.Guarantee, Missing: f.Missing, Schedule: f.First, Count: f.Count,
	}}}
}
