package cmd

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/campaign/shard"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim/search/jobs"
	"github.com/fencelab/fencelab/sim/search/workers"
)

// campaignCommand is fencelab campaign.
func campaignCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "campaign",
		Short: "Search many stories, cut into shards that any machine can play",
		Long: `A campaign is searches of many stories, in one file. It can be cut into shards that need
nothing of each other: each plays its part into one file, a blob, and merge puts the
blobs of any partition together into the same result.`,
		Args: verbOnly,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(campaignPlan(), campaignRun(), campaignMerge(), campaignDiff())
	return cmd
}

// campaigner is one invocation of a verb of campaigns.
type campaigner struct {
	runner
	stored
	began time.Time
	// spent is how long cores were busy with the blobs, in seconds.
	spent float64
	last  *campaign.Shown
	// listen is the address of the metrics, "" for none; metrics is nil without.
	listen  string
	metrics *metrics
}

// start makes what campaigns need.
func (c *campaigner) start(cmd *cobra.Command) error {
	c.World, c.began = "sim", time.Now()
	if c.workers < 1 {
		return exit.BadInput(fmt.Errorf("--workers %d: at least one is needed", c.workers))
	}
	if err := c.runner.start(cmd); err != nil {
		return err
	}
	c.session.To = showing{&c.Console, c}
	return c.stored.open()
}

// showing is a sink that remembers how a run was shown.
type showing struct {
	*report.Console
	of *campaigner
}

// Outcome implements campaign.Sink.
func (s showing) Outcome(o *play.Outcome, took time.Duration) (shown *campaign.Shown, err error) {
	s.of.last, err = s.Console.Outcome(o, took)
	return s.of.last, err
}

