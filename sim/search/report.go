package search

import (
	"fmt"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"github.com/fencelab/fencelab/scenarios/report"
)

// failuresShown bounds how many kinds of failures a search reports.
const failuresShown = 10

// Report prints what came of a search in all.
func (s *Search) Report(session *campaign.Session, to *report.Console, t Tally) {
	verdict := t.Verdict(s.Total)
	found := &campaign.Searched{
		Schedules: t.Tried, Of: s.Total, All: s.All, Held: t.Held, Violated: t.Violated, Unknown: t.Unknown, Idle: t.Idle, Bypassed: t.Bypassed, Simulated: t.Simulated.Seconds(), Rulings: t.Rulings,
	}
	for _, f := range t.Failures() {
		found.Failures = append(found.Failures, campaign.Cluster{Signature: f.Signature, Guarantee: f.Invariant, Schedules: f.Count, First: f.Schedule.Number + 1})
	}
	session.Searched(found)
	to.Line(verdict, verdict == invariant.Held, s.Story.Plan.Metadata.Name, fmt.Sprintf("%s: %d held, %d violated, %d unknown; %s simulated",
		s.Describe(t.Tried), t.Held, t.Violated, t.Unknown, t.Simulated.Round(time.Second)))
	if s.Partial() {
		fmt.Fprintf(to.Out, "  not exhaustive: %s not tried; --schedules bounds the sweep\n", phrase.Count(s.All-s.Total, "deviation"))
	}
	if t.Violated > 0 {
		fmt.Fprintf(to.Out, "  it took %s to the first violation\n", phrase.Count(t.Failures()[0].Schedule.Number+1, "schedule"))
	}
	if t.Idle > 0 {
		fmt.Fprintf(to.Out, "  in %s a fault, a crash or a deviation had no effect\n", phrase.Count(t.Idle, "schedule"))
	}
	if t.Bypassed > 0 {
		fmt.Fprintf(to.Out, "  %s led past a step of the story\n", phrase.Count(t.Bypassed, "schedule"))
	}
	if ids := t.OnlyExcused(); len(ids) > 0 {
		fmt.Fprintf(to.Out, "  never judged without an excuse: %s\n", strings.Join(ids, ", "))
	}
}

// ReportFailures prints the kinds of failures. Show plays the first schedule of a kind
// alone and reports on it.
func (s *Search) ReportFailures(to *report.Console, t Tally, show func(*scenarios.Plan) error) error {
	failures := t.Failures()
	for i, f := range failures {
		if i == failuresShown {
			fmt.Fprintf(to.Out, "\nand %s of failure\n", phrase.Count(len(failures)-i, "more kind"))
			break
		}
		fmt.Fprintf(to.Out, "\n%s like this one, schedule %d:\n", phrase.Count(f.Count, "schedule"), f.Schedule.Number+1)
		if err := show(s.Story.PlanOf(f.Schedule)); err != nil {
			return err
		}
	}
	return nil
}
