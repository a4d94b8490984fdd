package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/campaign/shard"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/guarantee"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/page"
	"github.com/fencelab/fencelab/scenarios/play"
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
	// Closest has where each guarantee was nearest to being broken, the tightest first.
	Closest []closest
	// ByStory says what was played of each story, and what was put to the test in it.
	ByStory []covered
	// Never are the guarantees that nothing has put to the test.
	Never []string
}

// closest is where a guarantee was nearest to being broken, and its next stories.
type closest struct {
	Guarantee string
	Calls     []call
}

// call is the closest one of a guarantee in a story.
type call struct {
	Story, Strategy string
	Seed            uint64
	campaign.Call
}

// Words puts a call into words, and Where says in which schedule it was.
func (c call) Words() string {
	o := Call{First: c.First, Second: c.Second, Margin: c.Margin.Seconds(), Limit: c.Limit.Seconds()}
	return o.words()
}

func (c call) Where() string {
	var all []string
	for _, d := range c.Schedule.Deviations {
		all = append(all, d.String())
	}
	if len(all) == 0 || len(all) > 3 || c.Schedule.Draw {
		return fmt.Sprintf("%s, seed %d, schedule %d", c.Strategy, c.Seed, c.Schedule.Number+1)
	}
	return strings.Join(all, ", ")
}

// covered says how a story was played.
type covered struct {
	Name string
	campaign.Tally
	Tested []shard.Tested
}

// Gaps are the guarantees that nothing has put to the test, though the default schedule does, and
// those of which a hindrance has excused all that happened.
func (s covered) Gaps() (all []string) {
	for _, t := range s.Tested {
		if t.Schedules > 0 {
			continue
		}
		why := "never"
		if t.Judged > 0 {
			why = "excused only"
		}
		all = append(all, t.Guarantee+": "+why)
	}
	if len(s.Tested) == 0 {
		all = append(all, "no guarantee was put to the test")
	}
	return all
}

// Full is how many guarantees were put to the test in each schedule that had the chance, and Part
// how many in some.
func (s covered) Full() int {
	return s.count(func(t shard.Tested) bool { return t.Schedules >= t.Chances })
}
func (s covered) Part() int {
	return s.count(func(t shard.Tested) bool { return t.Schedules < t.Chances })
}

func (s covered) count(which func(shard.Tested) bool) (n int) {
	for _, t := range s.Tested {
		if t.Schedules > 0 && which(t) {
			n++
		}
	}
	return n
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
	v.cover()
	var b bytes.Buffer
	if err := campaignTemplate.Execute(&b, v); err != nil {
		return nil, fmt.Errorf("draw the page of the campaign: %w", err)
	}
	return b.Bytes(), nil
}

// Open says that stories have gaps, which are shown at once.
func (v campaignView) Open() bool { return len(v.ByStory) > 0 && len(v.ByStory[0].Gaps()) > 0 }

// cover gathers how near guarantees were to being broken, and what was put to the test in which
// stories.
func (v *campaignView) cover() {
	at := make(map[string]int)
	for _, s := range v.Searches {
		for _, id := range slices.Sorted(maps.Keys(s.Tally.Closest)) {
			i := slices.IndexFunc(v.Closest, func(c closest) bool { return c.Guarantee == id })
			if i < 0 {
				i, v.Closest = len(v.Closest), append(v.Closest, closest{Guarantee: id})
			}
			calls, one := v.Closest[i].Calls, call{s.Story, s.Name(), s.Seed, s.Tally.Closest[id]}
			if n := len(calls); n > 0 && calls[n-1].Story == one.Story { // searches of a story come one after the other
				if one.Margin < calls[n-1].Margin {
					calls[n-1] = one
				}
				continue
			}
			v.Closest[i].Calls = append(calls, one)
		}
		i, known := at[s.Story]
		if !known {
			i, at[s.Story], v.ByStory = len(v.ByStory), len(v.ByStory), append(v.ByStory, covered{Name: s.Story})
		}
		v.ByStory[i].Merge(s.Tally)
	}
	for _, c := range v.Closest {
		slices.SortStableFunc(c.Calls, func(a, b call) int { return cmp.Compare(a.Margin, b.Margin) })
	}
	slices.SortStableFunc(v.Closest, func(a, b closest) int {
		return cmp.Or(cmp.Compare(a.Calls[0].Margin, b.Calls[0].Margin), cmp.Compare(a.Guarantee, b.Guarantee))
	})
	tested := make(map[string]bool)
	for _, t := range v.Tested {
		tested[t.Guarantee] = tested[t.Guarantee] || t.Schedules > 0
		if i, known := at[t.Story]; known && play.Tests(t.Guarantee) {
			v.ByStory[i].Tested = append(v.ByStory[i].Tested, t)
		}
	}
	for _, g := range guarantee.All() {
		if id := g.ID; play.Tests(id) && !tested[id] {
			v.Never = append(v.Never, id)
		}
	}
	// Stories with gaps come first.
	slices.SortStableFunc(v.ByStory, func(a, b covered) int { return cmp.Compare(len(b.Gaps()), len(a.Gaps())) })
}
