// Package jobs plays the jobs of a campaign in processes of their own, one for each core. A job
// needs nothing of another one, so each process surveys and plays searches by itself.
package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/campaign/shard"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search"
	"github.com/fencelab/fencelab/sim/search/workers"
)

// Argument makes a worker one of a campaign.
const Argument = "jobs"

// Quest is a search of a campaign, with all that it takes to make it. It is plain data.
type Quest struct {
	Scenario *scenarios.Scenario `json:"scenario"`
	shard.Search
}

// order asks a worker to survey a search, or to play a job of it.
type order struct {
	// Quest is there if it is another one than before.
	Quest *Quest `json:"quest,omitempty"`
	// Sample asks what a schedule takes, of a search to be surveyed.
	Sample bool       `json:"sample,omitempty"`
	Job    *shard.Job `json:"job,omitempty"`
}

// answer is a worker's answer to an order.
type answer struct {
	Survey shard.Survey  `json:"survey"`
	Each   time.Duration `json:"each,omitempty"`
	Record *shard.Record `json:"record,omitempty"`
}

// Serve runs a worker, until its input or the context ends. Now is the wall clock, by which it
// measures how long a schedule takes.
func Serve(ctx context.Context, in io.Reader, out io.Writer, now func() time.Time) error {
	simulator, err := sim.New()
	if err != nil {
		return err
	}
	w := &worker{simulator: simulator, now: now}
	from, to := json.NewDecoder(in), json.NewEncoder(out)
	for ctx.Err() == nil {
		var o order
		switch err := from.Decode(&o); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read what to play: %w", err)
		}
		if o.Quest != nil {
			w.Quest = *o.Quest
			if err := w.prepare(ctx); err != nil {
				return err
			}
		}
		var a answer
		if o.Job == nil {
			a.Survey, a.Each, err = w.survey(o.Sample)
		} else {
			a.Record, err = w.play(*o.Job)
		}
		if err == nil {
			err = to.Encode(a)
		}
		if err != nil {
			return fmt.Errorf("%s (%s, seed %d): %w", w.Story, w.Strategy, w.Seed, err)
		}
	}
	return nil
}

// worker makes one search after the other.
type worker struct {
	simulator *sim.Simulator
	now       func() time.Time
	Quest
	// begun has the default schedule of a plan, and of names all that it depends on.
	begun  *search.Told
	of     string
	search *campaign.Search
	player *search.Player
	benign *play.Outcome
}

func (w *worker) prepare(ctx context.Context) error {
	plan, err := scenarios.Compile(w.Scenario, w.Seed)
	if err != nil {
		return err
	}
	of := w.Story
	if w.Scenario.HasRanges() { // else the default schedule is that of any seed
		of = fmt.Sprintf("%s/%d", of, w.Seed)
	}
	if w.begun == nil || w.of != of {
		w.begun, err = search.Tell(ctx, w.simulator, plan)
		if err == nil {
			err = w.begun.Benign.Err
		}
		if err != nil {
			return fmt.Errorf("play the default schedule of %s: %w", w.Story, err)
		}
	}
	w.of, w.benign = of, w.begun.Benign
	if w.search, err = w.begun.Around(ctx, w.Scenario, plan, options(w.Search)); err != nil {
		return err
	}
	w.player = search.NewPlayer(w.simulator, w.search.Story)
	workers.Tune()
	if known, now := w.Digest, w.benign.History.Digest(); known != "" && known != now {
		return fmt.Errorf("the default schedule comes out as %s, and was surveyed as %s: the programs have changed, so remove the survey beside the blobs", now, known)
	}
	return nil
}

func options(s shard.Search) search.Options {
	return search.Options{Strategy: s.Strategy, Seed: s.Seed, Schedules: s.Schedules, Depth: s.Depth, Within: time.Duration(s.Within)}
}

// sampled is how many schedules of a search are played at most to foretell what one takes. It is
// one, and one more for each sampledOneIn that the search has.
const (
	sampled      = 4
	sampledOneIn = 300
)