// survey loads a campaign and finds out what it comes to.
func (c *campaigner) survey(cmd *cobra.Command, name string, timed bool) (*jobs.Crew, *jobs.Campaign, error) {
	loaded, stories, err := file.LoadCampaign(name, Vocabulary())
	if err != nil {
		return nil, nil, exit.BadInput(err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, exit.Coded(exit.Internal, fmt.Errorf("find the own executable: %w", err))
	}
	program, err := digestOf(self)
	if err != nil {
		return nil, nil, exit.Coded(exit.Internal, err)
	}
	crew := jobs.Start(cmd.Context(), c.workers, self, workers.Argument, jobs.Argument)
	kept := shard.SurveyFile(c.Dir, loaded, stories)
	err = c.fetch(cmd.Context(), kept)
	known := shard.LoadSurvey(kept, program)
	var surveyed *jobs.Campaign
	if err == nil {
		surveyed, err = c.surveyed(cmd, crew, loaded, stories, known, timed)
	}
	if err == nil && c.Dir != "" && len(known) == 0 {
		if err = exit.Coded(exit.Environment, shard.SaveSurvey(kept, program, surveyed.Surveyed)); err == nil {
			err = c.keep(cmd.Context(), kept)
		}
	}
	if err != nil {
		crew.Close()
	}
	return crew, surveyed, err
}

// digestOf identifies a program.
func digestOf(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("read the own executable: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func (c *campaigner) surveyed(cmd *cobra.Command, crew *jobs.Crew, loaded *scenarios.Campaign, stories []*scenarios.Scenario, known []shard.Search, timed bool) (*jobs.Campaign, error) {
	progress := report.Counting(c.Talk, loaded.Metadata.Name+": default schedules", "stories")
	surveyed, err := crew.Survey(cmd.Context(), loaded, stories, known, timed, progress.Of)
	progress.Clear()
	switch {
	case cmd.Context().Err() != nil:
		return nil, exit.Coded(exit.Interrupted, errors.New("interrupted before anything was played"))
	case err != nil:
		return nil, exit.Coded(exit.Internal, err)
	}
	return surveyed, nil
}

func campaignPlan() *cobra.Command {
	c := &campaigner{}
	cmd := &cobra.Command{
		Use:   "plan FILE",
		Short: "Say how many schedules a campaign has, and how long they take",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.start(cmd); err != nil {
				return err
			}
			crew, surveyed, err := c.survey(cmd, args[0], true)
			if err != nil {
				return err
			}
			crew.Close()
			c.Forecast(surveyed.Outline, surveyed.Each)
			return nil
		},
	}
	cmd.Flags().IntVar(&c.workers, "workers", runtime.NumCPU(), "how many worker processes it uses")
	cmd.Flags().StringVar(&c.Dir, "out", "", "directory that keeps what each story comes to, so that run --out needn't find it out again")
	return cmd
}

func campaignRun() *cobra.Command {
	c := &campaigner{}
	var part, summary string
	k := &onKubernetes{}
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Play a campaign, or one shard of it",
		Long: `Run plays the campaign in a file on all cores, and reports what came of it. What was
played is kept below --out: a campaign that was interrupted goes on where it was.

With --shard 3/40 it plays the third of forty parts, into one file below --out, its blob.
The exit code is then 0 if the blob is whole, whatever was found: fencelab campaign
merge judges all blobs together. It is 2 if it played nothing, or put a guarantee to the
test less often than the campaign promises, and 6 if it was interrupted.
--shard index/40 takes the number from JOB_COMPLETION_INDEX, which is that of an index
of a Job in Kubernetes, from 0.`,
		Example: `  fencelab campaign run nightly.yaml --out nights/2026-11-28
  fencelab campaign run nightly.yaml --shard 3/40 --out blobs`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if k.on != "" {
				return k.run(cmd, c, args[0], part)
			}
			number, of, err := shardOf(part, os.Getenv("JOB_COMPLETION_INDEX"))
			if err != nil {
				return exit.BadInput(err)
			}
			if err := c.start(cmd); err != nil {
				return err
			}
			crew, surveyed, err := c.survey(cmd, args[0], false)
			if err != nil {
				return err
			}
			defer crew.Close()
			blob, err := c.play(cmd.Context(), surveyed, number, of)
			if err != nil {
				return err
			}
			blobs, err := blobsIn(cmd.Context(), []string{blob})
			if err != nil {
				return exit.Coded(exit.Internal, err)
			}
			r, err := c.merge(blobs)
			if err != nil {
				return err
			}
			if part == "" {
				return c.finish(cmd.Context(), r)
			}
			c.Sharded(r, blob)
			if err := summarize(summary, r, number); err != nil {
				return exit.Coded(exit.Internal, err)
			}
			if r.Schedules == 0 || len(r.Short) > 0 {
				return exit.Ended(exit.Unknown)
			}
			return nil
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVar(&part, "shard", "", "play the I-th of N parts, as `I/N`, into one file")
	cmd.Flags().StringVar(&c.listen, "metrics", "", "address that serves metrics for Prometheus while it runs, such as :9090; without a host, to this machine alone")
	cmd.Flags().StringVar(&summary, "summary", "", "file that takes what a shard found in short, such as /dev/termination-log")
	cmd.Flags().StringVar(&c.place, "store", "", "where blobs are kept beside --out, as `s3://BUCKET/PREFIX`, in the store of AWS_ENDPOINT_URL; a shard goes on from there on any machine")
	k.flags(cmd)
	return cmd
}

func (c *campaigner) flags(cmd *cobra.Command) {
	cmd.Flags().IntVar(&c.workers, "workers", runtime.NumCPU(), "how many worker processes it uses")
	cmd.Flags().StringVar(&c.Dir, "out", "out", "directory for blobs, and for the report")
	cmd.Flags().BoolVar(&c.asFound, "no-shrink", false, "show failing schedules as they were found, with deviations that they don't need")
}

// shardOf reads the value of --shard: 1 of 1 without one.
func shardOf(text, index string) (number, of int, err error) {
	if text == "" {
		return 1, 1, nil
	}
	i, n, _ := strings.Cut(text, "/")
	if i == "index" {
		if number, err = strconv.Atoi(index); err != nil {
			return 0, 0, fmt.Errorf("--shard %s: JOB_COMPLETION_INDEX is %s, and not the number of an index: set it, or write the number of the shard", text, phrase.Quote(index))
		}
		i = strconv.Itoa(number + 1)
	}
	number, err = strconv.Atoi(i)
	if err == nil {
		of, err = strconv.Atoi(n)
	}
	if err != nil || number < 1 || of < number {
		return 0, 0, fmt.Errorf("--shard %s: write which of how many it is, such as 3/40", text)
	}
	return number, of, nil
}

// play plays what is left of a shard and returns the name of its blob. The error has an exit code.
func (c *campaigner) play(ctx context.Context, surveyed *jobs.Campaign, number, of int) (string, error) {
	if err := c.fetch(ctx, shard.BlobFile(c.Dir, surveyed.Outline, number, of)); err != nil {
		return "", err
	}
	w, err := shard.Open(c.Dir, surveyed.Outline, number, of)
	if err != nil {
		return "", exit.BadInput(err)
	}
	total, tried, failed := 0, 0, 0
	for _, j := range w.Left {
		total += surveyed.Outline.About(j)
	}
	progress, began := report.NewProgress(c.Talk, surveyed.Outline.Campaign, total), time.Now()
	if err := c.serve(ctx, surveyed.Outline.Campaign); err != nil {
		return "", errors.Join(err, w.Close())
	}
	c.metrics.played(total, 0, 0)
	err = surveyed.Play(ctx, w, func(t, f int) {
		tried, failed = tried+t, failed+f
		progress.At(tried, failed)
		c.metrics.played(total, tried, failed)
		if c.due() {
			if err := c.keep(ctx, w.Name); err != nil {
				c.Say("%v; it goes on\n", err)
			}
		}
	})
	progress.Clear()
	closed := w.Close()
	if total > 0 && closed == nil {
		closed = spend(w.Name, time.Since(began).Seconds()*float64(c.workers))
	}
	if closed == nil && total > 0 {
		closed = c.keep(ctx, w.Name, w.Name+secondsBeside)
	}
	switch {
	case ctx.Err() != nil && len(w.Left) > 0:
		return "", exit.Coded(exit.Interrupted, fmt.Errorf("interrupted before %s of the shard; the same command goes on from %s", phrase.Count(len(w.Left), "job"), w.Name))
	case err != nil:
		return "", exit.Coded(exit.Internal, err)
	case closed != nil && exit.Code(closed) == exit.Environment:
		return "", closed
	case closed != nil:
		return "", exit.Coded(exit.Internal, closed)
	}
	return w.Name, nil
}

// secondsBeside ends the name of the file that says how long cores were busy with a blob. The
// blob itself is the same whoever plays it.
const secondsBeside = ".seconds"

// spent is how long cores were busy with a blob, in seconds; 0 if that is not known.
func spent(blob string) float64 {
	text, _ := os.ReadFile(blob + secondsBeside) // it may be elsewhere
	return secondsIn(text)
}

func secondsIn(text []byte) float64 {
	seconds, _ := strconv.ParseFloat(strings.TrimSpace(string(text)), 64) // it is only for the report
	return seconds
}

// spend adds to how long cores were busy with a blob.
func spend(blob string, seconds float64) error {
	return os.WriteFile(blob+secondsBeside, fmt.Appendf(nil, "%.3f\n", spent(blob)+seconds), 0o644)
}

func campaignDiff() *cobra.Command {
	return &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "Say what a campaign found that an earlier one didn't",
		Long: `Diff compares the reports of two campaigns, such as those of two nights: findings that are
new, gone or rarer, what was put to the test less than half as often, and whether
schedules take longer. It ends with 1 if a finding is new, with 2 if a new one is
unknown or something was tested less, and with 0 if all that was found is known.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var both [2]*report.Campaign
			for i, name := range args {
				var err error
				if both[i], err = report.LoadCampaign(name); err != nil {
					return exit.BadInput(err)
				}
			}
			if a, b := both[0].Campaign, both[1].Campaign; a != b {
				return exit.BadInput(fmt.Errorf("%s is of the campaign %s, and %s of %s: name two reports of one campaign", args[0], a, args[1], b))
			}
			console := report.Console{Out: cmd.OutOrStdout(), Talk: cmd.ErrOrStderr()}
			d := console.Compared(both[0], both[1])
			return exit.Ended(d.Code())
		},
	}
}

func campaignMerge() *cobra.Command {
	c := &campaigner{}
	cmd := &cobra.Command{
		Use:   "merge DIR|BLOB|s3://BUCKET/PREFIX...",
		Short: "Put the blobs of a campaign's shards together, and report what came of all",
		Long: `Merge takes all blobs in the directories and stores, of any partition of one campaign, in
any order. Blobs of another campaign, version or behaviour are refused. One that is cut off
counts as far as it goes; what no blob has makes the result unknown.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.start(cmd); err != nil {
				return err
			}
			blobs, err := blobsIn(cmd.Context(), args)
			if err != nil {
				return exit.BadInput(err)
			}
			r, err := c.merge(blobs)
			if err != nil {
				return err
			}
			return c.finish(cmd.Context(), r)
		},
	}
	c.flags(cmd)
	return cmd
}

