package main

import (
	"bytes"
	"fmt"
	"math"
	"path"
	"strings"

	"github.com/fencelab/fencelab/scenarios/campaign"
)

// page is the document.
func page(all []*claim) []byte {
	var forecasts, estimates strings.Builder
	for _, c := range all {
		forecasts.WriteString(c.row() + "\n")
		for _, s := range c.parts() {
			estimates.WriteString(c.estimates(s) + "\n")
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `# What searches say of themselves

For those who read the [forecast and the claim](../search.md#before-during-and-after) of a search. Each
of these searches of right controllers was finished, so that what was said before and on the way
stands beside what came of it. A step comes at most as late as *within* says.
`+"`go run ./ci/claims -table docs/measured/claims.md`"+` writes this page.

## Forecasts and claims

The number of single deviations is exact. That of combinations is foretold from a few of their
branches, give or take a deviation. *Time* is what a search took, as a part of what was foretold for
it, on a machine with other work. *Put to the test* is in which part of the schedules each guarantee was.

| story | deviations | within | single | combinations foretold | played | held | violated | unknown | orders that did not come about | ended at a limit | swaps checked | put to the test | time |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
%s
## Estimates

How many decisions all schedules of a part reach, rows of the controllers' tables and steps from one
row to another: estimated when 1, 10 and 50 %% of them were played, beside how many they reached. The
deviation is half the distance of [two bounds](../search.md#before-during-and-after). *Can't be said*
stands where it is more than a quarter, or where the estimate is another one when two schedules count
as one.

%s
| story | part | schedules | reached | at 1 %% | at 10 %% | at 50 %% |
|---|---|---|---|---|---|---|
%s`, forecasts.String(), summary(all), estimates.String())
	return b.Bytes()
}

// row is the line of a search in the table of forecasts. Its last cell depends on the machine.
func (c *claim) row() string {
	single, foretold, played := 0, "", ""
	for i, s := range c.came {
		switch before := c.foretold[i]; {
		case before.Of > 0:
			single += s.Of
		case before.About > 0:
			foretold, played = fmt.Sprintf("%d ± %d", before.About, before.Deviation), fmt.Sprint(s.Played)
		}
	}
	var tested []string
	for _, id := range c.tally.Tested() {
		tested = append(tested, fmt.Sprintf("%s %.0f %%", id, math.Floor(100*float64(c.tally.Rulings[id].Schedules)/float64(c.tally.Tried))))
	}
	t := &c.tally
	return fmt.Sprintf("| `%s` | %d | %s | %d | %s | %s | %d | %d | %d | %d | %d | %d | %s | %.0f %% |", path.Base(c.story), c.depth, c.bound(),
		single, foretold, played, t.Held, t.Violated, t.Unknown, t.Disordered, t.Limited, t.Audits, strings.Join(tested, ", "), 100*float64(c.took)/float64(c.foretime))
}

// parts are the shares of the parts that have an end and don't learn, as they came out.
func (c *claim) parts() (all []campaign.Share) {
	for _, s := range c.came {
		if s.Of > 0 && s.Reached > 0 {
			all = append(all, s)
		}
	}
	return all
}

// estimates is the line of a part in the table of estimates.
func (c *claim) estimates(s campaign.Share) string {
	row := fmt.Sprintf("| `%s`, %d | %s | %d | %d |", path.Base(c.story), c.depth, s.Name, s.Of, s.Reached)
	for _, early := range c.early[s.Name] {
		if early.Likely == 0 {
			row += " can't be said |"
			continue
		}
		row += fmt.Sprintf(" %.0f ± %.0f |", early.Likely, math.Ceil(early.GiveOrTake))
	}
	return row
}

// summary says how often the estimates were right: off by no more than the deviation.
func summary(all []*claim) string {
	var b strings.Builder
	b.WriteString("| played | estimates said | right within the deviation | too low | too high | off by, in the mean |\n|---|---|---|---|---|---|\n")
	for i, percent := range moments {
		parts, said, low, high, off := 0, 0, 0, 0, 0.0
		for _, c := range all {
			for _, s := range c.parts() {
				parts++
				early := c.early[s.Name][i]
				if early.Likely == 0 {
					continue
				}
				said++
				by := early.Likely - float64(s.Reached)
				off += by / float64(s.Reached)
				switch most := math.Ceil(early.GiveOrTake); {
				case by < -most:
					low++
				case by > most:
					high++
				}
			}
		}
		fmt.Fprintf(&b, "| %d %% | %d of %d | %d | %d | %d | %+.0f %% |\n", percent, said, parts, said-low-high, low, high, 100*off/float64(max(1, said)))
	}
	return b.String()
}