func (w *worker) survey(sample bool) (s shard.Survey, each time.Duration, err error) {
	s = shard.Survey{
		Default: w.benign.Meets() != "" || w.search.Story.Plan.Spec.Expect.Violated != "", All: w.search.Total, Whole: campaign.Learns(w.search.Strategy),
		Weight: w.benign.History.Len(), Digest: w.benign.History.Digest(),
	}
	switch {
	case s.Default:
		s.All, s.Whole = 1, false
	case w.search.Branching != nil:
		s.All, s.Branches = w.search.Branching.Forecast(), w.search.Branching.Branches()
	}
	for _, r := range w.benign.Results {
		if r.Judged > r.Excused && play.Tests(r.Invariant) {
			s.Tests = append(s.Tests, r.Invariant)
		}
	}
	slices.Sort(s.Tests)
	if sample {
		each, s.Weight, err = w.player.Each(w.samples(s), w.now)
	}
	return s, each, err
}

// samples are schedules of a search that was surveyed, spread over all. It is the default one if
// the search plays no others, or learns which.
func (w *worker) samples(s shard.Survey) (some []campaign.Schedule) {
	if s.Whole || s.Default {
		return []campaign.Schedule{{Number: 1}}
	}
	n := min(sampled, 1+s.All/sampledOneIn)
	if covering, ok := w.search.Strategy.(campaign.Covering); ok {
		some = search.Samples(covering, n)
	}
	for i := 0; i < min(n, w.search.Total) && len(some) < n; i++ {
		if schedule, ok := w.search.Next(i * w.search.Total / n); ok {
			some = append(some, schedule)
		}
	}
	return some
}

// play plays a job.
func (w *worker) play(j shard.Job) (*shard.Record, error) {
	r := &shard.Record{Job: j}
	alone := search.NewAlone(w.simulator, w.search.Story)
	alone.Seen = r.Tally.Near
	kept := &noted{Pool: alone, sum: sha256.New()}
	one := func(schedule campaign.Schedule) bool {
		kept.Give(schedule)
		result, ok := kept.Take()
		if ok {
			r.Tally.Add(schedule, result)
		}
		return ok
	}
	switch {
	case w.Default:
		r.Tally.Add(campaign.Schedule{}, w.defaultOne(kept))
		r.Tally.Near(campaign.Schedule{}, w.benign)
	case w.Whole:
		tally := w.search.Run(kept, nil)
		if err := w.search.Divide(context.Background(), alone, &tally); err != nil {
			return nil, err
		}
		tally.Closest, r.Tally = r.Tally.Closest, tally
		// What it has learned is of no use to another one.
		if err := w.prepare(context.Background()); err != nil {
			return nil, err
		}
	case w.Branches > 0:
		for i := j.From; i < j.To; i++ {
			w.search.Branching.Branch(i)(one)
		}
	default:
		for n := j.From; n < j.To; n++ {
			schedule, ok := w.search.Next(n)
			if !ok {
				return nil, fmt.Errorf("there is no schedule %d", n+1)
			}
			one(schedule)
		}
	}
	if err := kept.Close(); err != nil {
		return nil, err
	}
	if w.Branches == 0 && r.Tally.Tried != j.To-j.From {
		return nil, fmt.Errorf("%d schedules were played, and %d were to be", r.Tally.Tried, j.To-j.From)
	}
	r.Tally.Failed = r.Tally.Failures()
	r.Digest = hex.EncodeToString(kept.sum.Sum(nil)[:8])
	if len(r.Tally.Failed) > 0 {
		r.Story = w.search.Story
	}
	return r, nil
}

// defaultOne is the result of the default schedule. It holds if it comes out as the story expects.
func (w *worker) defaultOne(kept *noted) campaign.Result {
	r := campaign.ResultOf(w.benign)
	switch mismatch := w.benign.Meets(); {
	case mismatch == "":
		r = campaign.Result{Verdict: invariant.Held, Rulings: r.Rulings, Simulated: r.Simulated}
	case r.Verdict == invariant.Held:
		r.Verdict, r.Signature = invariant.Unknown, "default schedule: "+mismatch
	}
	kept.note(r)
	return r
}

// noted is a pool that adds results to a digest, in the order in which schedules were given to it.
type noted struct {
	campaign.Pool
	sum hash.Hash
}

// Take implements campaign.Workers.
func (k *noted) Take() (campaign.Result, bool) {
	r, ok := k.Pool.Take()
	if ok {
		k.note(r)
	}
	return r, ok
}

func (k *noted) note(r campaign.Result) {
	_ = json.NewEncoder(k.sum).Encode(r) // a hash never fails
}
