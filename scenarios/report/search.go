package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// Progress implements campaign.Sink.
func (c *Console) Progress(name string, total int) (at func(campaign.Tally), done func()) {
	bar := NewProgress(c.Talk, name, total)
	return func(t campaign.Tally) { bar.At(t.Tried, t.Violated+t.Unknown) }, bar.Clear
}

// Searched implements campaign.Sink: it prints what came of a search in all.
func (c *Console) Searched(s *campaign.Search, t campaign.Tally) {
	verdict := t.Verdict(s.Total)
	c.Line(verdict, verdict == invariant.Held, s.Story.Plan.Metadata.Name, fmt.Sprintf("%s: %d held, %d violated, %d unknown; %s simulated",
		s.Describe(t.Tried), t.Held, t.Violated, t.Unknown, t.Simulated.Round(time.Second)))
	if s.Partial() {
		fmt.Fprintf(c.Out, "  not exhaustive: %s not tried; --schedules bounds the sweep\n", phrase.Count(s.All-s.Total, "deviation"))
	}
	if t.Violated > 0 {
		fmt.Fprintf(c.Out, "  it took %s to the first violation\n", phrase.Count(t.Failures()[0].Schedule.Number+1, "schedule"))
	}
	if t.Idle > 0 {
		fmt.Fprintf(c.Out, "  in %s a fault, a crash or a deviation had no effect\n", phrase.Count(t.Idle, "schedule"))
	}
	if t.Bypassed > 0 {
		fmt.Fprintf(c.Out, "  %s led past a step of the story\n", phrase.Count(t.Bypassed, "schedule"))
	}
	if ids := t.OnlyExcused(); len(ids) > 0 {
		fmt.Fprintf(c.Out, "  never judged without an excuse: %s\n", strings.Join(ids, ", "))
	}
}