// merge merges blobs. The error has an exit code.
func (c *campaigner) merge(blobs []source) (*shard.Result, error) {
	m := shard.NewMerger()
	for _, blob := range blobs {
		c.spent += blob.seconds
		f, err := blob.open()
		if err != nil {
			return nil, exit.BadInput(err)
		}
		err = m.Add(blob.name, f)
		_ = f.Close() // it was only read
		var coded *exit.Error
		if errors.As(err, &coded) {
			return nil, err
		} else if err != nil {
			return nil, exit.BadInput(err)
		}
	}
	for _, text := range m.Cut() {
		c.Say("%s\n", text)
	}
	r, err := m.Result()
	return r, exit.BadInput(err)
}

// shownMost bounds how many findings are shrunk, and have a page.
const shownMost = 40

// finish shrinks the findings of a campaign, shows them, and saves the report. The error has an
// exit code.
func (c *campaigner) finish(ctx context.Context, r *shard.Result) error {
	for i := range r.Findings[:min(shownMost, len(r.Findings))] {
		if err := c.show(ctx, &r.Findings[i]); err != nil {
			return err
		}
	}
	if err := c.Campaign(&report.Campaign{Began: c.began.UTC().Truncate(time.Second), CoreSeconds: c.spent, Result: r}); err != nil {
		return exit.Coded(exit.Internal, err)
	}
	return exit.Ended(r.Code())
}

