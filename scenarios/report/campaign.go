package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios/campaign/shard"
	"github.com/fencelab/fencelab/scenarios/page"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// CampaignFile is the name of a campaign's report.
const CampaignFile = "campaign.json"

// Campaign is a campaign's report: what came of it, and when that was found out.
type Campaign struct {
	Began time.Time `json:"began"`
	// CoreSeconds is how long cores were busy with it.
	CoreSeconds float64 `json:"coreSeconds"`
	*shard.Result

	// Dir is the name of its directory.
	Dir string `json:"-"`
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
		name := s.Name()
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
	about := ""
	if slices.ContainsFunc(o.Searches, func(s shard.Search) bool { return s.Branches > 0 }) {
		about = "about " // combinations are foretold
	}
	fmt.Fprintf(c.Out, "%s: %s%d schedules of %d stories in %s, %s\n", o.Campaign, about, all.schedules, len(stories), phrase.Count(len(o.Jobs), "job"), hours(all.took))
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

// Campaign prints what came of a campaign, and saves its report and its page in Dir.
func (c *Console) Campaign(own *Campaign) error {
	r, held, violated, unknown := own.Result, 0, 0, 0
	for _, s := range r.Searches {
		held, violated, unknown = held+s.Tally.Held, violated+s.Tally.Violated, unknown+s.Tally.Unknown
	}
	fmt.Fprintf(c.Out, "\n%s: %d of %d schedules: %d held, %d violated, %d unknown; %s, %s\n",
		r.Campaign, r.Schedules, r.All, held, violated, unknown, phrase.Count(len(r.Findings), "finding"), hours(own.spent()))
	c.findings("", r.Findings)
	for _, text := range r.Missing {
		fmt.Fprintf(c.Out, "  not played: %s\n", text)
	}
	c.short(r)
	for i, f := range r.Findings {
		if near, err := filepath.Rel(c.Dir, f.Page); err == nil && f.Page != "" {
			r.Findings[i].Page = filepath.ToSlash(filepath.Join(near, page.Name))
		}
	}
	earlier, err := earlierThan(own, c.Dir)
	if err != nil {
		return err
	}
	drawn, err := campaignPage(own, earlier)
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(own, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(c.Dir, CampaignFile), append(data, '\n'), 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(c.Dir, "index.html"), drawn, 0o644)
	}
	if err != nil {
		return fmt.Errorf("save the report of the campaign: %w", err)
	}
	c.Say("page: %s\n", filepath.Join(c.Dir, "index.html"))
	return nil
}

func (c *Console) findings(word string, all []shard.Finding) {
	for _, f := range all {
		fmt.Fprintf(c.Out, "  %s%-8s %s %s: %s, in %d of %s\n", word, f.Kind(), f.Key, f.Story, f.What(), f.Count, phrase.Count(f.Schedules, "schedule"))
		if f.Divides != "" {
			fmt.Fprintf(c.Out, "           %s\n", f.Divides)
		}
	}
}

// LoadCampaign reads the report of a campaign in a directory, or in a file.
func LoadCampaign(name string) (*Campaign, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		name = filepath.Join(name, CampaignFile)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read the report of a campaign: %w", err)
	}
	c := new(Campaign)
	if err := json.Unmarshal(data, c); err != nil || c.Result == nil {
		return nil, fmt.Errorf("%s: it is no report of a campaign (%v)", name, err)
	}
	return c, nil
}

// earlierThan loads the earlier reports of a campaign from the directories beside its own, oldest
// first. It skips reports that it can't read.
func earlierThan(own *Campaign, dir string) (all []*Campaign, err error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	names, _ := filepath.Glob(filepath.Join(filepath.Dir(absolute), "*", CampaignFile)) // the pattern is right
	for _, name := range names {
		if other, err := LoadCampaign(name); err == nil && filepath.Dir(name) != absolute && other.Campaign == own.Campaign && other.Began.Before(own.Began) {
			other.Dir = filepath.Base(filepath.Dir(name))
			all = append(all, other)
		}
	}
	slices.SortFunc(all, func(a, b *Campaign) int { return a.Began.Compare(b.Began) })
	return all, nil
}

// slower is the factor by which schedules take longer before that is said.
const slower = 1.25

// Compared prints how a campaign differs from an earlier one.
func (c *Console) Compared(before, after *Campaign) shard.Difference {
	d := shard.Diff(before.Result, after.Result)
	fmt.Fprintf(c.Out, "%s: %d new, %d gone, %d rarer, %d known; from %s (%s) to %s (%s)\n", after.Campaign, len(d.New), len(d.Gone), len(d.Rarer), len(after.Findings)-len(d.New),
		before.Version, before.Began.Format(time.DateTime), after.Version, after.Began.Format(time.DateTime))
	if before.Digest != after.Digest {
		fmt.Fprintln(c.Out, "  the campaign's file or its stories have changed")
	}
	c.findings("new    ", d.New)
	c.findings("gone   ", d.Gone)
	c.findings("rarer  ", d.Rarer)
	for _, text := range d.Less {
		fmt.Fprintf(c.Out, "  less   %s\n", text)
	}
	if was, is := before.each(), after.each(); was > 0 && float64(is) > slower*float64(was) {
		fmt.Fprintf(c.Out, "  slower %s a schedule, and %s before\n", is.Round(time.Microsecond), was.Round(time.Microsecond))
	}
	return d
}

func (c *Campaign) spent() time.Duration { return time.Duration(c.CoreSeconds * float64(time.Second)) }

// each is how long a schedule took one core, if that is known.
func (c *Campaign) each() time.Duration { return c.spent() / time.Duration(max(1, c.Schedules)) }
