package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// Progress implements campaign.Sink.
func (c *Console) Progress(name string, total int) campaign.Progress {
	return searching{NewProgress(c.Talk, name, total)}
}

// searching is the progress of a search.
type searching struct{ *Progress }

func (s searching) At(t campaign.Tally) { s.Progress.At(t.Tried, t.Violated+t.Unknown) }
func (s searching) Done()               { s.Clear() }

// Searched implements campaign.Sink: it prints what came of a search in all.
func (c *Console) Searched(s *campaign.Search, t campaign.Tally) {
	verdict := t.Verdict(s.Total)
	c.Line(verdict, verdict == invariant.Held, s.Story.Plan.Metadata.Name, fmt.Sprintf("%s: %d held, %d violated, %d unknown; %s simulated",
		s.Describe(t.Tried), t.Held, t.Violated, t.Unknown, t.Simulated.Round(time.Second)))
	if covering, ok := s.Strategy.(campaign.Covering); ok {
		c.claim(covering, t)
	}
	c.gaps(s, t)
	if s.Partial() {
		fmt.Fprintf(c.Out, "  not exhaustive: %s not tried; --schedules bounds the sweep\n", phrase.Count(s.All-s.Total, "deviation"))
	}
	if t.Violated > 0 {
		fmt.Fprintf(c.Out, "  it took %s to the first violation\n", phrase.Count(t.Failures()[0].Schedule.Number+1, "schedule"))
	}
	if t.Idle > 0 {
		fmt.Fprintf(c.Out, "  in %s a fault, a crash or a deviation had no effect\n", phrase.Count(t.Idle, "schedule"))
	}
	if t.Disordered > 0 {
		fmt.Fprintf(c.Out, "  in %s of these the order did not come about: one of its steps never came, or not in time\n", phrase.Count(t.Disordered, "schedule"))
	}
	if t.Limited > 0 {
		fmt.Fprintf(c.Out, "  %s ended at a limit, and something was still missing\n", phrase.Count(t.Limited, "schedule"))
	}
	if t.Bypassed > 0 {
		fmt.Fprintf(c.Out, "  %s led past a step of the story\n", phrase.Count(t.Bypassed, "schedule"))
	}
	if ids := t.OnlyExcused(); len(ids) > 0 {
		fmt.Fprintf(c.Out, "  never judged without an excuse: %s\n", strings.Join(ids, ", "))
	}
}

// gapsShown is how many gaps are printed.
const gapsShown = 5

// gaps prints what no schedule brought about.
func (c *Console) gaps(s *campaign.Search, t campaign.Tally) {
	gaps := s.Gaps(t)
	switch {
	case len(s.Edges) == 0:
	case s.Aim != "" && slices.Contains(gaps, s.Aim):
		fmt.Fprintf(c.Out, "  it never came about: %s\n", s.Aim)
	case s.Aim != "":
	default:
		fmt.Fprintf(c.Out, "  %d of %d orders and decisions on old versions never came about\n", len(gaps), len(s.Edges))
		for _, words := range gaps[:min(gapsShown, len(gaps))] {
			fmt.Fprintf(c.Out, "    %s\n", words)
		}
		if len(gaps) > gapsShown {
			fmt.Fprintf(c.Out, "    and %d more, which -o json has\n", len(gaps)-gapsShown)
		}
	}
}

// claim prints what a search has covered: what its verdict is worth.
func (c *Console) claim(of campaign.Covering, t campaign.Tally) {
	var parts, reached []string
	for _, share := range of.Shares() {
		text := fmt.Sprintf("%d %s", share.Played, share.Name)
		switch {
		case share.Of > 0:
			text = fmt.Sprintf("%d of %d %s", share.Played, share.Of, share.Name)
		case share.About > 0:
			text = fmt.Sprintf("%d of about %d ± %d %s", share.Played, share.About, share.Deviation, share.Name)
		}
		parts = append(parts, text)
		switch {
		case share.Likely > 0:
			reached = append(reached, fmt.Sprintf("%d of about %.0f ± %.0f by %s", share.Reached, share.Likely, math.Ceil(share.GiveOrTake), share.Name))
		case share.Reached > 0 && share.Played != share.Of:
			reached = append(reached, fmt.Sprintf("%d by %s, of how many can't be said", share.Reached, share.Name))
		}
	}
	fmt.Fprintf(c.Out, "  played: %s\n", strings.Join(parts, ", "))
	for _, claim := range of.Claims() {
		word := "in part, and not complete"
		if claim.Whole {
			word = "complete"
		}
		fmt.Fprintf(c.Out, "  with %s, %s: %s\n", claim.With, word, claim.Text)
	}
	if len(reached) > 0 {
		fmt.Fprintf(c.Out, "  decisions reached: %s\n", strings.Join(reached, "; "))
	}
	var tested []string
	for _, id := range t.Tested() {
		tested = append(tested, fmt.Sprintf("%s in %d", id, t.Rulings[id].Schedules))
	}
	if len(tested) == 0 {
		tested = []string{"no guarantee, in none of them"}
	}
	fmt.Fprintf(c.Out, "  put to the test, of %s: %s\n", phrase.Count(t.Tried, "schedule"), strings.Join(tested, ", "))
	fmt.Fprintf(c.Out, "  checked: %s of two steps that are said to be independent\n", phrase.Count(t.Audits, "swap"))
}
