package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fencelab/fencelab/scenarios/campaign/shard"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// CampaignFile is the name of a campaign's report.
const CampaignFile = "campaign.json"

// Campaign is a campaign's report: what came of it, and when that was found out.
type Campaign struct {
	Began time.Time `json:"began"`
	Wall  float64   `json:"wallSeconds"`
	*shard.Result
}

// Counting is the progress of things that are counted and don't fail.
func Counting(to io.Writer, name, of string) *Progress {
	p := NewProgress(to, name, 0)
	p.of = of
	return p
}

// Of says that n of all things are done.
func (p *Progress) Of(n, all int) {
	p.total = all
	p.At(n, 0)
}

// Forecast prints what a campaign comes to, and how long a schedule of each of its searches takes.
func (c *Console) Forecast(o *shard.Outline, each []time.Duration) {
	type sum struct {
		schedules, searches int
		took                time.Duration
	}
	stories, by, all := make(map[string]bool), make(map[string]*sum), new(sum)
	var order []string
	for i, s := range o.Searches {
		stories[s.Story] = true
		name := s.Strategy
		if s.Default {
			name = "default schedules"
		}
		if by[name] == nil {
			by[name], order = new(sum), append(order, name)
		}
		for _, add := range []*sum{by[name], all} {
			add.schedules, add.searches, add.took = add.schedules+s.All, add.searches+1, add.took+each[i]*time.Duration(s.All)
		}
	}
	fmt.Fprintf(c.Out, "%s: %d schedules of %d stories in %s, %s\n", o.Campaign, all.schedules, len(stories), phrase.Count(len(o.Jobs), "job"), hours(all.took))
	for _, name := range order {
		s := by[name]
		fmt.Fprintf(c.Out, "  %-18s %9d schedules in %d searches, %s\n", name, s.schedules, s.searches, hours(s.took))
	}
	const good = 10 * time.Minute
	if n := min(int(all.took/good), len(o.Jobs)); n > 1 {
		fmt.Fprintf(c.Out, "  in shards of about ten minutes on one core: --shard 1/%d to %d/%d\n", n, n, n)
	}
}

// hours is a time of cores.
func hours(d time.Duration) string {
	if d < time.Hour {
		return fmt.Sprintf("about %.1f core minutes", d.Minutes())
	}
	return fmt.Sprintf("about %.1f core hours", d.Hours())
}

// Sharded prints what a shard has left in its blob.
func (c *Console) Sharded(r *shard.Result, blob string) {
	failed := 0
	for _, f := range r.Findings {
		failed += f.Count
	}
	fmt.Fprintf(c.Out, "%s: %d of %d schedules in %d of %d jobs, %d failed; %s\n", r.Campaign, r.Schedules, r.All, r.Jobs, r.AllJobs, failed, blob)
	c.short(r)
}

// short prints what was not put to the test as promised.
func (c *Console) short(r *shard.Result) {
	if r.Schedules == 0 {
		fmt.Fprintln(c.Out, "  nothing was played")
	}
	for _, text := range r.Short {
		fmt.Fprintf(c.Out, "  too little: %s\n", text)
	}
}

// Campaign prints what came of a campaign, and saves its report in Dir.
func (c *Console) Campaign(r *shard.Result, began time.Time, took time.Duration) error {
	held, violated, unknown := 0, 0, 0
	for _, s := range r.Searches {
		held, violated, unknown = held+s.Tally.Held, violated+s.Tally.Violated, unknown+s.Tally.Unknown
	}
	fmt.Fprintf(c.Out, "\n%s: %d of %d schedules: %d held, %d violated, %d unknown; %s in %s\n",
		r.Campaign, r.Schedules, r.All, held, violated, unknown, phrase.Count(len(r.Findings), "finding"), took.Round(time.Second))
	for _, f := range r.Findings {
		fmt.Fprintf(c.Out, "  %-8s %s %s: %s, in %d of %s\n", f.Kind(), f.Key, f.Story, f.Signature, f.Count, phrase.Count(f.Schedules, "schedule"))
	}
	for _, text := range r.Missing {
		fmt.Fprintf(c.Out, "  not played: %s\n", text)
	}
	c.short(r)
	data, err := json.MarshalIndent(Campaign{began, took.Seconds(), r}, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(c.Dir, CampaignFile), append(data, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("save the report of the campaign: %w", err)
	}
	return nil
}