// show shrinks a finding, looks for what divides it from schedules that held, and plays what is
// left for its page.
func (c *campaigner) show(ctx context.Context, f *shard.Finding) error {
	s, again, err := jobs.Search(ctx, c.simulator, f)
	if err != nil {
		return exit.Coded(exit.Internal, fmt.Errorf("search %s again: %w", f.Story, err))
	}
	pool, err := workers.Of(ctx, c.workers)(s)
	if err != nil {
		return exit.Coded(exit.Internal, err)
	}
	t := jobs.Shrinking(f)
	if !c.asFound {
		progress := report.NewProgress(c.Talk, f.Story, 0)
		s.Explaining = progress.Explaining
		s.Replay(pool, again) // which the search remembers
		err = s.Explain(ctx, pool, &t)
		progress.Clear()
	}
	if err := errors.Join(err, pool.Close()); err != nil {
		return exit.Coded(exit.Internal, err)
	}
	failure := t.Failed[0]
	f.First, f.Divides = failure.Schedule, cmp.Or(failure.Divides, f.Divides)
	if f.First.Shrunk != nil {
		f.First.Shrunk.Divides = f.Divides
	}
	c.Print("\n%s of %s like this one:\n", phrase.Count(f.Count, "schedule"), f.Story)
	_, err = c.session.Single(context.WithoutCancel(ctx), s.Story.PlanOf(f.First), c.simulator.Evident())
	if err == nil && c.last.Directory != "" {
		f.Page, f.Text = c.last.Directory, c.last.Text
	}
	return err
}
