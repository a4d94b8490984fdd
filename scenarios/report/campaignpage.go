package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios/campaign/shard"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/page"
)

//go:embed campaign.html
var campaignMarkup string

var campaignTemplate = template.Must(template.New("campaign").Parse(campaignMarkup))

// night is one campaign of a trend.
type night struct {
	*Campaign
	// New counts the findings that the one before hadn't, or all of the first.
	New int
	// Height is that of its bar, of 100, by its findings.
	Height int
}

// Hours is how long cores were busy.
func (n night) Hours() string { return hours(n.spent()) }

// When is the time of a night.
func (n night) When() string { return n.Began.UTC().Format("2006-01-02 15:04") }

// Verdict is that of all its schedules.
func (n night) Verdict() invariant.Verdict {
	return map[int]invariant.Verdict{exit.Held: invariant.Held, exit.Violated: invariant.Violated}[n.Code()]
}

// Simulated is the virtual time of a night.
func (n night) Simulated() time.Duration {
	var all time.Duration
	for _, s := range n.Searches {
		all += s.Tally.Simulated
	}
	return all.Round(time.Second)
}

// campaignView is the template's input.
type campaignView struct {
	night
	Policy string
	Style  template.CSS
	// Groups are the findings with the same signature, and Nights the trend, this one last.
	Groups []group
	Nights []night
	// Gaps are stories in which no guarantee was put to the test, though schedules were played.
	Gaps []string
}

// group is findings of several stories with the same signature.
type group struct {
	Kind, Signature string
	Findings        []known
}

// known is a finding and since when it is known.
type known struct {
	shard.Finding
	Since string
	New   bool
}

// Words says what a failing schedule deviates in.
func (k known) Words() (all []string) {
	for _, d := range k.First.Deviations {
		all = append(all, d.String())
	}
	return all
}

// Percent is the share of schedules in which a guarantee was put to the test, of its chances.
func (v campaignView) Percent(t shard.Tested) string {
	if t.Chances == 0 {
		return ""
	}
	return fmt.Sprintf("%d %%", min(100, 100*t.Schedules/t.Chances))
}

// Stories says how often a guarantee was put to the test in each story.
func (v campaignView) Stories(id string) []shard.Tested {
	return slices.DeleteFunc(slices.Clone(v.Tested), func(t shard.Tested) bool { return t.Guarantee != id })
}

// campaignPage draws the page of a campaign, with earlier ones from the first to the last.
func campaignPage(own *Campaign, earlier []*Campaign) ([]byte, error) {
	const most = 30 // nights of a trend
	v := campaignView{night: night{Campaign: own}, Policy: page.Policy(page.Style, ""), Style: template.CSS(page.Style)}
	all := append(slices.Clone(earlier[max(0, len(earlier)-most+1):]), own)
	highest := 1
	for i, c := range all {
		n := night{Campaign: c, New: len(c.Findings)}
		if i > 0 {
			d := shard.Diff(all[i-1].Result, c.Result)
			n.New = len(d.New)
		}
		highest = max(highest, len(c.Findings))
		v.Nights = append(v.Nights, n)
	}
	for i := range v.Nights {
		v.Nights[i].Height = 100 * len(v.Nights[i].Findings) / highest
	}
	for _, f := range own.Findings {
		k := known{Finding: f, New: true}
		for _, n := range slices.Backward(v.Nights[:len(v.Nights)-1]) {
			if !slices.ContainsFunc(n.Findings, func(o shard.Finding) bool { return o.Key == f.Key }) {
				break
			}
			k.Since, k.New = n.When(), false
		}
		i := slices.IndexFunc(v.Groups, func(g group) bool { return g.Kind == f.Kind() && g.Signature == f.Signature })
		if i < 0 {
			i, v.Groups = len(v.Groups), append(v.Groups, group{Kind: f.Kind(), Signature: f.Signature})
		}
		v.Groups[i].Findings = append(v.Groups[i].Findings, k)
	}
	tested := make(map[string]bool)
	for _, t := range own.Tested {
		tested[t.Story] = tested[t.Story] || t.Judged > t.Excused
	}
	for _, s := range own.Searches {
		if !tested[s.Story] && !slices.Contains(v.Gaps, s.Story) {
			v.Gaps = append(v.Gaps, s.Story)
		}
	}
	var b bytes.Buffer
	if err := campaignTemplate.Execute(&b, v); err != nil {
		return nil, fmt.Errorf("draw the page of the campaign: %w", err)
	}
	return b.Bytes(), nil
}
